// Package node tests Refract with the image and the manifests of a release, on a cluster whose Node runs the pods: see
// test/node/cluster. `make test-node` runs it.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
	"refract.dev/test/node/cluster"
)

// The cluster of all tests, and its administrator's clients.
var (
	node  *cluster.Cluster
	cfg   *rest.Config
	api   client.WithWatch
	typed *kubernetes.Clientset
	// all is the path of the administrator's kubeconfig with a context for each cluster. The current context is the hub.
	all string
)

func TestMain(m *testing.M) {
	cluster.Enter()
	harness.Main(m, cluster.Topology(), func(ctx context.Context, env *harness.Env) (stop func() error, err error) {
		if node, err = cluster.New(env); err != nil {
			return nil, err
		}
		if err := node.Start(ctx); err != nil {
			return node.Keep, err
		}
		if cfg, err = env.Config("hub"); err != nil {
			return node.Keep, err
		}
		if api, err = harness.ClientFor(cfg); err != nil {
			return node.Keep, err
		}
		if all, err = contexts(env); err != nil {
			return node.Keep, err
		}
		typed, err = kubernetes.NewForConfig(cfg)
		return node.Keep, err
	})
}

// part is a test that depends on the results of the previous ones.
type part struct {
	name string
	test func(*testing.T)
}

// TestNode installs Refract and performs the usual operations of administrators. At the end it compares the requests in
// the audit log with Refract's roles.
func TestNode(t *testing.T) {
	if !t.Run("Install", install) {
		t.Fatal("the following parts need the installation")
	}
	for _, p := range []part{
		{"Refused", refused}, {"Inject", inject}, {"Members", members}, {"Disturb", disturb}, {"Rights", rights},
		{"Leave", leave}, {"Manifests", manifestsDeleted}, {"Helm", helm},
	} {
		t.Run(p.name, p.test)
	}
}

// deployments are the Deployments of the three parts of Refract.
var deployments = []string{"refract", "refract-injection", "refract-conversion"}

const system = corev1alpha1.SystemNamespace

// install installs all parts of Refract like an administrator, with an image that the Node has, and checks the result.
func install(t *testing.T) {
	t.Helper()
	if _, err := refract(t, "install", "--propagation", "--injection", "--conversion", "--image", cluster.Images()[0]); err != nil {
		t.Fatal(err)
	}
	for _, name := range deployments {
		rolledOut(t, name)
	}
	for _, user := range users(t, "refract\x00run\x00") {
		if user != "65532" {
			t.Errorf("a program of Refract runs as user %s on the machine, want 65532", user)
		}
	}
}

// users returns the user IDs that the kernel reports for the processes whose command line begins with the text.
func users(t *testing.T, command string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(text), command) {
			continue // The process may have ended.
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(status), "\nUid:\t")
		user, _, _ := strings.Cut(after, "\t")
		out = append(out, user)
	}
	if len(out) < 2*len(deployments) {
		t.Fatalf("want two processes of each Deployment, got %d", len(out))
	}
	return out
}

// refract runs refract as an administrator, and returns its output.
func refract(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary, err := node.Env.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return run(t, binary, args...)
}

// run runs a program as an administrator, and returns its output.
func run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+all, "HOME="+node.Env.Dir, "PATH="+filepath.Join(root(t), "bin")+":"+os.Getenv("PATH"))
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s %s: %.1f s\n%s", filepath.Base(program), strings.Join(args, " "), time.Since(begun).Seconds(), out)
	return string(out), err
}

// root returns the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// kubectl runs kubectl as an administrator, and returns its standard output. It fails the test on an error.
func kubectl(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	out, err := node.Env.Kubectl("hub", manifest, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rolledOut waits until a Deployment of Refract has all of its replicas ready, and no other pods.
func rolledOut(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, name+" is rolled out", func(ctx context.Context) error { return complete(ctx, system, name) })
}

func complete(ctx context.Context, namespace, name string) error {
	d := &appsv1.Deployment{}
	if err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
		return err
	}
	list := &corev1.PodList{}
	if err := api.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return err
	}
	s, want := d.Status, *d.Spec.Replicas
	if len(list.Items) == int(want) && s.ObservedGeneration == d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ReadyReplicas == want {
		return nil
	}
	return fmt.Errorf("its status is %+v; %s", s, states(list))
}

// states describes the phases of pods and the states of their containers.
func states(list *corev1.PodList) string {
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		out = append(out, fmt.Sprintf("%s is %s", p.Name, p.Status.Phase))
		for j := range p.Status.ContainerStatuses {
			text, _ := json.Marshal(p.Status.ContainerStatuses[j].State) //nolint:errchkjson // The value was decoded from JSON.
			out = append(out, string(text))
		}
	}
	return strings.Join(out, " ")
}

// apply applies manifests with NS replaced by the namespace.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	kubectl(t, strings.ReplaceAll(manifest, "NS", namespace), "apply", "--server-side", "-f", "-")
}

// Policies with errors that the schemas do not detect.
const (
	wrongOverride = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: wrong, namespace: default}
spec:
  overrideRules:
  - overriders: {jsonpatch: [{path: /metadata/uid, operator: replace, value: a}]}
`
	wrongInjection = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: wrong, namespace: default}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  volumes: [{name: db, projected: {sources: [{}]}}]
`
	wrongConversion = `
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: wrong}
spec:
  crd: sizes.example.com
  hub: v2
  mode: Serve
  spokes: [{version: v1, fields: [{hub: spec.nope, spoke: spec.size}]}]
`
)

// refused tests that the API server reaches the webhook of each part by its Service, and rejects the requests that the
// webhook rejects.
func refused(t *testing.T) {
	t.Helper()
	kubectl(t, definition, "apply", "--server-side", "-f", "-")
	kubectl(t, "", "wait", "--for=condition=Established", "customresourcedefinition/sizes.example.com", "--timeout=1m")
	for text, manifest := range map[string]string{
		"Forbidden: /metadata/uid may not be overridden": wrongOverride,
		"must have one of secret, configMap":             wrongInjection,
		"spec.spokes[0].fields[0].hub":                   wrongConversion,
	} {
		harness.Eventually(t, text, func(context.Context) error {
			out, err := node.Env.KubectlSays("hub", manifest, "create", "--dry-run=server", "-f", "-")
			if err == nil || !strings.Contains(out, text) {
				return fmt.Errorf("want a rejection with the text, got %w: %s", err, out)
			}
			return nil
		})
	}
}
