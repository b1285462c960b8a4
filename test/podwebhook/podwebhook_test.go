// Package podwebhook tests the injection into pods with a real API server.
package podwebhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/injector"
	"refract.dev/injection/restart"
	"refract.dev/internal/webhook"
	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

// namespaces are the namespaces of users.
var namespaces = []string{"myns", "elsewhere"}

// database is the policy of the proposal's first example, unchanged except for the API group. As in the proposal, the
// port is a number.
const database = `
kind: ServiceInjectionPolicy
apiVersion: refract.dev/v1beta1
metadata: {name: allow-database, namespace: myns}
spec:
  service: db
  selector: {matchLabels: {role: frontend}}
  env: [{name: DB_PORT, value: 6379}]
  volumeMounts: [{mountPath: /cache, name: cache-volume}]
  volumes: [{name: cache-volume, emptyDir: {}}]
`

// website is the pod in the proposal's first example, as database is the policy in it.
const website = `
apiVersion: v1
kind: Pod
metadata:
  name: website
  namespace: myns
  labels: {app: website, role: frontend}
spec:
  containers: [{name: website, image: ecorp/website, ports: [{containerPort: 80}]}]
`

// guestbook is a pod of the ReplicaSet in the proposal's second example. tier is the policy of that example.
const (
	guestbook = `
apiVersion: v1
kind: Pod
metadata: {generateName: frontend-, namespace: myns, labels: {app: guestbook, tier: frontend}}
spec:
  containers:
  - name: php-redis
    image: gcr.io/google_samples/gb-frontend:v3
    resources: {requests: {cpu: 100m, memory: 100Mi}}
    env: [{name: GET_HOSTS_FROM, value: dns}]
    ports: [{containerPort: 80}]
`
	tier = `
kind: ServiceInjectionPolicy
apiVersion: refract.dev/v1beta1
metadata: {name: allow-database-tier, namespace: myns}
spec:
  service: db
  selector: {matchLabels: {tier: frontend}}
  env: [{name: DB_PORT, value: 6379}]
  volumeMounts: [{mountPath: /cache, name: cache-volume}]
  volumes: [{name: cache-volume, emptyDir: {}}]
`
)

// another is the website with a generated name.
var another = changed(website, "name: website\n  namespace", "generateName: website-\n  namespace")

func changed(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// world is a cluster and the injection program that serves it.
type world struct {
	env     *harness.Env
	cfg     *rest.Config
	client  client.WithWatch
	address string
}

func begin(t *testing.T) *world {
	t.Helper()
	w := &world{env: harness.New(t, harness.Topology{CRDs: true})}
	var err error
	if w.cfg, err = w.env.Config("hub"); err != nil {
		t.Fatal(err)
	}
	if w.client, err = harness.ClientFor(w.cfg); err != nil {
		t.Fatal(err)
	}
	addresses, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	w.address = addresses[0]
	return w
}

// serve runs the same parts as `refract run --injection`, and returns a function that stops them.
func (w *world) serve(t *testing.T) (stop func()) {
	t.Helper()
	ctrllog.SetLogger(logr.Discard())
	log := funcr.New(func(prefix, args string) { t.Log(prefix, args) }, funcr.Options{})
	mgr, err := ctrl.NewManager(w.cfg, ctrl.Options{
		Scheme: w.client.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Options{
		Client: w.client, Namespace: corev1alpha1.SystemNamespace, BindAddress: w.address, URL: "https://" + w.address, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(server); err != nil {
		t.Fatal(err)
	}
	served, err := injector.Setup(t.Context(), mgr, injector.Options{
		Server: server, Client: w.client, Namespace: corev1alpha1.SystemNamespace, TrustedAuthors: []string{trusted}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := restart.Setup(mgr, restart.Options{Client: w.client, SystemNamespace: corev1alpha1.SystemNamespace, Disabled: true, Log: log}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("The manager ended: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	harness.Eventually(t, "it is ready", func(context.Context) error { return errors.Join(server.Ready(), served.Ready()) })
	return stop
}

// do runs kubectl and returns its whole output.
func (w *world) do(stdin string, args ...string) (string, error) {
	return w.env.KubectlSays("hub", stdin, args...)
}

// must runs kubectl, which must succeed, and returns its output.
func (w *world) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// create creates a pod, or sends a dry run if args contains it, and returns the resulting pod.
func (w *world) create(t *testing.T, text string, args ...string) *corev1.Pod {
	t.Helper()
	out := w.must(t, text, append([]string{"create", "-o", "json", "-f", "-"}, args...)...)
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(out), pod); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return pod
}

// asks waits until the rules of the webhook configuration have exactly these resources.
func (w *world) asks(t *testing.T, what string, want ...string) {
	t.Helper()
	harness.Eventually(t, what, func(context.Context) error {
		is := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: injector.ConfigurationName}, is); err != nil {
			return err
		}
		var got []string
		for i := range is.Webhooks {
			for _, r := range is.Webhooks[i].Rules {
				got = append(got, r.Resources...)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// injects waits until a dry run of a pod shows the variable DB_PORT or, if want is false, does not show it.
func (w *world) injects(t *testing.T, pod string, want bool) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("DB_PORT is injected: %t", want), func(context.Context) error {
		out, err := w.do(pod, "create", "--dry-run=server", "-o", "json", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if strings.Contains(out, "DB_PORT") != want {
			return errors.New(out)
		}
		return nil
	})
}

func TestInjection(t *testing.T) {
	t.Parallel()
	w := begin(t)
	for _, namespace := range namespaces {
		w.must(t, "", "create", "namespace", namespace)
		harness.Eventually(t, "pods can be created in it", func(context.Context) error {
			return w.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		})
	}
	stop := w.serve(t)
	w.asks(t, "the configuration covers only policies", "serviceinjectionpolicies")
	if pod := w.create(t, website, "--dry-run=server"); len(pod.Annotations) > 0 {
		t.Errorf("A pod without a policy must have no annotations: %v", pod.Annotations)
	}
	w.must(t, database, "apply", "-f", "-")
	w.must(t, tier, "apply", "-f", "-")
	w.asks(t, "it asks about pods", "serviceinjectionpolicies", "pods")
	w.injects(t, another, true)
	w.injects(t, guestbook, true)

	t.Run("Examples", w.examples)
	t.Run("Answers", w.answers)
	t.Run("Debuggers", w.debuggers)
	t.Run("Restored", w.restored)
	t.Run("LastPolicyGoes", w.lastPolicyGoes)
	w.must(t, database, "apply", "-f", "-")
	w.injects(t, another, true)
	stop()
	t.Run("Down", w.down)
}

// examples tests the examples of the proposal.
func (w *world) examples(t *testing.T) {
	p := &refractv1beta1.ServiceInjectionPolicy{}
	out := w.must(t, "", "get", "serviceinjectionpolicy", "allow-database", "-n", "myns", "-o", "json")
	if err := json.Unmarshal([]byte(out), p); err != nil || !strings.Contains(out, `"value": "6379"`) {
		t.Errorf("The number must be stored as text: %v\n%s", err, out)
	}
	port, cache := corev1.EnvVar{Name: "DB_PORT", Value: "6379"}, corev1.VolumeMount{Name: "cache-volume", MountPath: "/cache"}
	cases := map[string]struct {
		pod    string
		env    []corev1.EnvVar
		policy string
	}{
		"Website":   {website, []corev1.EnvVar{port}, "allow-database"},
		"Guestbook": {guestbook, []corev1.EnvVar{{Name: "GET_HOSTS_FROM", Value: "dns"}, port}, "allow-database-tier"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tried := w.create(t, tc.pod, "--dry-run=server")
			pod := w.create(t, tc.pod)
			stored := &corev1.Pod{}
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(pod), stored); err != nil {
				t.Fatal(err)
			}
			for _, pod := range []*corev1.Pod{tried, stored} {
				c := pod.Spec.Containers[0]
				if diff := cmp.Diff(tc.env, c.Env); diff != "" {
					t.Errorf("env: -want, +got:\n%s", diff)
				}
				if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(cache, m) }) {
					t.Errorf("The mount is missing: %v", c.VolumeMounts)
				}
				if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cache-volume" && v.EmptyDir != nil }) {
					t.Errorf("The volume is missing: %v", pod.Spec.Volumes)
				}
				if got := pod.Annotations["serviceinjectionpolicy.k8s.io/db"]; got != tc.policy {
					t.Errorf("The annotation names %q, want %q", got, tc.policy)
				}
			}
		})
	}
}

func (w *world) answers(t *testing.T) {
	const port = "DB_PORT"
	for reason, pod := range map[string]string{
		"The policy is of another namespace.": changed(another, "namespace: myns", "namespace: elsewhere"),
		"It opts out.":                        changed(another, "generateName: website-\n", "generateName: website-\n  annotations: {refract.dev/inject: \"false\"}\n"),
	} {
		if got := w.create(t, pod, "--dry-run=server"); len(got.Spec.Containers[0].Env) > 0 {
			t.Errorf("%s\nThe pod has injected variables: %v", reason, got.Spec.Containers[0].Env)
		}
	}
	conflicting := changed(another, "image: ecorp/website", `image: ecorp/website, env: [{name: DB_PORT, value: "7000"}]`)
	out := w.must(t, conflicting, "create", "--dry-run=server", "-f", "-")
	if !strings.Contains(out, "Warning: ServiceInjectionPolicy allow-database is left out: ") || !strings.Contains(out, port) {
		t.Errorf("A conflict must cause a warning:\n%s", out)
	}
	w.must(t, changed(database, "allow-database", "strict", "service: db", "onConflict: Reject"), "apply", "-f", "-")
	defer w.must(t, "", "delete", "serviceinjectionpolicy", "strict", "-n", "myns")
	harness.Eventually(t, "the pod is rejected", func(context.Context) error {
		out, err := w.do(conflicting, "create", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(out, `admission webhook "pods.injection.refract.dev" denied the request: `) || !strings.Contains(out, port) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if pod := w.create(t, another, "--dry-run=server"); pod.Annotations["serviceinjectionpolicy.k8s.io/no_service"] != "strict" {
		t.Errorf("A pod without a conflict must be accepted: %v", pod.Annotations)
	}
	w.must(t, changed(database, "namespace: myns", "namespace: kube-system"), "apply", "-f", "-")
	defer w.must(t, "", "delete", "serviceinjectionpolicy", "allow-database", "-n", "kube-system")
	if pod := w.create(t, changed(another, "namespace: myns", "namespace: kube-system"), "--dry-run=server"); len(pod.Annotations) > 0 {
		t.Errorf("Pods in kube-system must not be injected: %v", pod.Annotations)
	}
}

// debuggers adds an ephemeral container to an existing pod.
func (w *world) debuggers(t *testing.T) {
	w.must(t, `
kind: ServiceInjectionPolicy
apiVersion: refract.dev/v1beta1
metadata: {name: debug, namespace: myns}
spec: {selector: {}, env: [{name: TERM, value: xterm}], containers: {ephemeralContainers: true, include: ["debugger*"]}}
`, "apply", "-f", "-")
	w.asks(t, "it asks about ephemeral containers", "serviceinjectionpolicies", "pods", "pods/ephemeralcontainers")
	n := 0
	harness.Eventually(t, "a debugger gets its variable", func(context.Context) error {
		n++
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "myns", Name: "website"}, pod); err != nil {
			return err
		}
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: fmt.Sprintf("debugger-%d", n), Image: "busybox"},
		})
		if err := w.client.SubResource("ephemeralcontainers").Update(t.Context(), pod); err != nil {
			return err
		}
		last := pod.Spec.EphemeralContainers[len(pod.Spec.EphemeralContainers)-1]
		if diff := cmp.Diff([]corev1.EnvVar{{Name: "TERM", Value: "xterm"}}, last.Env); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	w.must(t, "", "delete", "serviceinjectionpolicy", "debug", "-n", "myns")
	w.asks(t, "it asks about pods alone", "serviceinjectionpolicies", "pods")
}

// restored changes the webhook configuration so that the API server would not call the webhook. The program must
// restore the configuration.
func (w *world) restored(t *testing.T) {
	for reason, args := range map[string][]string{
		"Deleted.":  {"delete"},
		"Narrowed.": {"patch", "--type=json", "-p", `[{"op":"add","path":"/webhooks/1/matchConditions","value":[{"name":"never","expression":"false"}]}]`},
		"Taken.":    {"patch", "--type=json", "-p", `[{"op":"remove","path":"/webhooks/1"}]`},
	} {
		w.must(t, "", append(args, "mutatingwebhookconfiguration", injector.ConfigurationName)...)
		harness.Eventually(t, "the configuration is restored: "+reason, func(context.Context) error {
			is := &admissionregistrationv1.MutatingWebhookConfiguration{}
			if err := w.client.Get(t.Context(), client.ObjectKey{Name: injector.ConfigurationName}, is); err != nil {
				return err
			}
			if len(is.Webhooks) != 2 || len(is.Webhooks[1].MatchConditions) > 0 {
				return errors.New("it is not")
			}
			return nil
		})
	}
	w.injects(t, another, true)
}

func (w *world) lastPolicyGoes(t *testing.T) {
	w.must(t, "", "delete", "serviceinjectionpolicies", "--all", "-n", "myns")
	w.asks(t, "the configuration covers only policies", "serviceinjectionpolicies")
	w.injects(t, another, false)
}

// down tests requests while no webhook answers.
func (w *world) down(t *testing.T) {
	if pod := w.create(t, guestbook); len(pod.Annotations) > 0 {
		t.Errorf("Without the webhook, a pod must be created without annotations: %v", pod.Annotations)
	}
	out, err := w.do(tier, "apply", "-f", "-")
	if err == nil || !strings.Contains(out, "failed calling webhook") {
		t.Errorf("Without the webhook, writes of policies must fail: %v\n%s", err, out)
	}
	w.must(t, "", "annotate", "serviceinjectionpolicy", "allow-database", "-n", "myns", "refract.dev/rollout-paused=true")
	w.must(t, "", "delete", "serviceinjectionpolicy", "allow-database", "-n", "myns")
}
