// Package installation tests the installation and removal of Refract, and refract check, on control planes with
// controllers and a scheduler. The Nodes run no containers: in place of the pods, the tests run replicas of `refract
// run` with the rights of the pods' account.
package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/checkup"
	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

const (
	system = "kube-admiral-system"
	image  = "refract.example.com/refract:v0.1.0"
	// site is the cluster with controllers and nodes. Refract is installed in it.
	site = "member-1"
)

// world is a cluster with an installation of Refract.
type world struct {
	*harness.Env

	t      *testing.T
	client client.WithWatch
}

func begin(t *testing.T, members int) *world {
	t.Helper()
	env := harness.New(t, harness.Topology{Members: members, Nodes: true, Own: true})
	c, err := env.Client(site)
	if err != nil {
		t.Fatal(err)
	}
	return &world{env, t, c}
}

// refract runs the program against the cluster, and returns its output and its exit code.
func (w *world) refract(args ...string) (string, int) {
	w.t.Helper()
	binary, err := w.Binary()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig(site))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs the program, which must succeed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	out, code := w.refract(args...)
	if code != 0 {
		w.t.Fatalf("refract %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// kubectl runs kubectl against the cluster.
func (w *world) kubectl(manifest string, args ...string) string {
	w.t.Helper()
	out, err := w.Kubectl(site, manifest, args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// start starts a replica in place of the pods of one part of Refract, with the account of the pods, and waits until it
// is ready.
func (w *world) start(account string, args ...string) *harness.Replica {
	w.t.Helper()
	ports, err := harness.FreePorts(1)
	if err != nil {
		w.t.Fatal(err)
	}
	namespace := system
	if at := slices.Index(args, "--system-namespace"); at >= 0 {
		namespace = args[at+1]
	}
	as := w.kubeconfigOf(namespace, account)
	r, err := w.ReplicaFor(site, account, append([]string{"--kubeconfig", as, "--webhook-url", "https://" + ports[0], "--webhook-bind-address", ports[0]}, args...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := harness.Await(w.t.Context(), r.Ready); err != nil {
		w.t.Fatalf("%v\n%s", err, harness.LogTail(r.Log))
	}
	return r
}

func (w *world) kill(r *harness.Replica) {
	w.t.Helper()
	if err := r.Stop(syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
}

// kubeconfigOf writes a kubeconfig for a service account.
func (w *world) kubeconfigOf(namespace, account string) string {
	w.t.Helper()
	token := w.kubectl("", "create", "token", account, "-n", namespace, "--duration", "2h")
	to, err := w.Access(site)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{site: {Server: to.Endpoint, CertificateAuthorityData: to.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{site: {Token: strings.TrimSpace(token)}},
		Contexts:       map[string]*clientcmdapi.Context{site: {Cluster: site, AuthInfo: site}},
		CurrentContext: site,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.Dir, account+".yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// check returns the JSON report of refract check.
func (w *world) check(args ...string) *checkup.Report {
	w.t.Helper()
	out, code := w.refract(append([]string{"check", "-o", "json"}, args...)...)
	report := &checkup.Report{}
	if err := json.Unmarshal([]byte(out), report); err != nil {
		w.t.Fatalf("exit code %d: %v\n%s", code, err, out)
	}
	if want := map[bool]int{true: 1, false: 0}[report.Failed()]; code != want {
		w.t.Errorf("want exit code %d, got %d\n%s", want, code, out)
	}
	return report
}

// wrong returns the failed results, one line each.
func wrong(r *checkup.Report) string {
	var lines []string
	for _, result := range r.Results {
		if !result.OK {
			lines = append(lines, fmt.Sprintf("%s: %s → %s", result.Check, result.Message, result.Do))
		}
	}
	return strings.Join(lines, "\n")
}

// gone waits until an object does not exist.
func (w *world) gone(what string, o client.Object) {
	w.t.Helper()
	harness.Eventually(w.t, what+" is gone", func(ctx context.Context) error {
		err := w.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s %s is there", what, o.GetName()), err)
	})
}
