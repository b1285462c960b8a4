// Package tenancy tests who may do what: that the documented rights are enough
// for Refract, that what is missing is named, and that somebody who may edit one
// namespace of the hub can affect nothing outside it.
package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"refract.dev/internal/hub"
	"refract.dev/test/fleet"
)

const (
	root    = "../.."
	members = 2
	system  = "kube-admiral-system"
)

// shared is the fleet of all tests. Its controllers have the rights of
// config/rbac, on the hub and on the members, and no others.
var shared *fleet.Fleet

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenancy:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "refract-tenancy-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if shared, err = fleet.Start(dir, root, members); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.Stop()) }()
	account, err := restrict(dir)
	if err != nil {
		return 0, err
	}
	stop, err := runAs(account)
	if err != nil {
		return 0, err
	}
	defer stop()
	return m.Run(), nil
}

// restrict installs the documented roles, has the members reached with them, and
// returns a kubeconfig of the account that they are for on the hub.
func restrict(dir string) (kubeconfig string, err error) {
	// Twice, as for everybody: a namespace must be there before what is in it.
	for _, what := range []string{"-f=" + filepath.Join(root, "config/install/namespace.yaml"), "-k=" + filepath.Join(root, "config/install")} {
		if _, err := shared.Kubectl("hub", "", "apply", "--server-side", "--force-conflicts", what); err != nil {
			return "", err
		}
	}
	for _, name := range shared.Members {
		if _, err := shared.Kubectl(name, "", "apply", "-f", filepath.Join(root, "config/rbac/member.yaml")); err != nil {
			return "", err
		}
		cfg, err := clientcmd.LoadFromFile(shared.Kubeconfig(name))
		if err != nil {
			return "", err
		}
		token, err := shared.Kubectl(name, "", "create", "token", "refract-member", "-n", system, "--duration=2h")
		if err != nil {
			return "", err
		}
		secret, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": system},
			"data": map[string][]byte{
				"service-account-token-data": []byte(strings.TrimSpace(token)),
				"certificate-authority-data": cfg.Clusters[cfg.Contexts[cfg.CurrentContext].Cluster].CertificateAuthorityData,
			},
		})
		if err != nil {
			return "", err
		}
		if _, err := shared.Kubectl("hub", string(secret), "replace", "-f", "-"); err != nil {
			return "", err
		}
		if _, err := shared.Kubectl("hub", "", "patch", "federatedcluster", name, "--type=merge", `-p={"spec":{"useServiceAccount":true}}`); err != nil {
			return "", err
		}
	}
	cfg, err := clientcmd.LoadFromFile(shared.Kubeconfig("hub"))
	if err != nil {
		return "", err
	}
	token, err := shared.Kubectl("hub", "", "create", "token", "refract", "-n", system, "--duration=2h")
	if err != nil {
		return "", err
	}
	user := cfg.AuthInfos[cfg.Contexts[cfg.CurrentContext].AuthInfo]
	user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, strings.TrimSpace(token)
	kubeconfig = filepath.Join(dir, "account.yaml")
	return kubeconfig, clientcmd.WriteToFile(*cfg, kubeconfig)
}

// runAs runs the controllers with the kubeconfig, until stop is called.
func runAs(kubeconfig string) (stop func(), err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	ctrllog.SetLogger(logr.Discard())
	// The controllers do so, too; it must be there when the first test begins.
	if err := hub.InstallAdmission(context.Background(), cfg); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	webhook := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.Create(shared.Log)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(shared.Binary(), "run", "--kubeconfig", kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--webhook-bind-address="+webhook, "--webhook-url=https://"+webhook)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // How it ends is for other tests.
		_ = log.Close()
	}
	if _, err := shared.Kubectl("hub", "", "wait", "--for=create", "validatingwebhookconfiguration/refract-policies", "--timeout=60s"); err != nil {
		stop()
		written, _ := os.ReadFile(shared.Log) // It is only to explain the error.
		return nil, fmt.Errorf("%w\n%s", err, written)
	}
	return stop, nil
}

// do runs kubectl against a cluster and fails the test if that fails.
func do(t *testing.T, cluster, manifest string, args ...string) string {
	t.Helper()
	out, err := shared.Kubectl(cluster, manifest, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// as runs kubectl against the hub as a user, and returns what it says and whether
// it was refused.
func as(t *testing.T, user, manifest string, args ...string) (out string, refused bool) {
	t.Helper()
	out, err := shared.Kubectl("hub", manifest, append([]string{"--as=" + user}, args...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, false
	case errors.As(err, &exit):
		return err.Error(), true
	default:
		t.Fatal(err)
		return "", true
	}
}

// author is what the user of a namespace may do there.
const author = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author}
rules:
- {apiGroups: [apps, batch], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps, pods, podtemplates, replicationcontrollers, pods/ephemeralcontainers, serviceaccounts], verbs: ["*"]}
- {apiGroups: [""], resources: [secrets], resourceNames: [mine, mine-too], verbs: [get]}
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{kind: User, name: USER}]
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: first}
spec: {schedulingMode: Duplicate, placement: [{cluster: member-1}]}
`

// namespace makes a namespace on the hub for one test, with a user who is an
// author in it.
func namespace(t *testing.T) (name, user string) {
	t.Helper()
	name = strings.ToLower(regexp.MustCompile("[^A-Za-z0-9]+").ReplaceAllString(t.Name(), "-"))
	user = "author-of-" + name
	do(t, "hub", "", "create", "namespace", name)
	do(t, "hub", strings.ReplaceAll(author, "USER", user), "apply", "-n", name, "-f", "-")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(do(t, "hub", "", "get", "propagations", "-n", name, "-o", "yaml"))
			if log, err := os.ReadFile(shared.Log); err == nil {
				t.Logf("the controllers' log ends:\n%s", log[max(0, len(log)-4000):])
			}
		}
		do(t, "hub", "", "delete", "namespace", name, "--wait=false")
	})
	allowed(t, "hub", user, "yes", "create", "overridepolicies.core.kubeadmiral.io", "-n", name)
	return name, user
}

// allowed waits until an API server has heard of what a user may do, which is a moment
// after the role was written.
func allowed(t *testing.T, cluster, user, want string, what ...string) {
	t.Helper()
	eventually(t, "whether "+user+" may "+strings.Join(what, " "), want, func() string {
		out, _ := shared.Kubectl(cluster, "", append([]string{"auth", "can-i", "--as=" + user}, what...)...) // kubectl exits with 1 to say no.
		return strings.TrimSpace(out)
	})
}

// get returns an object of a cluster, or nil.
func get(t *testing.T, cluster, kind, ns, name string) *unstructured.Unstructured {
	t.Helper()
	out := do(t, cluster, "", "get", kind, "-n", ns, name, "--ignore-not-found", "-o", "json")
	if strings.TrimSpace(out) == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(out), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// field returns a field of an object as text; "absent" for an object that is not
// there, "" for a field that is not.
func field(u *unstructured.Unstructured, path ...string) string {
	if u == nil {
		return "absent"
	}
	v, ok, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprint(v)
}

// patience is how long a test waits for what takes milliseconds. A machine that is busy
// with other things is slow.
const patience = 90 * time.Second

// eventually waits until want is what got returns.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	until(t, what+" is "+want, func() (bool, string) {
		is := got()
		return is == want, is
	})
}

// until waits until ok reports true; it returns what there is, for the failure.
func until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	// Clean-ups wait, too; the test's own context has ended by then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, is := ok()
		if yes {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("want that %s, got %q", what, is)
		case <-tick.C:
		}
	}
}

// everywhere waits until a field has these values on member-1, member-2 and so on.
func everywhere(t *testing.T, kind, ns, name string, want []string, path ...string) {
	t.Helper()
	eventually(t, kind+" "+name, strings.Join(want, " "), func() string {
		var got []string
		for i := range want {
			got = append(got, field(get(t, fmt.Sprintf("member-%d", i+1), kind, ns, name), path...))
		}
		return strings.Join(got, " ")
	})
}

// condition returns a member of a condition, or "".
func condition(u *unstructured.Unstructured, kind, member string) string {
	if u == nil {
		return "absent"
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m[member])
		}
	}
	return ""
}
