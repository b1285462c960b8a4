package simulation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var configMapType = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// configOf returns the controllers' client configuration for a member.
func configOf(m *Member) *rest.Config {
	return &rest.Config{Host: m.Endpoint, BearerToken: m.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: m.CA}}
}

func metadataClient(t *testing.T, cfg *rest.Config) metadata.Interface {
	t.Helper()
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestClient: a member works with the client and the encodings of the controllers.
func TestClient(t *testing.T) {
	m := startOne(t)
	client := metadataClient(t, configOf(m)).Resource(configMapType).Namespace("default")
	managed := metav1.ListOptions{LabelSelector: "kubeadmiral.io/managed=true"}
	list, err := client.List(t.Context(), managed)
	if err != nil {
		t.Fatal(err)
	}
	managed.ResourceVersion = list.ResourceVersion
	w, err := client.Watch(t.Context(), managed)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	force := true
	body := fmt.Sprintf(settings, "", "", "1")
	got, err := client.Patch(t.Context(), "settings", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "refract", Force: &force})
	if err != nil {
		t.Fatal(err)
	}
	uid := got.UID
	if err := client.Delete(t.Context(), "settings", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Fatal(err)
	}
	type event struct {
		Type watch.EventType
		UID  types.UID
	}
	var events []event
	for len(events) < 2 {
		e, ok := <-w.ResultChan()
		if !ok {
			t.Fatal("the watch ended")
		}
		events = append(events, event{e.Type, e.Object.(*metav1.PartialObjectMetadata).UID})
	}
	if diff := cmp.Diff([]event{{watch.Added, uid}, {watch.Deleted, uid}}, events); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestDiscovery(t *testing.T) {
	m := startOne(t)
	d, err := discovery.NewDiscoveryClientForConfig(configOf(m))
	if err != nil {
		t.Fatal(err)
	}
	lists, err := discovery.ServerPreferredResources(d)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range lists {
		n += len(l.APIResources)
	}
	if n != len(resources) {
		t.Errorf("%d types, want %d", n, len(resources))
	}
	if _, err := d.ServerVersion(); err != nil {
		t.Error(err)
	}
}

func TestLocate(t *testing.T) {
	cases := map[string]struct {
		reason, path string
		want         string
	}{
		"List":        {"The path lists a type of the core group in all namespaces.", "/api/v1/configmaps", "configmaps//"},
		"Namespaced":  {"The path names an object of a named group.", "/apis/apps/v1/namespaces/a/deployments/b", "deployments/a/b"},
		"Namespace":   {"A namespace is a cluster-scoped object.", "/api/v1/namespaces/a", "namespaces//a"},
		"Namespaces":  {"The path lists a type in a namespace, not a subresource of the namespace.", "/api/v1/namespaces/a/secrets", "secrets/a/"},
		"NoNamespace": {"The path of a namespaced object needs a namespace.", "/api/v1/secrets/a", ""},
		"Version":     {"Another version is not served.", "/apis/apps/v1beta1/deployments", ""},
		"Deeper":      {"Subresources are not served.", "/api/v1/namespaces/a/pods/b/status", ""},
		"Short":       {"A group alone is not a type.", "/apis/apps", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if p, ok := locate(tc.path); ok {
				got = p.Resource + "/" + p.namespace + "/" + p.name
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nlocate(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	cases := map[string]struct {
		reason string
		fault  Fault
		token  string
		want   int
		header string
	}{
		"None":    {reason: "The zero value is no fault.", want: http.StatusOK},
		"Code":    {reason: "A broken API server answers every request with the code.", fault: Fault{Code: 500}, want: http.StatusInternalServerError},
		"TooMany": {reason: "An answer with 429 has the header Retry-After.", fault: Fault{Code: 429}, want: http.StatusTooManyRequests, header: "1"},
		"Delay":   {reason: "A delayed answer is complete.", fault: Fault{Delay: time.Millisecond, Jitter: time.Millisecond}, want: http.StatusOK},
		"Token":   {reason: "Another token is rejected.", token: "another", want: http.StatusUnauthorized},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &Member{Access: Access{Token: "token"}}
			(&Fleet{Members: []*Member{m}}).SetFault("", tc.fault)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
			r.Header.Set("Authorization", "Bearer token"+tc.token)
			w := httptest.NewRecorder()
			m.ServeHTTP(w, r)
			if diff := cmp.Diff(tc.want, w.Code); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.header, w.Header().Get("Retry-After")); diff != "" {
				t.Errorf("%s\nRetry-After: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHang: a hanging member does not answer, and its request ends with the client.
func TestHang(t *testing.T) {
	m := &Member{Access: Access{Token: "token"}}
	f := &Fleet{Members: []*Member{m}}
	f.SetFault("", Fault{Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
		close(ended)
	}()
	cancel()
	<-ended
	if n := f.Requests()["probe"]; n != 0 {
		t.Errorf("%d requests were answered, want none", n)
	}
}

// TestExpired: a watch of a version that is too old gets an error, so that its client lists again.
func TestExpired(t *testing.T) {
	s := newTestStore(t, 1, newLibrary())
	at := place{resource: byName[configMapType], namespace: "default", name: "a"}
	for i := range history + 1 {
		put(t, s, at, fmt.Sprintf(settings, "", "", fmt.Sprint(i%2)))
	}
	q := query{resource: at.resource, labels: labels.Everything()}
	if _, _, _, err := s.since(q, 100); !apierrors.IsResourceExpired(err) {
		t.Errorf("since() = %v, want an error that the version is too old", err)
	}
	changes, newest, more, err := s.since(q, s.version-2)
	if err != nil || len(changes) != 2 || newest != s.version {
		t.Errorf("since() = %d changes until %d, %v; want 2 until %d", len(changes), newest, err, s.version)
	}
	put(t, s, at, fmt.Sprintf(settings, "", "", "more"))
	<-more
}

// TestFinalizers: an object with finalizers stays until they are removed.
func TestFinalizers(t *testing.T) {
	s := newTestStore(t, 1, newLibrary())
	at := place{resource: byName[configMapType], namespace: "default", name: "a"}
	put(t, s, at, `{"metadata":{"finalizers":["a/b"]}}`)
	o, err := s.delete(at, "")
	if err != nil || o.deleted == 0 {
		t.Fatalf("delete() = %v, %v; want an object in deletion", o, err)
	}
	put(t, s, at, `{"metadata":{}}`)
	if _, err := s.get(at); !apierrors.IsNotFound(err) {
		t.Errorf("get() = %v, want a NotFound error", err)
	}
}

// TestNamespaceGoes: the deletion of a namespace deletes its objects.
func TestNamespaceGoes(t *testing.T) {
	s := newTestStore(t, 1, newLibrary())
	at := place{resource: byName[configMapType], namespace: "default", name: "a"}
	put(t, s, at, fmt.Sprintf(settings, "", "", "1"))
	if _, err := s.delete(place{resource: namespaces, name: "default"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.get(at); !apierrors.IsNotFound(err) {
		t.Errorf("get() = %v, want a NotFound error", err)
	}
}

// TestFootprint: a million copies fit in memory, because each content is stored once and a copy takes some hundred bytes.
func TestFootprint(t *testing.T) {
	const members, objects = 40, 500
	shared := newLibrary()
	var stores []*store
	before := heap()
	for i := range members {
		s := newTestStore(t, i, shared)
		for o := range objects {
			name := fmt.Sprintf("web-%d", o)
			put(t, s, place{resource: byName[configMapType], namespace: "default", name: name},
				fmt.Sprintf(`{"metadata":{"resourceVersion":"1","name":"%s"},"data":{"a":"%s"}}`, name, strings.Repeat("x", 2000)))
		}
		stores = append(stores, s)
	}
	each := (heap() - before) / (members * objects)
	if each > 600 {
		t.Errorf("a copy takes %d bytes, want at most 600", each)
	}
	if n := len(shared.contents); n > objects+3 {
		t.Errorf("%d contents are held, want %d", n, objects)
	}
	runtime.KeepAlive(stores)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func newTestStore(t *testing.T, number int, l *library) *store {
	t.Helper()
	s, err := newStore(number, l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *store, at place, body string) {
	t.Helper()
	by := manager{name: "refract", operation: metav1.ManagedFieldsOperationApply}
	_, _, err := s.write(at, written{by: by, body: []byte(body)})
	if err != nil {
		t.Fatal(errors.Join(fmt.Errorf("writing %s", at.name), err))
	}
}
