package propagation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/poll"
)

const (
	enforceLabel = "pod-security.kubernetes.io/enforce"
	theHub       = "hub-uid"
)

// shop is the API server of a member with one namespace, shop, and Secrets in it.
type shop struct {
	mu       sync.Mutex
	object   *metav1.ObjectMeta // Nil while the namespace does not exist.
	owners   map[string]string  // Managers of labels and annotations, by PART/KEY.
	secrets  int
	version  int
	requests []string // The requests that change something.
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	const partial = "meta.k8s.io/v1"
	reply := func(code int, body any) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			return // The client disconnected.
		}
	}
	list := func(items ...metav1.PartialObjectMetadata) metav1.PartialObjectMetadataList {
		return metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: partial, Kind: "PartialObjectMetadataList"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.version)}, Items: items,
		}
	}
	refuse := func(code int32, reason metav1.StatusReason) {
		reply(int(code), metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason})
	}
	if r.Method != http.MethodGet {
		s.requests = append(s.requests, r.Method)
	}
	switch path := r.Method + " " + r.URL.Path; {
	case path == "GET /readyz":
		fmt.Fprint(w, "ok")
	case path == "GET /api":
		reply(http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
	case path == "GET /apis":
		reply(http.StatusOK, metav1.APIGroupList{})
	case path == "GET /api/v1":
		reply(http.StatusOK, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", Kind: "Namespace", Verbs: []string{"list"}},
			{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: []string{"list", "watch", "patch", "delete"}},
		}})
	case r.URL.Query().Get("fieldSelector") == "metadata.name=kube-system":
		reply(http.StatusOK, list(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "member-uid"}}))
	case path == "GET /api/v1/namespaces/shop/secrets":
		reply(http.StatusOK, list(make([]metav1.PartialObjectMetadata, s.secrets)...))
	case path == "POST /api/v1/namespaces":
		var made metav1.PartialObjectMetadata
		_ = json.NewDecoder(r.Body).Decode(&made) // The name is empty if this fails.
		s.object, s.owners = &metav1.ObjectMeta{Name: made.Name, UID: "1"}, map[string]string{}
		s.set("refract", made.Labels, made.Annotations)
		reply(http.StatusCreated, s.shown())
	case r.URL.Path == "/api/v1/namespaces":
		if s.object == nil {
			reply(http.StatusOK, list())
			return
		}
		reply(http.StatusOK, list(s.shown()))
	case s.object == nil:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	case path == "GET /api/v1/namespaces/shop":
		reply(http.StatusOK, s.shown())
	case path == "PATCH /api/v1/namespaces/shop":
		var patch struct {
			Metadata struct {
				ResourceVersion string             `json:"resourceVersion"`
				Labels          map[string]*string `json:"labels"`
				Annotations     map[string]*string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = json.NewDecoder(r.Body).Decode(&patch) // The version is empty if this fails.
		if patch.Metadata.ResourceVersion != fmt.Sprint(s.version) {
			refuse(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		for part, changes := range map[string]map[string]*string{"labels": patch.Metadata.Labels, "annotations": patch.Metadata.Annotations} {
			for key, value := range changes {
				switch {
				case value == nil:
					s.unset(part, key)
				case part == "labels":
					s.set("refract", map[string]string{key: *value}, nil)
				default:
					s.set("refract", nil, map[string]string{key: *value})
				}
			}
		}
		reply(http.StatusOK, s.shown())
	case path == "DELETE /api/v1/namespaces/shop":
		s.object = nil
		reply(http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"})
	default:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// set sets labels and annotations as the given manager. The lock must be held.
func (s *shop) set(manager string, labels, annotations map[string]string) {
	for part, change := range map[string]struct {
		to   *map[string]string
		with map[string]string
	}{"labels": {&s.object.Labels, labels}, "annotations": {&s.object.Annotations, annotations}} {
		if *change.to == nil {
			*change.to = map[string]string{}
		}
		maps.Copy(*change.to, change.with)
		for key := range change.with {
			s.owners[part+"/"+key] = manager
		}
	}
	s.version++
}

func (s *shop) unset(part, key string) {
	delete(map[string]map[string]string{"labels": s.object.Labels, "annotations": s.object.Annotations}[part], key)
	delete(s.owners, part+"/"+key)
	s.version++
}

// shown returns the namespace as the API server shows it. The lock must be held.
func (s *shop) shown() metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}, ObjectMeta: *s.object}
	o.ResourceVersion = fmt.Sprint(s.version)
	for field, manager := range s.owners {
		part, key, _ := strings.Cut(field, "/")
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:metadata":{"f:%s":{"f:%s":{}}}}`, part, key)),
		})
	}
	return o
}

// change calls a function under the lock, to change or read the namespace.
func (s *shop) change(by func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by()
}

// state returns the visible state of the namespace: "gone", "kept", or "marked".
func (s *shop) state() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.object == nil:
		return "gone"
	case s.object.Annotations[refractv1alpha1.RemoveAfterAnnotation] != "":
		return "marked"
	default:
		return "kept"
	}
}

// shopkeeper returns the applier of the member, with these objects on the hub.
func shopkeeper(tb testing.TB, s http.Handler, emptyAfter time.Duration, objects ...client.Object) *applier {
	tb.Helper()
	c, m := joined(tb, s, emptyAfter, objects...)
	a, err := c.dispatcher.newApplier(m)
	if err != nil {
		tb.Fatal(err)
	}
	a.proven = func(context.Context, Key, *desiredState) (bool, error) { return true, nil } // Every deletion counts as proven, without a read from the hub.
	return a
}

// joined returns a controller whose stations do not run. Its hub has these objects and one member, which is ready and
// was searched for copies.
func joined(tb testing.TB, s http.Handler, emptyAfter time.Duration, objects ...client.Object) (*Controller, *member.Member) {
	tb.Helper()
	server := httptest.NewTLSServer(s)
	tb.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	fc.Spec = corev1alpha1.FederatedClusterSpec{APIEndpoint: server.URL, Insecure: true, SecretRef: corev1alpha1.LocalSecretReference{Name: "m"}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "m", Annotations: map[string]string{
			refractv1alpha1.EndpointAnnotation: server.URL, refractv1alpha1.InsecureAnnotation: "true",
		}},
		Data: map[string][]byte{corev1alpha1.SecretServiceAccountToken: []byte("t")},
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, fc, secret)...).WithStatusSubresource(fc).Build()
	c := connected(tb, hub, nil, Options{Leadership: &replica{leads: true}, SystemNamespace: "sys", EmptyAfter: emptyAfter})
	c.members.Served = nil // The types of the hub are not looked up.
	if _, err := c.clusters.Reconcile(tb.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "m"}}); err != nil {
		tb.Fatal(err)
	}
	m := c.members.Get("m")
	if m == nil || !m.Ready() {
		tb.Fatal("want a member that is ready")
	}
	poll.Until(tb, "the member is searched for copies", m.Copies.Swept)
	c.state.setComplete()
	return c, m
}

// tend checks the namespace once.
func tend(t *testing.T, a *applier, name string) reconcile.Result {
	t.Helper()
	result, err := a.namespaces.reconcile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func onHub(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}}
}

// TestNamespaceHasTheLabelsOfTheHub: a namespace has the labels from its creation, and gets them again after a change
// on the hub, or after a change on the member that no controller saw.
func TestNamespaceHasTheLabelsOfTheHub(t *testing.T) {
	s := &shop{}
	ns := onHub(map[string]string{enforceLabel: "restricted", "team": "a"})
	a := shopkeeper(t, s, 0, ns)
	enforced := func() (value string) {
		s.change(func() { value = s.object.Labels[enforceLabel] })
		return value
	}
	if _, err := a.namespaces.create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if got, requests := enforced(), s.requests; got != "restricted" || len(requests) != 1 {
		t.Errorf("want the namespace created with the label, in one request: got %q by %v", got, requests)
	}
	if _, there := s.object.Labels["team"]; there {
		t.Error("want a label that is not configured not copied")
	}
	if _, err := a.namespaces.create(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "it is gone from the hub") {
		t.Errorf("want no namespace created that is missing on the hub, got %v", err)
	}

	ns.Labels[enforceLabel] = "baseline"
	if err := a.namespaces.source.live.(client.Client).Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	tend(t, a, "shop")
	if got := enforced(); got != "baseline" {
		t.Errorf("a change on the hub: want baseline, got %q", got)
	}

	s.change(func() { s.unset("labels", enforceLabel) })
	a.namespaces.source.view.Add(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "shop", "labels": map[string]any{enforceLabel: "baseline"},
	}}})
	a.namespaces.source.view.synced = true
	a.namespaces.queue.queue = queue[string]{}
	tend(t, a, allNamespaces)
	if name, _, _, ok := a.namespaces.queue.queue.get(); name != "shop" || !ok {
		t.Errorf("want the namespace found that lost a label, got %q", name)
	}
	tend(t, a, "shop")
	if got := enforced(); got != "baseline" {
		t.Errorf("after the removal of a label: want baseline, got %q", got)
	}

	s.change(func() { s.set("kubectl", map[string]string{enforceLabel: "restricted"}, nil) })
	tend(t, a, "shop")
	if got := enforced(); got != "restricted" {
		t.Errorf("a label of the member's administrator: want restricted, got %q", got)
	}
}

// TestEmptyNamespace: an empty namespace is deleted if the configuration asks for it, and only after it was marked
// for long enough.
func TestEmptyNamespace(t *testing.T) {
	const after = 3 * time.Minute
	now := time.Now()
	steps := []struct {
		reason     string
		emptyAfter time.Duration
		passes     time.Duration
		change     func(*shop)
		want       string
	}{
		{"Empty namespaces are to stay.", 0, 0, nil, "kept"},
		{"The namespace is found empty.", after, 0, nil, "marked"},
		{"The namespace was marked a moment ago.", after, time.Second, nil, "marked"},
		{"The time is not over yet.", after, after - 3*time.Second, nil, "marked"},
		{"The namespace got other content meanwhile.", after, 5 * time.Second, func(s *shop) { s.secrets = 1 }, "kept"},
		{"The namespace is empty again, so the time starts again.", after, time.Hour, func(s *shop) { s.secrets = 0 }, "marked"},
		{"Another client has changed the namespace.", after, after + 2*time.Second, func(s *shop) { s.set("kubectl", map[string]string{"team": "a"}, nil) }, "kept"},
		{"The label of the other client still exists.", after, time.Hour, nil, "kept"},
		{"The label is removed.", after, 0, func(s *shop) { s.unset("labels", "team") }, "marked"},
		{"Empty namespaces are to stay now.", 0, time.Hour, nil, "kept"},
		{"Empty namespaces are to be deleted again.", after, 0, nil, "marked"},
		{"The namespace was empty at each check for long enough.", after, after + 2*time.Second, nil, "gone"},
	}
	s := &shop{}
	a := shopkeeper(t, s, 0, onHub(nil))
	a.namespaces.now = func() time.Time { return now }
	if _, err := a.namespaces.create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	for i, step := range steps {
		a.namespaces.emptyAfter = step.emptyAfter
		now = now.Add(step.passes)
		if step.change != nil {
			s.change(func() { step.change(s) })
		}
		tend(t, a, "shop")
		if got := s.state(); got != step.want {
			t.Errorf("step %d: %s\nwant it %s, got %s", i, step.reason, step.want, got)
		}
	}
}

// TestMarkedNamespaceIsFound: a restarted controller finds a marked namespace.
func TestMarkedNamespaceIsFound(t *testing.T) {
	s := &shop{}
	a := shopkeeper(t, s, LeastEmpty, onHub(nil))
	if _, err := a.namespaces.create(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	a.namespaces.source.view.synced = true
	found := func() bool {
		a.namespaces.queue.queue = queue[string]{}
		tend(t, a, allNamespaces)
		_, _, _, ok := a.namespaces.queue.queue.get()
		return ok
	}
	if !found() {
		t.Error("want the namespace found that became empty while no controller ran")
	}
	tend(t, a, "shop")
	if found() {
		t.Error("want no work before the time is over")
	}
	a.namespaces.now = func() time.Time { return time.Now().Add(LeastEmpty + 2*time.Second) }
	if !found() {
		t.Error("want the namespace found whose time is over")
	}
}

// crowded is a member that claims a number of namespaces as created for copies and due for deletion.
type crowded struct {
	*shop

	namespaces int
}

func (s *crowded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.URL.Path != "/api/v1/namespaces" || r.Method != http.MethodGet || q.Get("fieldSelector") != "" {
		s.shop.ServeHTTP(w, r)
		return
	}
	begin, size := 0, 0
	_, _ = fmt.Sscan(q.Get("continue"), &begin) // The first page has no token.
	_, _ = fmt.Sscan(q.Get("limit"), &size)
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
	}
	for i := begin; i < min(begin+size, s.namespaces); i++ {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("n-%d", i),
			Annotations: map[string]string{refractv1alpha1.NamespaceAnnotation: theHub, refractv1alpha1.RemoveAfterAnnotation: "2026-01-02T03:04:05Z"},
		}})
	}
	if begin+size < s.namespaces {
		list.Continue = fmt.Sprint(begin + size)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) //nolint:errchkjson // The client may have closed the connection.
}

// TestCrowd: the number of namespaces that wait for a check is bounded, whatever the member reports.
func TestCrowd(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		namespaces     int
		waiting        int
		leftForAnother bool
	}{
		"AtTheBound": {"This many may wait.", mostTended, mostTended, false},
		"Above":      {"The next check finds the others.", mostTended + 1, mostTended, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := shopkeeper(t, &crowded{&shop{}, tc.namespaces}, 0)
			a.namespaces.source.view.synced = true
			a.namespaces.queue.queue = queue[string]{}
			tend(t, a, allNamespaces)
			if got := a.namespaces.queue.size(); got != tc.waiting || a.namespaces.surveyed == tc.leftForAnother {
				t.Errorf("%s\nwant %d waiting, more left %t, got %d", tc.reason, tc.waiting, tc.leftForAnother, got)
			}
		})
	}
}

// TestNamespacesOfTheHub: each member is told about namespaces whose copied labels have changed. It checks the
// namespaces that exist at the start together.
func TestNamespacesOfTheHub(t *testing.T) {
	shop := func(labels map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "shop", "labels": labels, "resourceVersion": "1"}}}
	}
	restricted, baseline := map[string]any{enforceLabel: "restricted"}, map[string]any{enforceLabel: "baseline"}
	cases := map[string]struct {
		reason string
		before map[string]any // The labels at the first list of namespaces.
		change func(*view) error
		want   []string
	}{
		"Start":   {reason: "Each member checks its namespaces together.", before: restricted},
		"Changed": {"The namespace admits other pods.", restricted, func(v *view) error { return v.Update(shop(baseline)) }, []string{"shop"}},
		"Lost":    {"The namespace admits all pods.", restricted, func(v *view) error { return v.Update(shop(nil)) }, []string{"shop"}},
		"Came":    {"The namespace is new.", nil, func(v *view) error { return v.Update(shop(restricted)) }, []string{"shop"}},
		"Went":    {"The namespace is gone, and its labels with it.", restricted, func(v *view) error { return v.Delete(shop(restricted)) }, []string{"shop"}},
		"Relabelled": {
			"The label is not copied to members.", restricted,
			func(v *view) error { return v.Update(shop(map[string]any{enforceLabel: "restricted", "team": "a"})) }, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			h := newHubNamespaces(nil, nil, func(name string) { got = append(got, name) })
			if err := h.view.Replace([]any{shop(tc.before)}, "1"); err != nil {
				t.Fatal(err)
			}
			if tc.change != nil {
				if err := tc.change(h.view); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nchanged: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNamespacesAreLookedAtAgain: a namespace is checked again when a failed request may succeed.
func TestNamespacesAreLookedAtAgain(t *testing.T) {
	none := schema.GroupResource{Resource: "namespaces"}
	type want struct {
		Again time.Duration
		Err   string
	}
	cases := map[string]struct {
		reason string
		err    error
		want   want
	}{
		"Done":      {reason: "There is no work."},
		"Gone":      {reason: "The same.", err: apierrors.NewNotFound(none, "shop")},
		"Changed":   {"Another client has changed the namespace: it is checked again.", apierrors.NewConflict(none, "shop", nil), want{Again: firstRetry}},
		"Forbidden": {"The right may be granted later.", apierrors.NewForbidden(none, "shop", nil), want{Again: tidyAgain}},
		"Failed":    {"The check is repeated, later each time.", errors.New("no answer"), want{Err: "reading namespace shop of cluster m: no answer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := &namespaces{member: &member.Member{Name: "m", Copies: &member.Copies{}}}
			result, err := n.settle("shop", "reading", tc.err)
			got := want{Again: result.RequeueAfter}
			if err != nil {
				got.Err = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nsettle(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
