// Package live tests with a real API server what becomes of injection policies
// that people write, and of the Services that complete them.
package live

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/hub"
	"refract.dev/internal/injection"
	"refract.dev/internal/playground"
	"refract.dev/internal/webhook"
)

// trusted may have handed out what he may not read.
const trusted = "system:serviceaccount:gitops:applier"

// namespaces are where the tests write. Bob is an author in all of them, who may
// read no Secret; so is trusted.
const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: NAMESPACE}
rules:
- {apiGroups: [refract.dev], resources: [serviceinjectionpolicies], verbs: ["*"]}
- {apiGroups: [""], resources: [services, services/status], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
- {kind: ServiceAccount, namespace: gitops, name: applier}
`

// world is a cluster whose pods are injected.
type world struct {
	client     client.WithWatch
	kubectl    string
	kubeconfig string
	stop       func()
}

func begin(t *testing.T) *world {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	assets, err := playground.Assets("../../../../bin/refract")
	if err != nil {
		t.Fatal(err)
	}
	p, err := playground.Start(t.Context(), playground.Options{Dir: filepath.Join(t.TempDir(), "cluster"), Assets: assets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	w := &world{kubectl: filepath.Join(assets, "kubectl"), kubeconfig: p.Hub().Kubeconfig}
	cfg, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if w.client, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if err := hub.InstallInjectionCRD(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := hub.InstallServiceAdmission(t.Context(), cfg, trusted); err != nil {
		t.Fatal(err)
	}
	address := free(t)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Options{
		Client: w.client, Namespace: corev1alpha1.SystemNamespace, BindAddress: address, URL: "https://" + address, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	injecting, err := injection.Setup(ctx, mgr, injection.Options{
		Server: server, Client: w.client, Namespace: corev1alpha1.SystemNamespace, TrustedAuthors: []string{trusted}, NoRollout: true, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(server); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("The manager ended: %v", err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	eventually(t, "the server is ready", server.Ready)
	eventually(t, "policies are known", injecting.Ready)
	return w
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// place makes the namespace of a test.
func (w *world) place(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:])
	w.must(t, "A namespace of its own.", strings.ReplaceAll(namespaces, "NAMESPACE", name), nil, "apply", "-f", "-")
	w.must(t, "Without one there are no pods, not even to try.", "", nil, "wait", "--for=create", "serviceaccount/default", "-n", name)
	return name
}

// policy is one of a namespace, with the fields of a spec besides the selector.
func policy(namespace, name, spec string) string {
	return fmt.Sprintf("{apiVersion: refract.dev/v1beta1, kind: ServiceInjectionPolicy, metadata: {namespace: %s, name: %s}, "+
		"spec: {selector: {matchLabels: {role: frontend}}, %s}}", namespace, name, spec)
}

// service is one of a namespace, with annotations.
func service(namespace, name, annotations string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {namespace: %s, name: %s, annotations: %s}, spec: {ports: [{port: 6379}]}}",
		namespace, name, annotations)
}

// do runs kubectl and returns all that it prints.
func (w *world) do(stdin string, args ...string) (string, error) {
	cmd := exec.Command(w.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// must runs kubectl, which must succeed and print all of these.
func (w *world) must(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err != nil {
		t.Errorf("%s\nkubectl %s: %v\n%s", reason, strings.Join(args, " "), err, out)
	}
	wantAll(t, reason, out, want)
}

// mustNot runs kubectl, which must fail and print all of these.
func (w *world) mustNot(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err == nil {
		t.Errorf("%s\nkubectl %s must fail:\n%s", reason, strings.Join(args, " "), out)
	}
	wantAll(t, reason, out, want)
}

func wantAll(t *testing.T, reason, out string, want []string) {
	t.Helper()
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("%s\n%q is not in what kubectl prints:\n%s", reason, text, out)
		}
	}
}

// eventually waits until there is no error.
func eventually(t *testing.T, what string, is func() error) {
	t.Helper()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	deadline := time.After(time.Minute)
	for {
		err := is()
		if err == nil {
			return
		}
		select {
		case <-ticks.C:
		case <-deadline:
			t.Fatalf("Waiting until %s: %v", what, err)
		}
	}
}

// read returns a policy as it is stored.
func (w *world) read(t *testing.T, namespace, name string) *refractv1beta1.ServiceInjectionPolicy {
	t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPolicies has policies and Services written by those who may, and those who
// may not.
func TestPolicies(t *testing.T) {
	w := begin(t)
	w.must(t, "Where to try.", strings.ReplaceAll(namespaces, "NAMESPACE", "early"), nil, "apply", "-f", "-")
	eventually(t, "the API server asks about policies", func() error {
		out, err := w.do(policy("early", "number", `env: [{name: A, value: 1}]`), "create", "--dry-run=server", "-o", "yaml", "-f", "-")
		if err != nil || !strings.Contains(out, `value: "1"`) {
			return fmt.Errorf("a number stays one: %w: %s", err, out)
		}
		if out, err = w.do(policy("early", "broken", `env: [{name: "A=B"}]`), "create", "--dry-run=server", "-f", "-"); err == nil {
			return fmt.Errorf("a broken policy is taken: %s", out)
		}
		return nil
	})
	eventually(t, "the API server heeds the policy about Services", func() error {
		if out, err := w.do(service("early", "db", `{refract.dev/env-from: secret/a}`), "create", "--dry-run=server", "--as=bob", "-f", "-"); err == nil {
			return fmt.Errorf("bob's Service is taken: %s", out)
		}
		return nil
	})
	t.Run("Numbers", w.numbers)
	t.Run("Refusals", w.refusals)
	t.Run("Warnings", w.warnings)
	t.Run("Secrets", w.secrets)
	t.Run("Finalizers", w.finalizers)
	t.Run("Services", w.services)
	t.Run("Implicit", w.implicit)
	w.stop()
	t.Run("Down", w.down)
}
