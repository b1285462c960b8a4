package implicit

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/output"
)

// world is an API server with policies and Services. It records the writes.
type world struct {
	*reconciler

	writes int
	events *events.FakeRecorder
	// fails is the error that writes return; nil if they succeed.
	fails error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), refractv1beta1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return newWorldOf(s, objects...)
}

// newWorldOf returns a world whose API server stores the types of s.
func newWorldOf(s *runtime.Scheme, objects ...client.Object) *world {
	w := &world{events: events.NewFakeRecorder(100)}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(kind()).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				w.writes++
				if w.fails != nil {
					return w.fails
				}
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		}).Build()
	w.reconciler = &reconciler{reader: c, client: c, recorder: w.events, now: metav1.Now}
	return w
}

// look reconciles the policy, and returns its status.
func (w *world) look(t *testing.T) *refractv1beta1.ServiceInjectionPolicyStatus {
	t.Helper()
	key := client.ObjectKey{Namespace: "shop", Name: "allow-database"}
	if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	p := &refractv1beta1.ServiceInjectionPolicy{}
	if err := w.client.Get(t.Context(), key, p); err != nil {
		t.Fatal(err)
	}
	return &p.Status
}

// told returns the events since the last call of told.
func (w *world) told() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// TestReconcile reconciles a policy after each change of its Service.
func TestReconcile(t *testing.T) {
	policy := policyOf(t, `spec: {service: db, implicit: true, selector: {}}`)
	w := newWorld(t, policy)
	service := serviceOf(t, `{refract.dev/env: '{"A":"b"}'}`)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		reason string
		do     func()
		state  string // The reason of the condition, and the first variable.
		writes int
		events []string
	}{
		{
			"The Service is not there yet.", func() {}, "NotFound ", 1,
			[]string{"Warning ServiceNotFound there is no Service db in the namespace: only the items of the policy itself are injected"},
		},
		{"Nothing has changed.", func() {}, "NotFound ", 0, nil},
		{"Another writer sets items in the status, as if they came from the Service.", func() {
			p := &refractv1beta1.ServiceInjectionPolicy{}
			must(w.client.Get(t.Context(), client.ObjectKeyFromObject(policy), p))
			p.Status.FromService = &refractv1beta1.InjectedItems{Env: []refractv1beta1.EnvVar{{Name: "A", Value: "x"}}}
			must(w.client.Status().Update(t.Context(), p))
		}, "NotFound ", 1, nil},
		{"Nothing has changed.", func() {}, "NotFound ", 0, nil},
		{
			"It comes.", func() { must(w.client.Create(t.Context(), service)) }, "Found b", 1,
			[]string{"Normal ServiceFound Service db provides: 1 variable"},
		},
		{"Nothing has changed.", func() {}, "Found b", 0, nil},
		{"The Service has other items, which causes no event.", func() {
			service.Annotations[refractv1beta1.EnvAnnotation] = `{"A":"c"}`
			must(w.client.Update(t.Context(), service))
		}, "Found c", 1, nil},
		{"Another writer sets fields of this controller.", func() {
			p := &refractv1beta1.ServiceInjectionPolicy{}
			must(w.client.Get(t.Context(), client.ObjectKeyFromObject(policy), p))
			p.Status.FromService.Env[0].Value = "x"
			must(w.client.Status().Update(t.Context(), p))
		}, "Found c", 1, nil},
		{"The Service has an invalid annotation.", func() {
			service.Annotations[refractv1beta1.EnvAnnotation] = `A=c`
			must(w.client.Update(t.Context(), service))
		}, "InvalidAnnotations c", 1, []string{`Warning ServiceInvalidAnnotations Service db: metadata.annotations[refract.dev/env]: Invalid value: "A=c": ` +
			`invalid character 'A' looking for beginning of value; want a JSON object such as {"DB_NAME":"orders"}; ` +
			`until this is fixed, status.fromService stays as it is`}},
		{
			"It goes.", func() { must(w.client.Delete(t.Context(), service)) }, "NotFound ", 1,
			[]string{"Warning ServiceNotFound there is no Service db in the namespace: only the items of the policy itself are injected"},
		},
		{"The policy no longer uses the Service.", func() {
			p := &refractv1beta1.ServiceInjectionPolicy{}
			must(w.client.Get(t.Context(), client.ObjectKeyFromObject(policy), p))
			p.Spec.Implicit = false
			p.Spec.Env = []refractv1beta1.EnvVar{{Name: "A"}}
			must(w.client.Update(t.Context(), p))
		}, "", 1, nil},
		{"Nothing has changed.", func() {}, "", 0, nil},
	} {
		step.do()
		w.writes = 0
		s := w.look(t)
		state := ""
		if c := serviceStatusOf(&refractv1beta1.ServiceInjectionPolicy{Status: *s}).condition; c != nil {
			state = c.Reason + " "
		}
		if s.FromService != nil {
			state += string(s.FromService.Env[0].Value)
		}
		if diff := cmp.Diff([]any{step.state, step.writes, step.events}, []any{state, w.writes, w.told()}); diff != "" {
			t.Fatalf("%s\nstate, writes and events: -want, +got:\n%s", step.reason, diff)
		}
	}
}

func TestReconcileFailures(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "allow-database", errors.New("another UID"))
	other := errors.New("no room")
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		fails   error
		want    error
	}{
		"Gone":        {reason: "A deleted policy needs no action."},
		"GoneSince":   {"The policy was deleted after it was read.", []client.Object{policyOf(t, `spec: {service: db, implicit: true}`)}, apierrors.NewNotFound(schema.GroupResource{}, ""), nil},
		"AnotherOne":  {"Another policy has the same name now, and gets its own event.", []client.Object{policyOf(t, `spec: {service: db, implicit: true}`)}, conflict, nil},
		"Unavailable": {"A failed write is repeated, without an event about it.", []client.Object{policyOf(t, `spec: {service: db, implicit: true}`)}, other, other},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			w.fails = tc.fails
			_, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "allow-database"}})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s\nReconcile(): got %v, want %v", tc.reason, err, tc.want)
			}
			if got := w.told(); err != nil && got != nil {
				t.Errorf("%s\nevents: got %v", tc.reason, got)
			}
		})
	}
}

// TestWrites: the controller writes only its own fields. The UID makes sure that it writes to the same policy that it
// has read.
func TestWrites(t *testing.T) {
	policy := policyOf(t, `spec: {service: db, implicit: true, selector: {}}`)
	policy.UID = "8a1f"
	w := newWorld(t, policy)
	var got map[string]any
	c := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		SubResourceApply: func(_ context.Context, _ client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				return err
			}
			options := (&client.SubResourceApplyOptions{}).ApplyOpts(opts)
			got = map[string]any{"subresource": sub, "owner": options.FieldManager, "force": *options.Force, "object": content}
			return nil
		},
	})
	r := &reconciler{reader: c, client: c, recorder: w.events, now: func() metav1.Time { return now }}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(policy)}); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"subresource": "status", "owner": "refract-implicit", "force": true, "object": map[string]any{
		"apiVersion": "refract.dev/v1beta1", "kind": "ServiceInjectionPolicy",
		"metadata": map[string]any{"namespace": "shop", "name": "allow-database", "uid": "8a1f"},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "ServiceFound", "status": "False", "reason": "NotFound", "observedGeneration": int64(3), "lastTransitionTime": "2026-03-01T12:00:00Z",
			"message": "there is no Service db in the namespace: only the items of the policy itself are injected",
		}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestPoliciesOf(t *testing.T) {
	named := func(namespace, name, spec string) client.Object {
		p := policyOf(t, spec)
		p.Namespace, p.Name = namespace, name
		return p
	}
	w := newWorld(
		t,
		named("shop", "a", `spec: {service: db, implicit: true}`), named("shop", "b", `spec: {service: db}`),
		named("shop", "c", `spec: {service: queue, implicit: true}`), named("other", "d", `spec: {service: db, implicit: true}`),
		named("shop", "e", `spec: {service: db, implicit: true}`),
	)
	var got []string
	for _, req := range w.policiesOf(t.Context(), serviceOf(t, "{}")) {
		got = append(got, req.String())
	}
	if diff := cmp.Diff([]string{"shop/a", "shop/e"}, got); diff != "" {
		t.Errorf("Those of its namespace that take over what it says: -want, +got:\n%s", diff)
	}
}

func TestSpeaksAnew(t *testing.T) {
	cases := map[string]struct {
		reason  string
		was, is string // Annotations.
		change  func(*corev1.Service)
		want    bool
	}{
		"Nothing":     {reason: "A resync changes nothing.", was: "{refract.dev/derive: port}", is: "{refract.dev/derive: port}"},
		"Annotation":  {reason: "Annotations of other tools do not matter.", was: "{a: b}", is: "{a: c}"},
		"Ours":        {reason: "A changed annotation changes the items of consumers.", was: "{refract.dev/env: '{}'}", is: `{refract.dev/env: '{"A":"b"}'}`, want: true},
		"OursGone":    {reason: "A removed annotation changes the items of consumers.", was: "{refract.dev/prefix: DB_}", is: `{}`, want: true},
		"Status":      {reason: "The status of a Service does not define items.", was: "{}", is: "{}", change: func(s *corev1.Service) { s.Status.Conditions = make([]metav1.Condition, 1) }},
		"Ports":       {reason: "Ports do not matter without refract.dev/derive.", was: "{}", is: "{}", change: func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 }},
		"PortDerived": {"With refract.dev/derive, ports define items.", "{refract.dev/derive: port}", "{refract.dev/derive: port}", func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 }, true},
		"PortAdded":   {"A new port may have a name, which defines an item.", "{refract.dev/derive: port}", "{refract.dev/derive: port}", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, s.Spec.Ports[0]) }, true},
		"TargetPort":  {reason: "Only the number and name of a port define items.", was: "{refract.dev/derive: port}", is: "{refract.dev/derive: port}", change: func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 1 }},
		"AnotherOne":  {"The Service was deleted and created again.", "{}", "{}", func(s *corev1.Service) { s.UID = "2" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			was, is := serviceOf(t, tc.was), serviceOf(t, tc.is)
			if tc.change != nil {
				tc.change(is)
			}
			if got := speaksAnew(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != tc.want {
				t.Errorf("%s\nspeaksAnew(): got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	if got := output.Cut("ääää", 3); got != "ä…" {
		t.Errorf("A character is not cut in half: got %q", got)
	}
	if got := output.Cut("äää", 6); got != "äää" {
		t.Errorf("What fits stays: got %q", got)
	}
}

// TestUnreadable: a policy that cannot be decoded does not block others. If other writers have put invalid values into
// its status, the controller corrects them.
func TestUnreadable(t *testing.T) {
	stored := func(name, text string) client.Object {
		u := kind()
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetGroupVersionKind(kind().GroupVersionKind())
		u.SetNamespace("shop")
		u.SetName(name)
		return u
	}
	const spec = `spec: {service: db, implicit: true, selector: {}}`
	objects := map[string]client.Object{
		"broken":   stored("broken", `spec: {service: db, implicit: true, env: none}`),
		"items":    stored("items", spec+"\nstatus: {fromService: {env: none}, effective: {volumes: 3}, matched: 2}"),
		"fields":   stored("fields", spec+"\nstatus: {fromService: {env: [{name: A, value: {a: b}}]}}"),
		"explicit": stored("explicit", "spec: {selector: {}, env: [{name: A}]}\nstatus: {fromService: {env: none}}"),
	}
	all := []client.Object{serviceOf(t, `{refract.dev/env: '{"A":"b"}'}`)}
	for _, o := range objects {
		all = append(all, o)
	}
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil { // The scheme does not contain the type of policies.
		t.Fatal(err)
	}
	w := newWorldOf(s, all...)
	var followers []string
	for _, req := range w.policiesOf(t.Context(), serviceOf(t, "{}")) {
		followers = append(followers, req.Name)
	}
	slices.Sort(followers)
	if diff := cmp.Diff([]string{"broken", "fields", "items"}, followers); diff != "" {
		t.Errorf("The policies of the Service: -want, +got:\n%s", diff)
	}
	for name, want := range map[string]any{
		"broken": nil, "explicit": nil,
		"items":  map[string]any{"env": []any{map[string]any{"name": "A", "value": "b"}}},
		"fields": map[string]any{"env": []any{map[string]any{"name": "A", "value": "b"}}},
	} {
		key := client.ObjectKey{Namespace: "shop", Name: name}
		for range 2 {
			w.writes = 0
			if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if w.writes > 0 {
			t.Errorf("%s: it is written again and again", name)
		}
		got := kind()
		if err := w.client.Get(t.Context(), key, got); err != nil {
			t.Fatal(err)
		}
		said, _, _ := unstructured.NestedFieldNoCopy(got.Object, "status", "fromService")
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("%s: status.fromService: -want, +got:\n%s", name, diff)
		}
		matched, _, _ := unstructured.NestedInt64(got.Object, "status", "matched")
		if name == "items" && matched != 2 {
			t.Errorf("What is somebody else's stays: got matched %d, want 2", matched)
		}
	}
}
