package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/names"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/poll"
	"refract.dev/internal/rescue"
)

// cluster is a controller, together with a fake API server and a fake webhook.
type cluster struct {
	*controller

	t       *testing.T
	scheme  *runtime.Scheme
	client  client.Client
	webhook func() *inject.Set // The policies that the webhook injects; nil if it does not respond.

	mu      sync.Mutex
	clock   time.Time
	evicted []string
	budget  error
	refused int // The number of evictions that the PodDisruptionBudget has refused.
	probed  []*unstructured.Unstructured
}

func newCluster(t *testing.T, manifests ...string) *cluster {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, refractv1beta1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	cl := &cluster{t: t, scheme: s, clock: noon}
	var objects []client.Object
	for _, text := range manifests {
		u := manifest(t, text)
		u.SetNamespace("shop")
		u.SetUID(types.UID(u.GetKind() + "/" + u.GetName()))
		u.SetGeneration(1)
		u.SetCreationTimestamp(metav1.NewTime(noon.Add(-time.Hour)))
		objects = append(objects, u)
	}
	fakes := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&refractv1beta1.ServiceInjectionPolicy{}).WithInterceptorFuncs(interceptor.Funcs{
		Create:            cl.create,
		SubResourceCreate: cl.evict,
	}).Build()
	cl.client = fakes
	cl.takeOver()
	cl.webhook = func() *inject.Set { return cl.namespace("shop").policies.set }
	return cl
}

// takeOver replaces the controller by the one of another replica, which remembers nothing.
func (c *cluster) takeOver() {
	c.t.Helper()
	c.controller = newController(Options{Client: c.client, SystemNamespace: "refract-system", Log: logr.Discard(), Now: c.time}, nil, events.NewFakeRecorder(1000))
	c.controller.queue = newQueue()
	c.t.Cleanup(c.controller.queue.ShutDown)
	c.look()
}

// manifest decodes an object as a client does.
func manifest(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		tb.Fatal(err)
	}
	return u
}

func (c *cluster) time() time.Time { return c.clock }

// create answers a dry run as an API server that calls the webhook.
func (c *cluster) create(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	o := (&client.CreateOptions{}).ApplyOptions(opts)
	if !slices.Equal(o.DryRun, []string{metav1.DryRunAll}) {
		return errors.New("nothing but dry runs is to be created")
	}
	u := obj.(*unstructured.Unstructured)
	c.mu.Lock()
	c.probed = append(c.probed, u.DeepCopy())
	c.mu.Unlock()
	if c.webhook == nil {
		return nil
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		return err
	}
	result, err := c.webhook().Inject(text)
	if err != nil {
		return err
	}
	record, err := json.Marshal(inject.Record{Version: 1, Hash: result.Hash})
	if err != nil {
		return err
	}
	annotations := maps.Clone(u.GetAnnotations())
	if result.Hash != "" {
		annotations[refractv1beta1.InjectionAnnotation] = string(record)
	}
	u.SetAnnotations(annotations)
	return nil
}

func (c *cluster) evict(_ context.Context, _ client.Client, sub string, obj, body client.Object, _ ...client.SubResourceCreateOption) error {
	eviction, ok := body.(*policyv1.Eviction)
	if sub != "eviction" || !ok || eviction.DeleteOptions.Preconditions.UID == nil {
		return fmt.Errorf("want an eviction of one certain pod, got %s %T", sub, body)
	}
	if c.budget != nil {
		c.refused++
		return c.budget
	}
	c.evicted = append(c.evicted, obj.GetName())
	return nil
}

// look updates the controller's view to the present objects.
func (c *cluster) look() {
	c.t.Helper()
	show(c, policyResource.GroupVersion().WithKind(refractv1beta1.KindServiceInjectionPolicy).Kind, "refract.dev/v1beta1", c.view.policies)
	show(c, kindPod, "v1", c.view.pods)
	for _, t := range workloadTypes {
		show(c, t.kind.Kind, t.resource.GroupVersion().String(), c.view.workloads[t.kind])
	}
}

func show[T extract](c *cluster, kind, apiVersion string, into *store[T]) {
	c.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	if err := c.client.List(c.t.Context(), list); err != nil {
		c.t.Fatal(err)
	}
	items := make([]any, 0, len(list.Items))
	for i := range list.Items {
		items = append(items, &list.Items[i])
	}
	if err := into.Replace(items, ""); err != nil {
		c.t.Fatal(err)
	}
}

// reconcileAll updates the view and reconciles the namespace this many times.
func (c *cluster) reconcileAll(times int) {
	c.t.Helper()
	for range times {
		c.look()
		if _, err := c.reconcile(c.t.Context(), "shop"); err != nil {
			c.t.Fatal(err)
		}
		c.clock = c.clock.Add(time.Second)
	}
}

func (c *cluster) policy(name string) *refractv1beta1.ServiceInjectionPolicy {
	c.t.Helper()
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := c.client.Get(c.t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) rolledOut() string {
	c.t.Helper()
	condition := conditionOf(&c.policy("db").Status, refractv1beta1.ConditionRolledOut)
	return string(condition.Status) + " " + condition.Reason
}

func (c *cluster) templateHash() string {
	c.t.Helper()
	d := &appsv1.Deployment{}
	if err := c.client.Get(c.t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, d); err != nil {
		c.t.Fatal(err)
	}
	return d.Spec.Template.Annotations[refractv1beta1.HashAnnotation]
}

const (
	policyText = `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: db}
spec:
  selector: {matchLabels: {role: web}}
  env: [{name: DB_PORT, value: "6379"}]
`
	secretPolicyText = policyText + `  envFrom: [{secretRef: {name: cred}}]
`
	deploymentText = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {role: web}}
  template: {metadata: {labels: {role: web}, annotations: {team: a}}, spec: {serviceAccountName: robot, containers: [{name: c, image: web}]}}
status: {observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas: 1}
`
	replicaSetText = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web, controller: true}]}
`
	podText = `
apiVersion: v1
kind: Pod
metadata: {name: web-1-a, labels: {role: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: ReplicaSet/web-1, controller: true}]}
spec: {containers: [{name: c, image: web}]}
status: {phase: Running, conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-05-01T11:00:00Z"}]}
`
)

func TestReconcileAnnotates(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.reconcileAll(1)

	want, err := c.namespace("shop").policies.set.Inject([]byte(`{"metadata":{"labels":{"role":"web"}},"spec":{"containers":[{"name":"c"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.templateHash(); got != want.Hash {
		t.Errorf("hash in the template: want %q, got %q", want.Hash, got)
	}
	d := &appsv1.Deployment{}
	if err := c.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	if d.Spec.Template.Annotations["team"] != "a" || d.Spec.Template.Spec.Containers[0].Image != "web" {
		t.Errorf("the rest of the template was changed: %v", d.Spec.Template)
	}
	if got := c.rolledOut(); got != "False Canary" {
		t.Errorf("RolledOut: want False Canary, got %s", got)
	}
	if got := c.policy("db").Status.Rollout.Current; !slices.Equal(got, []string{"Deployment/web"}) {
		t.Errorf("current: want Deployment/web, got %v", got)
	}
	probe := c.probed[0]
	account, _, _ := unstructured.NestedString(probe.Object, "spec", "serviceAccountName")
	if probe.GetNamespace() != "shop" || probe.GetGenerateName() == "" || account != "robot" ||
		probe.GetAnnotations()[refractv1beta1.HashAnnotation] != want.Hash || probe.GetLabels()["role"] != "web" {
		t.Errorf("the probe is no pod as its ReplicaSet would make it: %v", probe.Object)
	}
}

func TestReconcileWritesOnlyWhatChanged(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.reconcileAll(3) // In this test the Deployment has no controller, so its pods do not change.
	before := c.policy("db").ResourceVersion
	c.reconcileAll(3)
	if after := c.policy("db").ResourceVersion; after != before {
		t.Errorf("the status was written again, though nothing had changed: %s, then %s", before, after)
	}
}

// TestRefusedNames: API servers and webhooks name the rejected pod in their messages. Each try has another generated
// name, but the status is written only once.
func TestRefusedNames(t *testing.T) {
	long := strings.Repeat("long-", 13)
	for name, tc := range map[string]struct{ reason, base, text, want string }{
		"APIServer": {"The API server names an invalid pod like this.", "web-", `Pod "web-%s" is invalid: spec.hostname: Invalid value`, `Pod "web-" is invalid: spec.hostname: Invalid value`},
		"Webhook":   {"Webhooks name a rejected pod like this.", "web-", "resource Pod/shop/web-%s was blocked (web-%[1]s)", "resource Pod/shop/web- was blocked (web-)"},
		"Long":      {"A generated name has at most 63 characters.", long, `pods "` + long[:58] + `%s" is forbidden`, `pods "` + long[:58] + `" is forbidden`},
		"Others":    {"Other names stay.", "web-", "exceeded quota: web-quota, web-7d4b9c-%[1]s, my-web-bcdfghj", "exceeded quota: web-quota, web-7d4b9c-%[1]s, my-web-bcdfghj"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, suffix := range []string{"x7b2k", "zzzzz"} {
				want := strings.ReplaceAll(tc.want, "%[1]s", suffix)
				if got := unnamed(fmt.Sprintf(tc.text, suffix), tc.base); got != want {
					t.Errorf("%s\nwant %s\ngot  %s", tc.reason, want, got)
				}
			}
		})
	}

	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	under, ok := c.client.(client.WithWatch)
	if !ok {
		t.Fatal("want a client that can be watched")
	}
	tries := 0
	c.controller.preflight.client = interceptor.NewClient(under, interceptor.Funcs{Create: func(
		_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption,
	) error {
		tries++
		return fmt.Errorf("Pod %q is invalid: spec.hostname: Invalid value", names.SimpleNameGenerator.GenerateName(obj.GetGenerateName()))
	}})
	c.reconcileAll(3)
	writes, before := c.statuses(func() error { return nil }), tries
	c.reconcileAll(int(3 * lastLook / time.Second))
	if *writes != 0 || tries == before {
		t.Errorf("want the pod tried again, and nothing written, got %d tries and %d writes: %s", tries-before, *writes, c.policy("db").Status.Rollout.Message)
	}
}

// statuses counts the writes of statuses. They fail if refuse returns an error.
func (c *cluster) statuses(refuse func() error) (writes *int) {
	c.t.Helper()
	under, ok := c.client.(client.WithWatch)
	if !ok {
		c.t.Fatal("want a client that can be watched")
	}
	writes = new(int)
	c.controller.applier.client = interceptor.NewClient(under, interceptor.Funcs{SubResourceApply: func(
		ctx context.Context, to client.Client, _ string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
	) error {
		*writes++
		if err := refuse(); err != nil {
			return err
		}
		return to.Status().Apply(ctx, obj, opts...)
	}})
	return writes
}

// TestReconcileSaysBeforeItActs: before a workload is touched, the statuses name it, so that a restart loses no
// progress. If the statuses cannot be written, no workload is touched.
func TestReconcileSaysBeforeItActs(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	refuse := errors.New("no answer")
	c.statuses(func() error { return refuse })
	for range 3 {
		c.look()
		if _, err := c.reconcile(t.Context(), "shop"); !errors.Is(err, refuse) {
			t.Errorf("reconcile(): want %v, so that it is tried again, got %v", refuse, err)
		}
		c.clock = c.clock.Add(time.Second)
	}
	if got := c.templateHash(); got != "" {
		t.Errorf("while statuses cannot be written: want nothing touched, got hash %s", got)
	}
	refuse = nil
	c.reconcileAll(2)
	if got := c.templateHash(); got == "" {
		t.Error("when they can: want the Deployment rolled, got it untouched")
	}
}

// TestReconcileKnowsWhatItWrote: after a write, the view still has the earlier status for some time. During this time
// the controller uses the written status, and does not write it again.
func TestReconcileKnowsWhatItWrote(t *testing.T) {
	c := newCluster(t, policyText)
	writes := c.statuses(func() error { return nil })
	for range 3 {
		if _, err := c.reconcile(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		c.clock = c.clock.Add(time.Second)
	}
	if *writes != 1 {
		t.Errorf("want the status written once, as the cache is behind, got %d times", *writes)
	}
}

// TestReconcileRestoredCluster: a cluster that is restored from a backup uses versions and generations again, and the
// controller may miss those in between. It must not use a cached result for other content with the same version.
func TestReconcileRestoredCluster(t *testing.T) {
	type known struct{ Hash, Pod, Holds string }
	texts := []string{policyText, deploymentText, replicaSetText, podText}
	gathered := func(c *cluster, ns *namespaceState) (k known) {
		s := c.gatherer.gather(t.Context(), ns)
		for _, p := range s.policies {
			k.Hash += p.hash
		}
		for _, g := range s.groups {
			k.Holds += fmt.Sprint(g.prospect.holds)
			for _, p := range g.pods {
				k.Pod += fmt.Sprint(p.status.verdicts)
			}
		}
		return k
	}
	for name, tc := range map[string]struct{ reason, was, is string }{
		"Policy": {
			reason: "the policy's hash and the stale pods are those of its present content",
			was:    `value: "6379"`, is: `value: "6380"`,
		},
		"Template": {
			reason: "the items of new pods depend on the present template",
			was:    "template: {metadata: {labels: {role: web}", is: "template: {metadata: {labels: {role: other}",
		},
		"Pod": {
			reason: "a pod with a conflicting variable of its own is skipped",
			was:    "spec: {containers: [{name: c, image: web}]}\n", is: "spec: {containers: [{name: c, image: web, env: [{name: DB_PORT, value: own}]}]}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, other := newCluster(t, texts...), make([]string, len(texts))
			for i, text := range texts {
				other[i] = strings.ReplaceAll(text, tc.was, tc.is)
			}
			before := gathered(c, c.namespace("shop"))
			c.view = newCluster(t, other...).view // Both fake API servers begin with the same resource versions.
			c.gatherer.view = c.view
			want := gathered(c, newNamespaceState("shop"))
			if want == before {
				t.Fatalf("want a change, got %v before and after", want)
			}
			if diff := cmp.Diff(want, gathered(c, c.namespace("shop"))); diff != "" {
				t.Errorf("%s: what a replica knows that has just started (-), and one that was there before (+):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestStoreTells: each created, changed or deleted object triggers a reconciliation of its namespace.
func TestStoreTells(t *testing.T) {
	named := func(namespace string) *unstructured.Unstructured {
		u := manifest(t, podText)
		u.SetNamespace(namespace)
		u.SetUID("u")
		return u
	}
	cases := map[string]struct {
		reason string
		before []any
		change func(*store[*pod]) error
		want   []string
	}{
		"Added":       {"A new object triggers a reconciliation.", nil, func(s *store[*pod]) error { return s.Add(named("shop")) }, []string{"shop"}},
		"Updated":     {"A changed object triggers a reconciliation.", []any{named("shop")}, func(s *store[*pod]) error { return s.Update(named("shop")) }, []string{"shop"}},
		"Deleted":     {"A deleted object triggers a reconciliation.", []any{named("shop")}, func(s *store[*pod]) error { return s.Delete(named("shop")) }, []string{"shop"}},
		"ListedAgain": {"A list may have missed events of deleted and new objects.", []any{named("shop")}, func(s *store[*pod]) error { return s.Replace([]any{named("bank")}, "") }, []string{"bank", "shop"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			s := newStore(logr.Discard(), func(namespace string) { got = append(got, namespace) }, readPod)
			if err := s.Replace(tc.before, ""); err != nil {
				t.Fatal(err)
			}
			got = nil
			if err := tc.change(s); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReconcileNeedsTheSecret(t *testing.T) {
	c := newCluster(t, secretPolicyText, deploymentText, replicaSetText, podText)
	c.reconcileAll(2)
	if got := c.templateHash(); got != "" {
		t.Errorf("without the Secret: want nothing touched, got hash %s", got)
	}
	if got := c.rolledOut(); got != "False Blocked" {
		t.Errorf("without the Secret: want False Blocked, got %s", got)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "cred", "namespace": "shop"}}}
	c.webhookless(func() { c.mustCreate(secret) })
	c.reconcileAll(int(lastLook/time.Second) + 1)
	if got := c.templateHash(); got == "" {
		t.Error("with the Secret: want the Deployment rolled, got it untouched")
	}
}

// mustCreate creates an object in the fake API server, without the interceptor for dry runs.
func (c *cluster) mustCreate(obj *unstructured.Unstructured) {
	c.t.Helper()
	if err := c.client.Apply(c.t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("test")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) webhookless(do func()) {
	webhook := c.webhook
	c.webhook = nil
	do()
	c.webhook = webhook
}

func TestReconcileNeedsTheWebhook(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.webhookless(func() { c.reconcileAll(2) })
	if got := c.templateHash(); got != "" {
		t.Errorf("without the webhook: want nothing touched, got hash %s", got)
	}
	if got := c.policy("db").Status.Rollout; got.Phase != refractv1beta1.PhaseBlocked || !strings.Contains(got.Message, "the webhook does not answer") {
		t.Errorf("without the webhook: want Blocked and why, got %s %s", got.Phase, got.Message)
	}
	c.reconcileAll(4)
	if got := c.templateHash(); got == "" {
		t.Error("with the webhook: want the Deployment rolled, got it untouched")
	}
}

func TestReconcileDisabled(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.gatherer.disabled = true
	c.reconcileAll(2)
	if got := c.templateHash(); got != "" || c.rolledOut() != "False Disabled" || c.policy("db").Status.Stale != 1 {
		t.Errorf("want the counts and nothing touched, got hash %q, %s, %d stale", got, c.rolledOut(), c.policy("db").Status.Stale)
	}
}

func TestReconcileEvicts(t *testing.T) {
	bare := strings.Replace(replicaSetText, "name: web-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web, controller: true}]", "name: web-1", 1) +
		`spec: {replicas: 1, template: {metadata: {labels: {role: web}}, spec: {containers: [{name: c}]}}}
status: {observedGeneration: 1, replicas: 1, availableReplicas: 1}
`
	for name, tc := range map[string]struct {
		reason          string
		replicaSet, pod string
	}{
		"Ready": {
			reason:     "The pauses between refused evictions double, from two seconds: the tries begin in seconds 1, 3, 7 and 15.",
			replicaSet: bare, pod: podText,
		},
		"Crashes": {
			reason:     "A budget may also refuse the eviction of a pod that is not ready. The pauses are the same.",
			replicaSet: strings.Replace(bare, "availableReplicas: 1", "availableReplicas: 0", 1),
			pod: strings.NewReplacer(`"True"`, `"False"`, "phase: Running", "phase: Running, containerStatuses: "+
				"[{name: c, restartCount: 5, state: {waiting: {reason: CrashLoopBackOff}}}]").Replace(podText),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, policyText, tc.replicaSet, tc.pod)
			c.budget = apierrors.NewTooManyRequests("the budget allows none", 0)
			c.reconcileAll(4)
			if got := c.policy("db").Status.Workloads; len(got) != 1 || got[0].Reason != "EvictionRefused" {
				t.Errorf("while the budget allows none: want EvictionRefused, got %v", got)
			}
			before := c.policy("db").ResourceVersion
			c.reconcileAll(20)
			if after := c.policy("db").ResourceVersion; after != before {
				t.Errorf("each try has the status written: %s, then %s", before, after)
			}
			if c.refused != 4 {
				t.Errorf("%s\nin 24 seconds: want 4 evictions tried, got %d", tc.reason, c.refused)
			}
			c.budget = nil
			c.reconcileAll(60)
			if !slices.Equal(c.evicted, []string{"web-1-a"}) {
				t.Errorf("when it does: want the pod evicted once, got %v", c.evicted)
			}
		})
	}
}

// TestTouchKeepsContents: a second touch of a workload keeps the contents of the first. The second touch must not
// modify the map of the first, because decisions share this map.
func TestTouchKeepsContents(t *testing.T) {
	for _, victim := range []*pod{nil, {head: head{name: "web-1-a", uid: "Pod/web-1-a"}}} {
		c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
		g := owner("Deployment/web")
		ns := c.namespace("shop")
		before := map[string]string{"a": "1", "b": "1"}
		ns.workloads = map[types.UID]workloadState{g.ref.uid: {contents: before}}
		touched := touch{group: g, victim: victim, policies: []string{"b", "c"}, contents: map[string]string{"b": "2", "c": "1"}}
		if err := c.applier.touch(t.Context(), ns, touched); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2", "c": "1"}, ns.workloads[g.ref.uid].contents); diff != "" {
			t.Errorf("evicted: %t\ncontents: -want, +got:\n%s", victim != nil, diff)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "1"}, before); diff != "" {
			t.Errorf("evicted: %t\nwhat decisions share was changed: -want, +got:\n%s", victim != nil, diff)
		}
	}
}

// TestEvictionKeepsNumber: the replacement of a pod is still missing when the next one is evicted because it is not ready.
func TestEvictionKeepsNumber(t *testing.T) {
	c := newCluster(t, policyText)
	g := owner("CloneSet/c", pods(1, "db Stale"))
	ns := c.namespace("shop")
	ns.workloads = map[types.UID]workloadState{g.ref.uid: {pods: 2}}
	if err := c.applier.touch(t.Context(), ns, touch{group: g, victim: g.pods[0].pod, policies: []string{"db"}}); err != nil {
		t.Fatal(err)
	}
	if got := ns.workloads[g.ref.uid].pods; got != 2 {
		t.Errorf("want 2 pods before it counts as complete, got %d", got)
	}
}

func TestReconcileForgetsResume(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.reconcileAll(2)
	p := c.policy("db")
	p.Annotations = map[string]string{refractv1beta1.ResumeAnnotation: p.Status.Hash, "other": "stays"}
	if err := c.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	c.reconcileAll(1)
	if diff := cmp.Diff(map[string]string{"other": "stays"}, c.policy("db").Annotations); diff != "" {
		t.Errorf("annotations: -want, +got:\n%s", diff)
	}
}

func TestReconcileInvalidPolicy(t *testing.T) {
	bad := strings.NewReplacer("name: db", "name: bad", "matchLabels: {role: web}", "matchExpressions: [{key: role, operator: Foo}]").Replace(policyText)
	c := newCluster(t, policyText, bad, deploymentText, replicaSetText, podText)
	c.reconcileAll(1)
	got := conditionOf(&c.policy("bad").Status, refractv1beta1.ConditionAccepted)
	if got.Status != metav1.ConditionFalse || got.Reason != "InvalidPolicy" || !strings.Contains(got.Message, "Foo") {
		t.Errorf("the bad policy: want it not accepted, and why, got %v", got)
	}
	if c.templateHash() == "" {
		t.Error("the other policy: want it in effect, got nothing touched")
	}
}

// TestReconcileUnreadablePolicy: an API server rejects the status for an object that violates its schema. The write is
// not retried, and other policies are not affected.
func TestReconcileUnreadablePolicy(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	bad := manifest(t, strings.NewReplacer("name: db", "name: bad", "{matchLabels: {role: web}}", "everything").Replace(policyText))
	bad.SetNamespace("shop")
	authored, err := readAuthored(bad)
	if err != nil {
		t.Fatal(err)
	}
	c.applier.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, cl client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			if named, ok := o.(interface{ GetName() *string }); ok && *named.GetName() == "bad" {
				return apierrors.NewInternalError(errors.New("failed to create typed live object"))
			}
			return cl.SubResource(sub).Apply(ctx, o, opts...)
		},
	})
	if err := c.view.policies.Add(authored); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reconcile(t.Context(), "shop"); err != nil {
		t.Errorf("want it not to be tried again, got %v", err)
	}
	if c.templateHash() == "" {
		t.Error("the other policy: want it in effect, got nothing touched")
	}
}

// TestReconcilePanics: a panic affects only the object that causes it, and is reported. All other work continues.
func TestReconcilePanics(t *testing.T) {
	cases := map[string]struct {
		reason  string
		stumble func(*cluster)
		want    string
	}{
		"Probe": {"After a panic in a dry run, only that workload waits.", func(c *cluster) {
			c.webhook = func() *inject.Set { panic("oh") }
		}, "Blocked: Deployment/web: InternalError: trying out a pod: Refract stumbled"},
		"Decision": {"After a panic in the decision, all policies of the namespace stop.", func(c *cluster) {
			calls := 0
			c.gatherer.now = func() time.Time {
				if calls++; calls == 1 {
					panic("oh")
				}
				return noon
			}
		}, "InternalError: rollout: Refract stumbled"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
			tc.stumble(c)
			if _, err := c.rescued(t.Context(), "shop"); err != nil && !rescue.Is(err) {
				t.Fatal(err)
			}
			got := conditionOf(&c.policy("db").Status, refractv1beta1.ConditionRolledOut)
			if said := got.Reason + ": " + got.Message; got.Status != metav1.ConditionFalse || !strings.HasPrefix(said, tc.want) {
				t.Errorf("%s\nwant RolledOut False, %q, got %s, %q", tc.reason, tc.want, got.Status, said)
			}
			if c.templateHash() != "" {
				t.Error("want nothing touched")
			}
		})
	}
}

func TestReconcileExcludedNamespace(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.gatherer.excluded["shop"] = true
	c.reconcileAll(1)
	got := conditionOf(&c.policy("db").Status, refractv1beta1.ConditionAccepted)
	if got.Reason != "NamespaceExcluded" || c.policy("db").Status.Matched != 0 {
		t.Errorf("want the policy not accepted, and nothing matched, got %v and %d", got, c.policy("db").Status.Matched)
	}
}

func TestReconcileForgetsNamespace(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	c.reconcileAll(1)
	if err := c.client.Delete(t.Context(), c.policy("db")); err != nil {
		t.Fatal(err)
	}
	c.reconcileAll(1)
	if len(c.namespaces) != 0 || len(c.census.namespaces) != 0 {
		t.Errorf("want nothing remembered of a namespace without policies, got %v and %v", c.namespaces, c.census.namespaces)
	}
}

// TestReconcileKeepsEvictions: a pod was evicted, and its replacement does not exist yet. Meanwhile a user deletes the
// policy and creates it again.
func TestReconcileKeepsEvictions(t *testing.T) {
	set := strings.NewReplacer("apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web", "apiVersion: v1, kind: Service, name: clone, uid: Service/clone").Replace(replicaSetText)
	c := newCluster(t, policyText, podText, strings.Replace(podText, "web-1-a", "web-1-b", 1), set, `{apiVersion: v1, kind: Service, metadata: {name: clone}}`)
	c.reconcileAll(2)
	if err := c.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a"}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.client.Delete(t.Context(), c.policy("db")); err != nil {
			t.Fatal(err)
		}
		c.reconcileAll(1)
		again := manifest(t, policyText)
		again.SetNamespace("shop")
		c.mustCreate(again)
		c.reconcileAll(5)
		if !slices.Equal(c.evicted, []string{"web-1-a"}) {
			t.Fatalf("want no further pod evicted before there is another in its place, got %v", c.evicted)
		}
	}
	if err := c.client.Delete(t.Context(), c.policy("db")); err != nil {
		t.Fatal(err)
	}
	c.reconcileAll(1)
	c.clock = c.clock.Add(DefaultPatience)
	c.reconcileAll(1)
	if len(c.namespaces) != 0 {
		t.Errorf("want it forgotten in the end, got %v", c.namespaces)
	}
}

// TestReconcileTakesOver: a pod of an owner of an unknown kind was evicted, and there is no other in its place yet. The
// replica that evicted it ends.
func TestReconcileTakesOver(t *testing.T) {
	const clone = "Service/clone"
	set := strings.NewReplacer("apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web",
		"apiVersion: v1, kind: Service, name: clone, uid: Service/clone").Replace(replicaSetText)
	second := strings.Replace(podText, "web-1-a", "web-1-b", 1)
	injected := strings.NewReplacer("image: web", `image: web, env: [{name: DB_PORT, value: "6379"}]`).Replace(second)
	for name, tc := range map[string]struct {
		reason string
		other  []string // The other pod.
		refuse bool     // Whether trial pods are refused.
		lost   bool     // Whether the answer to the eviction was lost, and the same replica goes on.
	}{
		"Stale": {
			reason: "The next pod is evicted when the owner has as many pods as before.",
			other:  []string{second},
		},
		"Refused": {
			reason: "The owner keeps its place while the next pod cannot be evicted either.",
			other:  []string{second}, refuse: true,
		},
		"Injected":   {reason: "The other pod has everything, and the owner is not available.", other: []string{injected}},
		"None":       {reason: "No pod names the owner, which exists."},
		"AnswerLost": {reason: "The pod was evicted, though the answer was an error.", other: []string{second}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, append([]string{policyText, podText, set, `{apiVersion: v1, kind: Service, metadata: {name: clone}}`}, tc.other...)...)
			if tc.lost {
				c.budget = errors.New("the connection was lost")
				c.look()
				if _, err := c.reconcile(t.Context(), "shop"); !errors.Is(err, c.budget) {
					t.Fatalf("want the error of the eviction, got %v", err)
				}
				c.budget = nil
			} else {
				c.reconcileAll(2)
				if !slices.Equal(c.evicted, []string{"web-1-a"}) {
					t.Fatalf("want the first pod evicted, got %v", c.evicted)
				}
				c.takeOver()
			}
			c.evicted = nil
			if err := c.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1-a"}}); err != nil {
				t.Fatal(err)
			}
			if tc.refuse {
				c.webhook = nil
			}
			c.reconcileAll(2)
			c.clock = c.clock.Add(2 * lag)
			c.reconcileAll(3)
			rollout := c.policy("db").Status.Rollout
			if got := rollout.Current; len(c.evicted) > 0 || rollout.Done > 0 || !slices.Equal(got, []string{clone}) {
				t.Errorf("%s\nwant no pod evicted, no owner done and %s in progress, got %v, %d and %v", tc.reason, clone, c.evicted, rollout.Done, got)
			}
		})
	}
}

// TestReverted: the workload's owner removes the annotation after every write.
func TestReverted(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	written := 0
	for range 90 {
		c.reconcileAll(1)
		if c.templateHash() == "" {
			continue
		}
		written++
		d := &appsv1.Deployment{}
		if err := c.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, d); err != nil {
			t.Fatal(err)
		}
		delete(d.Spec.Template.Annotations, refractv1beta1.HashAnnotation)
		d.Generation++
		if err := c.client.Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		d.Status.ObservedGeneration = d.Generation // The controller restores the former pods.
		if err := c.client.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if written != 3 {
		t.Errorf("in 90 seconds: want it written at once, once more, and after a minute, got %d times", written)
	}
	if got := c.rolledOut(); got != "False OwnerReverts" {
		t.Errorf("RolledOut: want False OwnerReverts, got %s", got)
	}
}

// TestStrangers: the pods have an owner of an unknown kind, which has a controller itself.
func TestStrangers(t *testing.T) {
	set := strings.NewReplacer("apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web", "apiVersion: v1, kind: Service, name: clone, uid: Service/clone").Replace(replicaSetText)
	clone := `{apiVersion: v1, kind: Service, metadata: {name: clone, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: top, uid: ConfigMap/top, controller: true}]}}`
	top := `{apiVersion: v1, kind: ConfigMap, metadata: {name: top, annotations: {refract.dev/rollout: "false"}}}`
	c := newCluster(t, policyText, podText, set, clone, top)
	c.reconcileAll(2)
	want := []refractv1beta1.WorkloadStatus{{
		Kind: "ConfigMap", Name: "top", Pods: 1, Reason: "WaitingForOwner",
		Message: `its annotation refract.dev/rollout is "false": its owner recreates its pods`,
	}}
	if diff := cmp.Diff(want, c.policy("db").Status.Workloads); diff != "" {
		t.Errorf("workloads: -want, +got:\n%s", diff)
	}

	free := newCluster(t, policyText, podText, set, clone)
	free.reconcileAll(2)
	if !slices.Equal(free.evicted, []string{"web-1-a"}) {
		t.Errorf("want its pod evicted, got %v", free.evicted)
	}
	if probe := free.probed[0]; probe.GetGenerateName() != "web-1-a-" || probe.GetUID() != "" {
		t.Errorf("the probe is no new pod: %v", probe.Object)
	}
}

// TestUnreadOwners: an owner of an unknown kind cannot be read, so it may have opted out.
func TestUnreadOwners(t *testing.T) {
	const (
		leaves  = `, annotations: {refract.dev/rollout: "false"}`
		says    = "its annotation refract.dev/rollout is \"false\": its owner recreates its pods"
		blocked = "Unreadable: the annotations of Service/clone cannot be read: "
	)
	services := schema.GroupResource{Resource: "services"}
	denied := apierrors.NewForbidden(services, "clone", errors.New("no right"))
	missing := &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Service"}, SearchedVersions: []string{"v1"}}
	unserved := apierrors.NewGenericServerResponse(404, "get", services, "clone", "404 page not found", 0, true)
	cases := map[string]struct {
		reason string
		owner  string // Additional metadata.
		read   bool   // It was read before.
		err    error
		failed []string // The workloads in the status while the owner cannot be read.
		after  []string // The workloads in the status when it can be read again.
		evict  []string // The pods that are evicted after that.
	}{
		"AnswerIsLost": {
			reason: "After one lost answer, no pod is evicted.",
			owner:  leaves, err: io.ErrUnexpectedEOF,
			failed: []string{"Service/clone Blocked " + blocked + "unexpected EOF"}, after: []string{"Service/clone WaitingForOwner " + says},
		},
		"LostAfterItWasRead": {
			reason: "The result of an earlier read remains valid.",
			owner:  leaves, read: true, err: io.ErrUnexpectedEOF,
			failed: []string{"Service/clone WaitingForOwner " + says}, after: []string{"Service/clone WaitingForOwner " + says},
		},
		"Forbidden": {
			reason: "With the permission to read the owner, the rollout continues on its own.",
			err:    denied,
			failed: []string{"Service/clone Blocked " + blocked + denied.Error()}, evict: []string{"web-1-a"},
			after: []string{"Service/clone Rolling 1 of 1 pods are ready"},
		},
		"TypeIsNotThere": {
			reason: "Without its type, the owner may have opted out before, and its pods would not be replaced.",
			owner:  leaves, err: missing,
			failed: []string{"Service/clone Blocked " + blocked + missing.Error()}, after: []string{"Service/clone WaitingForOwner " + says},
		},
		"VersionIsNotServed": {
			reason: "The owner may exist in another version.",
			owner:  leaves, err: unserved,
			failed: []string{"Service/clone Blocked " + blocked + unserved.Error()}, after: []string{"Service/clone WaitingForOwner " + says},
		},
		"Deleted": {
			reason: "A deleted owner has not opted out.",
			err:    apierrors.NewNotFound(services, "clone"),
			failed: []string{"Service/clone Rolling 1 of 1 pods are ready"}, evict: []string{"web-1-a"},
			after: []string{"Service/clone Rolling 1 of 1 pods are ready"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := strings.Replace(podText, "apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: ReplicaSet/web-1", "apiVersion: v1, kind: Service, name: clone, uid: Service/clone", 1)
			c := newCluster(t, policyText, pod, `{apiVersion: v1, kind: Service, metadata: {name: clone`+tc.owner+`}}`)
			var fault error
			c.gatherer.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if fault != nil {
						return fault
					}
					return cl.Get(ctx, key, o, opts...)
				},
			})
			if tc.read {
				c.reconcileAll(1)
				c.clock = c.clock.Add(unknownOwnersValid)
			}
			fault = tc.err
			c.reconcileAll(2)
			if diff := cmp.Diff(tc.failed, c.workloads()); diff != "" {
				t.Errorf("%s\nwhile it cannot be read: -want, +got:\n%s", tc.reason, diff)
			}
			fault = nil
			c.reconcileAll(int(2 * firstLook / time.Second))
			if diff := cmp.Diff(tc.after, c.workloads()); diff != "" {
				t.Errorf("%s\nwhen it can be: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.evict, slices.Compact(c.evicted)); diff != "" {
				t.Errorf("%s\nevicted: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// workloads returns the workloads in the policy's status.
func (c *cluster) workloads() (texts []string) {
	c.t.Helper()
	for _, w := range c.policy("db").Status.Workloads {
		texts = append(texts, fmt.Sprintf("%s/%s %s %s", w.Kind, w.Name, w.Reason, w.Message))
	}
	return texts
}

// TestOwnersAbove: several owners of an unknown kind have the same controller. They count as one workload even while
// none of them can be read. While one of them opts out, all are left alone. The order of pods is random, so the test
// has many of them.
func TestOwnersAbove(t *testing.T) {
	const above = `ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: top, uid: ConfigMap/top, controller: true}]`
	manifests := []string{policyText, `{apiVersion: v1, kind: ConfigMap, metadata: {name: top}}`}
	for i, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		out := ""
		if i == 0 {
			out = `annotations: {refract.dev/rollout: "false"}, `
		}
		manifests = append(manifests, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, %s%s}}", name, out, above),
			strings.NewReplacer("name: web-1-a", "name: of-"+name, "apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: ReplicaSet/web-1",
				fmt.Sprintf("apiVersion: v1, kind: Service, name: %[1]s, uid: Service/%[1]s", name)).Replace(podText))
	}
	c := newCluster(t, manifests...)
	want := []string{`ConfigMap/top WaitingForOwner its annotation refract.dev/rollout is "false": its owner recreates its pods`}
	c.reconcileAll(1)
	c.clock = c.clock.Add(unknownOwnersValid)
	c.reconcileAll(3)
	if diff := cmp.Diff(want, c.workloads()); diff != "" || len(c.evicted) > 0 {
		t.Errorf("one opts out; evicted %v, workloads: -want, +got:\n%s", c.evicted, diff)
	}

	working := c.gatherer.client
	c.gatherer.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return io.ErrUnexpectedEOF
		},
	})
	c.clock = c.clock.Add(unknownOwnersValid)
	c.reconcileAll(1)
	if diff := cmp.Diff(want, c.workloads()); diff != "" || len(c.evicted) > 0 {
		t.Errorf("none can be read; evicted %v, workloads: -want, +got:\n%s", c.evicted, diff)
	}

	c.gatherer.client = working
	a := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	if err := c.client.Patch(t.Context(), a, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"annotations": null}}`))); err != nil {
		t.Fatal(err)
	}
	c.clock = c.clock.Add(firstLook)
	c.reconcileAll(1)
	if len(c.evicted) != 1 {
		t.Errorf("none opts out any more: want one pod evicted, got %v", c.evicted)
	}
}

// TestOptedOutIsReadAgain: an owner of an unknown kind ends its opt-out, and no event reports this.
func TestOptedOutIsReadAgain(t *testing.T) {
	set := strings.NewReplacer("apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web", "apiVersion: v1, kind: Service, name: clone, uid: Service/clone").Replace(replicaSetText)
	c := newCluster(t, policyText, podText, set, `{apiVersion: v1, kind: Service, metadata: {name: clone, annotations: {refract.dev/rollout: "false"}}}`)
	c.reconcileAll(1)
	again, err := c.reconcile(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if want := unknownOwnersValid; again <= 0 || again > want {
		t.Errorf("want it looked at again within %s, got after %s", want, again)
	}
}

// TestOptsOutLate: an owner of an unknown kind opts out after it was read, shortly before an eviction.
func TestOptsOutLate(t *testing.T) {
	const says = ` WaitingForOwner its annotation refract.dev/rollout is "false": its owner recreates its pods`
	of := func(kind, name string) string {
		return fmt.Sprintf("apiVersion: v1, kind: %[1]s, name: %[2]s, uid: %[1]s/%[2]s", kind, name)
	}
	pod := func(name, of string) string {
		return strings.NewReplacer("name: web-1-a", "name: "+name, "apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: ReplicaSet/web-1", of).Replace(podText)
	}
	service := func(name, of string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, ownerReferences: [%s]}}", name, of)
	}
	set := strings.Replace(replicaSetText, "apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web", of("Service", "clone"), 1)
	above, top := "{"+of("ConfigMap", "top")+", controller: true}", `{apiVersion: v1, kind: ConfigMap, metadata: {name: top}}`
	cases := map[string]struct {
		reason  string
		objects []string
		out     client.Object // The owner that opts out.
		asked   []string      // The owners that are read before the eviction.
		want    []string      // The workloads.
		evicted []string
	}{
		"NoneDoes": {
			reason:  "Each owner is read once for an eviction.",
			objects: []string{pod("a", of("Service", "clone")), service("clone", "")},
			asked:   []string{"clone"}, want: []string{"Service/clone Rolling 1 of 1 pods are ready"}, evicted: []string{"a"},
		},
		"Itself": {
			reason:  "An owner with the annotation recreates the pods itself.",
			objects: []string{pod("a", of("Service", "clone")), service("clone", "")}, out: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "clone"}},
			asked: []string{"clone"}, want: []string{"Service/clone" + says},
		},
		"OfReplicaSet": {
			reason:  "The kind ReplicaSet is known, but the kind of its controller is not.",
			objects: []string{podText, set, service("clone", "")}, out: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "clone"}},
			asked: []string{"clone"}, want: []string{"Service/clone" + says},
		},
		"Above": {
			reason:  "An owner further up may have opted out.",
			objects: []string{pod("a", of("Service", "clone")), service("clone", above), top}, out: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "top"}},
			asked: []string{"clone", "top"}, want: []string{"ConfigMap/top" + says},
		},
		"ControlsOneItself": {
			reason: "The owner controls one pod itself, and the controller of another pod.",
			objects: []string{
				pod("a", of("ConfigMap", "top")), pod("b", of("Service", "of-b")), service("of-b", above), top,
			}, out: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "top"}},
			asked: []string{"top"}, want: []string{"ConfigMap/top" + says},
		},
		"OneOfMany": {
			reason: "Only the owners of the evicted pod are read, because there may be thousands of others.",
			objects: []string{
				pod("a", of("Service", "of-a")), pod("b", of("Service", "of-b")), pod("c", of("Service", "of-c")),
				service("of-a", above), service("of-b", above), service("of-c", above), top,
			},
			asked: []string{"of-a", "top"}, want: []string{"ConfigMap/top Rolling 3 of 3 pods are ready"}, evicted: []string{"a"},
		},
		"Deployment": {
			reason:  "Owners of known kinds are not read, because events report their changes.",
			objects: []string{deploymentText, replicaSetText, podText},
			want:    []string{"Deployment/web Rolling pods of its previous template still exist"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			paused := strings.Replace(policyText, "{name: db}", `{name: db, annotations: {refract.dev/rollout-paused: "true"}}`, 1)
			c := newCluster(t, append([]string{paused}, tc.objects...)...)
			c.reconcileAll(1)
			c.clock = c.clock.Add(fresh)
			var asked []string
			c.gatherer.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					asked = append(asked, key.Name)
					return cl.Get(ctx, key, o, opts...)
				},
			})
			patch := func(o client.Object, text string) {
				o.SetNamespace("shop")
				if err := c.client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
					t.Fatal(err)
				}
			}
			if tc.out != nil {
				patch(tc.out, `{"metadata": {"annotations": {"refract.dev/rollout": "false"}}}`)
			}
			patch(c.policy("db"), `{"metadata": {"annotations": null}}`)
			c.reconcileAll(2)
			if diff := cmp.Diff(tc.evicted, c.evicted); diff != "" {
				t.Errorf("%s\nevicted: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("%s\nread: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, c.workloads()); diff != "" {
				t.Errorf("%s\nworkloads: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestStrangerGoes: an owner of an unknown kind is deleted while its pods are being recreated. This is not a failure.
func TestStrangerGoes(t *testing.T) {
	set := strings.NewReplacer("apiVersion: apps/v1, kind: Deployment, name: web, uid: Deployment/web", "apiVersion: v1, kind: Service, name: clone, uid: Service/clone").Replace(replicaSetText)
	for _, deleted := range []bool{true, false} {
		c := newCluster(t, policyText, podText, set, `{apiVersion: v1, kind: Service, metadata: {name: clone}}`)
		c.reconcileAll(2)
		gone := []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1-a"}}}
		if deleted {
			gone = append(gone, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "clone"}})
		}
		for _, o := range gone {
			o.SetNamespace("shop")
			if err := c.client.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		c.reconcileAll(2)
		c.clock = c.clock.Add(DefaultPatience)
		c.reconcileAll(1)
		want := refractv1beta1.PhaseHalted
		if deleted {
			want = refractv1beta1.PhaseComplete
		}
		if got := c.policy("db").Status.Rollout.Phase; got != want {
			t.Errorf("its owner deleted: %t; want %s, got %s", deleted, want, got)
		}
	}
}

// TestUnknownOwnersOfNoInterest: pipelines leave very many pods, and each has its own owner. The owners of irrelevant
// pods are not read.
func TestUnknownOwnersOfNoInterest(t *testing.T) {
	run := `{apiVersion: tekton.dev/v1, kind: TaskRun, name: %[1]s, uid: TaskRun/%[1]s, controller: true}`
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, labels: {role: %[2]s}, ownerReferences: [` + run + `]}, spec: {restartPolicy: Never, containers: [{name: c}]}, status: {phase: %[3]s}}`
	c := newCluster(t, policyText, fmt.Sprintf(pod, "ended", "web", "Succeeded"), fmt.Sprintf(pod, "other", "batch", "Running"), fmt.Sprintf(pod, "runs", "web", "Running"))
	var asked []string
	c.gatherer.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			asked = append(asked, key.Name)
			return cl.Get(ctx, key, o, opts...)
		},
	})
	c.reconcileAll(3)
	if !slices.Equal(asked, []string{"runs"}) {
		t.Errorf("want the owner asked after of the pod that matters, once, got %v", asked)
	}
	if got := c.policy("db").Status; got.Matched != 1 || got.Manual != 1 {
		t.Errorf("want one pod matched, and none recreated, got %+v", got)
	}
}

// TestLikeNew: likeNew removes the additions to a pod.
func TestLikeNew(t *testing.T) {
	pod := manifest(t, `
apiVersion: v1
kind: Pod
metadata:
  name: p
  uid: abc
  labels: {a: b}
  annotations: {refract.dev/injection: '{"v":1,"hash":"x","applied":[{"p":"db","h":"y","env":["DB"],"vol":["v"],"mnt":["/v"]}]}'}
spec:
  nodeName: n
  containers: [{name: c, env: [{name: OWN}, {name: DB}], volumeMounts: [{name: v, mountPath: /v/}, {name: w, mountPath: /w}]}]
  volumes: [{name: v}, {name: w}]
`)
	want := manifest(t, `
apiVersion: v1
kind: Pod
metadata:
  labels: {a: b}
  annotations: {refract.dev/injection: '{"v":1,"hash":"x","applied":[{"p":"db","h":"y","env":["DB"],"vol":["v"],"mnt":["/v"]}]}'}
spec:
  containers: [{name: c, env: [{name: OWN}], volumeMounts: [{name: w, mountPath: /w}]}]
  volumes: [{name: w}]
`)
	got, err := likeNew(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestStart runs the controller with real lists and watches.
func TestStart(t *testing.T) {
	c := newCluster(t, policyText, deploymentText, replicaSetText, podText)
	kinds := map[schema.GroupVersionResource]string{policyResource: "ServiceInjectionPolicyList", podResource: "PodList"}
	var objects []runtime.Object
	for gvr, kind := range map[schema.GroupVersionResource]string{
		policyResource: "ServiceInjectionPolicyList", podResource: "PodList",
		workloadTypes[0].resource: "DeploymentList", workloadTypes[1].resource: "ReplicaSetList",
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvr.GroupVersion().WithKind(kind))
		if err := c.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	for _, of := range workloadTypes {
		kinds[of.resource] = of.kind.Kind + "List"
	}
	started := newController(Options{Client: c.client, Log: logr.Discard(), Now: c.time},
		dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...), events.NewFakeRecorder(1000))
	c.webhook = func() *inject.Set { return started.namespace("shop").policies.set }
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := started.Start(ctx); err != nil {
			t.Errorf("Start: %v", err)
		}
	})
	defer running.Wait()
	defer cancel()
	poll.Until(t, "the Deployment is annotated", func() bool { return c.templateHash() != "" })
}

func TestLookedAtOncePerInterval(t *testing.T) {
	c := newCluster(t)
	if wait := c.early("shop"); wait != 0 {
		t.Errorf("the first event: want it at once, got a wait of %s", wait)
	}
	if wait := c.early("shop"); wait <= 0 || wait > interval {
		t.Errorf("the next: want it within %s, got %s", interval, wait)
	}
	if wait := c.early("elsewhere"); wait != 0 {
		t.Errorf("another namespace: want it at once, got a wait of %s", wait)
	}
}

// TestReadPod reads the fields that decisions depend on.
func TestReadPod(t *testing.T) {
	u := manifest(t, `
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: shop
  labels: {a: b}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}", refract.dev/injection-hash: abc}
spec:
  restartPolicy: Never
  nodeName: n
  containers: [{name: c, image: i, env: [{name: A, valueFrom: {futureRef: {x: 1}}}], resources: {}}]
  volumes: [{name: v, emptyDir: {}}]
status:
  phase: Failed
  containerStatuses: [{state: {running: {}}}, {state: {waiting: {reason: ImagePullBackOff}}}]
  conditions:
  - {type: PodScheduled, status: "True", lastTransitionTime: "2026-05-01T10:00:00Z"}
  - {type: Ready, status: "False", lastTransitionTime: "2026-05-01T11:00:00Z"}
`)
	p, err := readPod(u)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"refract.dev/injection-hash":"abc"},"labels":{"a":"b"},"name":"p","namespace":"shop"},` +
		`"spec":{"containers":[{"env":[{"name":"A","valueFrom":{"futureRef":{"x":1}}}],"name":"c"}],"volumes":[{"emptyDir":{},"name":"v"}]}}`
	if diff := cmp.Diff(want, string(p.lean)); diff != "" {
		t.Errorf("what matters for injection: -want, +got:\n%s", diff)
	}
	if p.endless || !p.finished || !p.failed || p.ready || p.trouble != "ImagePullBackOff" || p.templateHash != "abc" {
		t.Errorf("got %+v", p)
	}
	if ready, from := noon.Add(-time.Hour), noon.Add(-2*time.Hour+time.Minute); !p.readySince.Equal(ready) || !p.troubleFrom.Equal(from) {
		t.Errorf("since when: want %s and %s, got %s and %s", ready, from, p.readySince, p.troubleFrom)
	}
}

// TestTrouble distinguishes temporary problems of a pod from those that need an action.
func TestTrouble(t *testing.T) {
	cases := map[string]struct {
		reason   string
		statuses string
		want     string
		from     time.Time
	}{
		"Runs":             {reason: "A running container is no problem.", statuses: `[{restartCount: 5, state: {running: {}}}]`},
		"Starts":           {reason: "Every pod waits for its containers at the start.", statuses: `[{state: {waiting: {reason: ContainerCreating}}}]`},
		"CrashedOnce":      {reason: "A container may crash until its dependencies are up.", statuses: `[{restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}}}]`},
		"CrashedTwice":     {reason: "A second crash is tolerated, too.", statuses: `[{restartCount: 2, state: {waiting: {reason: CrashLoopBackOff}}}]`},
		"Crashes":          {reason: "A third crash counts as a failure.", statuses: `[{restartCount: 3, state: {waiting: {reason: CrashLoopBackOff}}}]`, want: "CrashLoopBackOff"},
		"SecondCrashes":    {reason: "A single failing container is enough.", statuses: `[{state: {running: {}}}, {restartCount: 9, state: {waiting: {reason: CrashLoopBackOff}}}]`, want: "CrashLoopBackOff"},
		"CannotBeStarted":  {reason: "A missing key is a persistent problem.", statuses: `[{state: {waiting: {reason: CreateContainerConfigError}}}]`, want: "CreateContainerConfigError"},
		"NoImage":          {reason: "A registry may be unavailable for a short time.", statuses: `[{state: {waiting: {reason: ErrImagePull}}}]`, want: "ErrImagePull", from: noon.Add(time.Minute)},
		"WorseThanNoImage": {reason: "Problems that count at once come first.", statuses: `[{state: {waiting: {reason: ErrImagePull}}}, {state: {waiting: {reason: InvalidImageName}}}]`, want: "InvalidImageName"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
				pod := manifest(t, "{apiVersion: v1, kind: Pod, status: {"+list+": "+tc.statuses+"}}")
				got, from := troubleOf(pod.Object, noon)
				if got != tc.want || !from.Equal(tc.from) {
					t.Errorf("%s\n%s: want %q from %s, got %q from %s", tc.reason, list, tc.want, tc.from, got, from)
				}
			}
		})
	}
}

// TestReadNoPolicy: the status of an invalid policy is read, so that the controller does not write an equal status
// again.
func TestReadNoPolicy(t *testing.T) {
	u := manifest(t, `
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: p, namespace: shop, uid: u, generation: 7}
spec: {selector: everything}
status: {observedGeneration: 7, conditions: [{type: Accepted, status: "False", reason: InvalidPolicy, lastTransitionTime: "2026-05-01T11:00:00Z"}]}
`)
	a, err := readAuthored(u)
	if err != nil {
		t.Fatal(err)
	}
	if a.err == nil || compileOne(logr.Discard(), a).problem == "" {
		t.Error("a selector that is text: want a problem, got none")
	}
	if p := a.policy; p.Name != "p" || p.Generation != 7 || p.Status.ObservedGeneration != 7 || len(p.Status.Conditions) != 1 {
		t.Errorf("want its name, generation and status, got %+v", p)
	}
}

// TestReadStatefulSet: the expected pod of a StatefulSet has volumes for the volume claim templates.
func TestReadStatefulSet(t *testing.T) {
	u := manifest(t, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop, generation: 2}
spec:
  replicas: 3
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1}}
  volumeClaimTemplates: [{metadata: {name: data}}]
  template:
    metadata: {labels: {a: b}, annotations: {refract.dev/injection-hash: abc}}
    spec: {containers: [{name: c}], volumes: [{name: data, emptyDir: {}}, {name: tmp, emptyDir: {}}]}
status: {observedGeneration: 2, replicas: 3, availableReplicas: 3, currentRevision: x, updateRevision: y}
`)
	w, err := readWorkload(u)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(w.lean, &pod); err != nil {
		t.Fatal(err)
	}
	if v := pod.Spec.Volumes; len(v) != 2 || v[0].PersistentVolumeClaim == nil || v[0].PersistentVolumeClaim.ClaimName != "data-db-0" || v[1].Name != "tmp" {
		t.Errorf("volumes: want the claim of the first pod and tmp, got %v", v)
	}
	if !w.partitioned || w.revised || w.complete() || w.templateHash != "abc" {
		t.Errorf("want it partitioned and not complete, got %+v", w)
	}
}

// BenchmarkNamespace gathers and decides a namespace with 5,000 pods and 1,000 policies.
func BenchmarkNamespace(b *testing.B) {
	c := newController(Options{Log: logr.Discard(), Now: func() time.Time { return noon }}, nil, nil)
	c.queue = newQueue()
	b.Cleanup(c.queue.ShutDown)
	for i := range 1000 {
		text := strings.NewReplacer("name: db", fmt.Sprintf("name: db-%d", i), "role: web", fmt.Sprintf("role: web-%d", i%500)).Replace(policyText)
		text = strings.Replace(text, "DB_PORT", fmt.Sprintf("DB_PORT_%d", i), 1)
		u := manifest(b, text)
		u.SetNamespace("shop")
		u.SetUID(types.UID(u.GetName()))
		if err := c.view.policies.Add(u); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 5000 {
		u := manifest(b, strings.Replace(podText, "role: web", fmt.Sprintf("role: web-%d", i%500), 1))
		u.SetNamespace("shop")
		u.SetOwnerReferences(nil)
		u.SetName(fmt.Sprintf("p-%d", i))
		u.SetUID(types.UID(u.GetName()))
		u.SetResourceVersion("1")
		if err := c.view.pods.Add(u); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("New", func(b *testing.B) {
		for b.Loop() {
			decide(c.gatherer.gather(b.Context(), newNamespaceState("shop")))
		}
	})
	b.Run("Again", func(b *testing.B) {
		ns := newNamespaceState("shop")
		decide(c.gatherer.gather(b.Context(), ns))
		for b.Loop() {
			decide(c.gatherer.gather(b.Context(), ns))
		}
	})
}

// TestReadySince: if the controller saw a pod become ready, the time counts by the controller's clock, because clocks
// of nodes differ. After a restart of the controller, the time in the pod's status counts.
func TestReadySince(t *testing.T) {
	for _, ahead := range []time.Duration{-15 * time.Minute, 0, 15 * time.Minute} { // The difference of the node's clock.
		now := noon
		told := func() *view { return newView(logr.Discard(), func() time.Time { return now }, func(string) {}) }
		v := told()
		pod := func(uid, ready string, since time.Time) *unstructured.Unstructured {
			return manifest(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop, uid: %s}
status: {conditions: [{type: Ready, status: %q, lastTransitionTime: %q}]}
`, uid, ready, since.Add(ahead).UTC().Format(time.RFC3339)))
		}
		expect := func(reason string, want bool) {
			t.Helper()
			j := &judge{snapshot: &snapshot{now: now}, plan: &plan{}, policies: map[string]*policy{"a": {rollout: refractv1beta1.Rollout{MinReadySeconds: 900}}}}
			a := &assessment{group: &group{pods: []placed{{pod: v.pods.get("shop", "p")}}}, current: []string{"a"}}
			j.settle(a)
			if got := a.settling == 0; got != want {
				t.Errorf("a node that is %s ahead: %s\nwant it to be available long enough: %t, got %t", ahead, reason, want, got)
			}
		}
		update := func(u *unstructured.Unstructured) {
			t.Helper()
			if err := v.pods.Update(u); err != nil {
				t.Fatal(err)
			}
		}
		update(pod("1", "False", now))
		now = now.Add(time.Minute)
		ready := now
		update(pod("1", "True", ready))
		expect("It has just become ready.", false)
		now = ready.Add(899 * time.Second)
		update(pod("1", "True", ready))
		expect("A second is left, and something else of it has changed.", false)
		now = ready.Add(900 * time.Second)
		expect("That was long enough.", true)
		again := now.Add(time.Second)
		now = again
		if err := v.pods.Replace([]any{pod("1", "True", again)}, ""); err != nil {
			t.Fatal(err)
		}
		expect("It was not ready for a moment that nobody saw.", false)
		v, now = told(), again.Add(900*time.Second)
		update(pod("1", "True", again))
		expect("Another replica knows what the kubelet says.", ahead <= 0)
	}
}

// TestEvictedIsBounded: a status of another client with too many workloads causes a bounded number of requests.
func TestEvictedIsBounded(t *testing.T) {
	for count, want := range map[int]int{
		0: 0, refractv1beta1.MaxEvicted: refractv1beta1.MaxEvicted, refractv1beta1.MaxEvicted + 1: refractv1beta1.MaxEvicted,
	} {
		if got := len(evictedIn(&refractv1beta1.RolloutStatus{Evicted: make([]refractv1beta1.EvictedWorkload, count)})); got != want {
			t.Errorf("%d workloads in the status: want %d, got %d", count, want, got)
		}
	}
}
