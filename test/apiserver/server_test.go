package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

var configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// fresh returns a server with a fixed time.
func fresh(tb testing.TB) *Server {
	tb.Helper()
	s := New(Options{Types: append(BuiltIn(), refractTypes(tb)...), Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	s.Wipe()
	return s
}

func made(tb testing.TB, s *Server, text string) *unstructured.Unstructured {
	tb.Helper()
	o, _ := parsed(text).(map[string]any)
	u, err := s.As("alice").Create(&unstructured.Unstructured{Object: o})
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

const settings = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"default","labels":{"app":"%s"}},"data":{"a":"1"}}`

func watched(t *testing.T, s *Server, query string) *Watch {
	t.Helper()
	w, refused := s.Watch(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps?watch=true&"+query, nil))
	if refused != nil {
		t.Fatalf("%s: %s", query, refused.Body)
	}
	return w
}

// told returns the pending events of a watch in short form.
func told(w *Watch) []string {
	var all []string
	for w.Waiting() > 0 {
		var e struct {
			Type   string `json:"type"`
			Object struct {
				Code     int               `json:"code"`
				Metadata metav1.ObjectMeta `json:"metadata"`
			} `json:"object"`
		}
		if err := json.Unmarshal(w.Next(), &e); err != nil {
			panic(err)
		}
		text := e.Type + " " + e.Object.Metadata.Name
		if e.Object.Code != 0 {
			text = fmt.Sprint(e.Type, " ", e.Object.Code)
		}
		if e.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] != "" {
			text += "(initial)"
		}
		all = append(all, text)
	}
	return all
}

// TestWatches: the events of a watch depend on its start and its selection.
func TestWatches(t *testing.T) {
	s := fresh(t)
	before := s.Version()
	made(t, s, fmt.Sprintf(settings, "one", "web"))
	made(t, s, fmt.Sprintf(settings, "two", "api"))
	middle := s.Version()
	patch := func(name, body string) {
		t.Helper()
		if _, err := s.As("alice").Patch(configmaps, "default", name, types.MergePatchType, []byte(body), ""); err != nil {
			t.Fatal(err)
		}
	}
	patch("two", `{"metadata":{"labels":{"app":"web"}}}`)
	patch("one", `{"metadata":{"labels":{"app":"api"}}}`)
	if err := s.As("alice").Delete(configmaps, "default", "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		query string
		want  []string
	}{
		"All":         {fmt.Sprint("resourceVersion=", before), []string{"ADDED one", "ADDED two", "MODIFIED two", "MODIFIED one", "DELETED two"}},
		"Some":        {fmt.Sprint("resourceVersion=", middle), []string{"MODIFIED two", "MODIFIED one", "DELETED two"}},
		"Selected":    {fmt.Sprint("labelSelector=app%3Dweb&resourceVersion=", before), []string{"ADDED one", "ADDED two", "DELETED one", "DELETED two"}},
		"Named":       {fmt.Sprint("fieldSelector=metadata.name%3Done&resourceVersion=", before), []string{"ADDED one", "MODIFIED one"}},
		"Now":         {"", []string{"ADDED one"}},
		"Initial":     {"sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", []string{"ADDED one", "BOOKMARK (initial)"}},
		"NoBookmarks": {"sendInitialEvents=true&resourceVersionMatch=NotOlderThan", []string{"ADDED one"}},
		"Future":      {"resourceVersion=1000", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := watched(t, s, tc.query)
			if diff := gocmp.Diff(tc.want, told(w)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			w.Stop()
		})
	}
	s.Compact()
	if diff := gocmp.Diff([]string{"ERROR 410"}, told(watched(t, s, fmt.Sprint("resourceVersion=", middle)))); diff != "" {
		t.Errorf("after a compaction: -want, +got:\n%s", diff)
	}
	w := watched(t, s, fmt.Sprint("allowWatchBookmarks=true&resourceVersion=", s.Version()))
	if b := string(w.Bookmark()); !strings.Contains(b, fmt.Sprintf(`"resourceVersion":"%d"`, s.Version())) {
		t.Errorf("want a bookmark with the present version, got %s", b)
	}
	made(t, s, fmt.Sprintf(settings, "three", "web"))
	if b := w.Bookmark(); b != nil {
		t.Errorf("want no bookmark before a waiting event, got %s", b)
	}
	if text := string(w.Expire()); !strings.Contains(text, `"code":410`) || !w.Ended() || w.Waiting() != 0 {
		t.Errorf("want an expired watch to end with code 410 and without events, got %s, ended %t, waiting %d", text, w.Ended(), w.Waiting())
	}
}

// TestTypesGo: objects are removed with their type, and watches end.
func TestTypesGo(t *testing.T) {
	s := fresh(t)
	cluster := `{"apiVersion":"core.kubeadmiral.io/v1alpha1","kind":"FederatedCluster","metadata":{"name":"a"},"spec":{"apiEndpoint":"https://a","secretRef":{"name":"s"}}}`
	made(t, s, cluster)
	w, _ := s.Watch(httptest.NewRequest(http.MethodGet, "/apis/core.kubeadmiral.io/v1alpha1/federatedclusters?watch=true", nil))
	s.SetTypes(BuiltIn())
	if diff := gocmp.Diff([]string{"ADDED a", "DELETED a"}, told(w)); diff != "" || !w.Ended() {
		t.Errorf("ended %t; -want, +got:\n%s", w.Ended(), diff)
	}
	if a := s.Serve(httptest.NewRequest(http.MethodGet, "/apis/core.kubeadmiral.io/v1alpha1/federatedclusters", nil), nil); a.Code != http.StatusNotFound {
		t.Errorf("a list of a removed type: got code %d", a.Code)
	}
	s.SetTypes(append(BuiltIn(), refractTypes(t)...))
	if all := s.All(schema.GroupVersionResource{Group: "core.kubeadmiral.io", Version: "v1alpha1", Resource: "federatedclusters"}); len(all) != 0 {
		t.Errorf("want no objects after the type is served again, got %v", all)
	}
}

// TestPages: all pages of a list show the same resourceVersion, and a page of a compacted version is rejected.
func TestPages(t *testing.T) {
	s := fresh(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		made(t, s, fmt.Sprintf(settings, name, "web"))
	}
	page := func(token string) (list metav1.PartialObjectMetadataList, a *Answer) {
		a = s.Serve(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/default/configmaps?limit=2&continue="+token, nil), nil)
		if err := json.Unmarshal(a.Body, &list); err != nil {
			t.Fatal(err)
		}
		return list, a
	}
	first, _ := page("")
	if err := s.As("alice").Delete(configmaps, "default", "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, _ := page(first.Continue)
	if len(second.Items) != 2 || second.Items[0].Name != "c" || second.ResourceVersion != first.ResourceVersion || *first.RemainingItemCount != 2 || second.Continue != "" {
		t.Errorf("the second page: %+v", second)
	}
	s.Compact()
	if _, a := page(first.Continue); a.Code != http.StatusGone {
		t.Errorf("a page of a compacted version: got code %d", a.Code)
	}
}

// TestRestore: a restored server has the objects and the resourceVersions of the snapshot; a wiped server has none.
func TestRestore(t *testing.T) {
	s := fresh(t)
	made(t, s, fmt.Sprintf(settings, "one", "web"))
	backup, version := s.Snapshot(), s.Version()
	made(t, s, fmt.Sprintf(settings, "two", "web"))
	w := watched(t, s, fmt.Sprint("resourceVersion=", s.Version()))
	s.Restore(backup)
	if s.Version() != version || len(s.All(configmaps)) != 1 || !w.Ended() {
		t.Errorf("version %d instead of %d, %d objects, watch ended %t", s.Version(), version, len(s.All(configmaps)), w.Ended())
	}
	made(t, s, fmt.Sprintf(settings, "three", "web"))
	s.Restore(backup)
	if got := len(s.All(configmaps)); got != 1 {
		t.Errorf("want one object after the second restore, got %d", got)
	}
	was := s.Peek(namespaces, "", "kube-system").GetUID()
	s.Wipe()
	if len(s.All(configmaps)) != 0 || s.Peek(namespaces, "", "kube-system").GetUID() == was {
		t.Error("want another UID of a namespace after Wipe")
	}
}

// TestHooks: the registered functions see, change and reject writes.
func TestHooks(t *testing.T) {
	s := fresh(t)
	var log []string
	s.OnWrite(func(w Write) {
		log = append(log, fmt.Sprintf("%s %s %s/%s before=%t after=%t by %s", w.Verb, w.Subresource, w.Namespace, w.Name, w.Before != nil, w.After != nil, w.User))
	})
	s.Mutate(func(w Write) {
		if w.Name == "one" && w.After != nil {
			w.After.SetLabels(map[string]string{"mutated": "yes"})
		}
	})
	s.Admit(func(w Write) *apierrors.StatusError {
		if w.Name == "forbidden" {
			return apierrors.NewForbidden(w.GVR.GroupResource(), w.Name, errors.New("no"))
		}
		return nil
	})
	alice := s.As("alice")
	if got := made(t, s, fmt.Sprintf(settings, "one", "web")); got.GetLabels()["mutated"] != "yes" {
		t.Errorf("the labels are %v", got.GetLabels())
	}
	o, _ := parsed(fmt.Sprintf(settings, "forbidden", "web")).(map[string]any)
	if _, err := alice.Create(&unstructured.Unstructured{Object: o}); !apierrors.IsForbidden(err) {
		t.Errorf("want a write that the function rejects to be Forbidden, got %v", err)
	}
	steps := []func() error{
		func() error {
			_, err := alice.Patch(configmaps, "default", "one", types.MergePatchType, []byte(`{"data":{"a":"1"}}`), "")
			return err
		},
		func() error {
			_, err := alice.Patch(configmaps, "default", "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/x"]}}`), "")
			return err
		},
		func() error {
			return alice.Delete(configmaps, "default", "one", metav1.DeleteOptions{DryRun: []string{"All"}})
		},
		func() error { return alice.Delete(configmaps, "default", "one", metav1.DeleteOptions{}) },
		func() error {
			_, err := alice.Patch(configmaps, "default", "one", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), "")
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"create  default/one before=false after=true by alice", "patch  default/one before=true after=true by alice",
		"delete  default/one before=true after=true by alice", "removed  default/one before=true after=false by alice",
	}
	if diff := gocmp.Diff(want, log); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestNamespaceEnds: a namespace is removed once it is empty, and accepts no new objects meanwhile.
func TestNamespaceEnds(t *testing.T) {
	s := fresh(t)
	made(t, s, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	made(t, s, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","finalizers":["example.com/x"]}}`)
	if s.FinishNamespace("shop") {
		t.Error("FinishNamespace() of a namespace that is not being deleted = true, want false")
	}
	if err := s.As("alice").Delete(namespaces, "", "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o, _ := parsed(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"shop"}}`).(map[string]any)
	if _, err := s.As("alice").Create(&unstructured.Unstructured{Object: o}); !apierrors.HasStatusCause(err, "NamespaceTerminating") {
		t.Errorf("want an error for a new object in a namespace that is being deleted, got %v", err)
	}
	if s.FinishNamespace("shop") {
		t.Error("FinishNamespace() with an object that a finalizer keeps = true, want false")
	}
	if _, err := s.As("alice").Patch(configmaps, "shop", "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), ""); err != nil {
		t.Fatal(err)
	}
	if !s.FinishNamespace("shop") || s.Peek(namespaces, "", "shop") != nil {
		t.Error("want the empty namespace to be removed")
	}
}

// TestOrphans: an object is an orphan if none of its owners exists.
func TestOrphans(t *testing.T) {
	s := fresh(t)
	owner := made(t, s, fmt.Sprintf(settings, "owner", "web"))
	made(t, s, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned","namespace":"default","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"%s"}]}}`, owner.GetUID()))
	if got := s.Orphans(); len(got) != 0 {
		t.Errorf("want no orphan while the owner exists, got %v", got)
	}
	if err := s.As("alice").Delete(configmaps, "default", "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.Orphans(); len(got) != 1 || got[0].Name != "owned" {
		t.Errorf("want one orphan after the deletion of the owner, got %v", got)
	}
}

// TestEviction: a budget protects pods, and allows the specified number of evictions.
func TestEviction(t *testing.T) {
	s := fresh(t)
	for _, name := range []string{"a", "b"} {
		made(t, s, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"default","labels":{"app":"web"}},"spec":{"nodeName":"n","containers":[{"name":"a","image":"a"}]}}`, name))
		if _, err := s.As("kubelet").Patch(pods, "default", name, types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), "status"); err != nil {
			t.Fatal(err)
		}
	}
	made(t, s, `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"p","namespace":"default"},"spec":{"selector":{"matchLabels":{"app":"web"}}}}`)
	if _, err := s.As("controller").Patch(budgets, "default", "p", types.MergePatchType, []byte(`{"status":{"observedGeneration":1,"disruptionsAllowed":1}}`), "status"); err != nil {
		t.Fatal(err)
	}
	evict := func(name string) int {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/pods/"+name+"/eviction", nil)
		return s.Serve(r, []byte(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+name+`"}}`)).Code
	}
	if got := evict("a"); got != http.StatusCreated {
		t.Errorf("the first eviction: got code %d", got)
	}
	if got := evict("b"); got != http.StatusTooManyRequests {
		t.Errorf("the second eviction: got code %d", got)
	}
	if p := s.Peek(pods, "default", "a"); p == nil || *p.GetDeletionGracePeriodSeconds() != 30 {
		t.Errorf("want a graceful deletion of a pod on a node, got %v", p)
	}
	none := int64(0)
	if err := s.As("kubelet").Delete(pods, "default", "a", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil || s.Peek(pods, "default", "a") != nil {
		t.Errorf("want the kubelet's deletion to remove the pod: %v", err)
	}
}

// TestTokenRequest: the function of the caller makes the tokens of existing accounts.
func TestTokenRequest(t *testing.T) {
	until := time.Unix(1_700_000_600, 0)
	cases := map[string]struct {
		reason, account, body string
		token                 func(namespace, account string, life time.Duration) (string, time.Time)
		code                  int
		want                  string
	}{
		"Asked": {
			"The requested lifetime is passed to the function.", "default/refract", `{"spec":{"expirationSeconds":600}}`,
			func(namespace, account string, life time.Duration) (string, time.Time) {
				return fmt.Sprint(namespace, "/", account, " ", life), until
			},
			http.StatusCreated, "default/refract 10m0s",
		},
		"NoAccount": {
			"No such account.", "default/other", `{}`, func(string, string, time.Duration) (string, time.Time) { return "t", until }, http.StatusNotFound, "",
		},
		"NoFunction": {"The caller provides no function.", "default/refract", `{}`, nil, http.StatusNotFound, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Types: BuiltIn(), Token: tc.token})
			s.Wipe()
			made(t, s, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"namespace":"default","name":"refract"}}`)
			namespace, account, _ := strings.Cut(tc.account, "/")
			a := s.Serve(httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", nil), []byte(tc.body))
			var got authenticationv1.TokenRequest
			if a.Code == http.StatusCreated {
				if err := json.Unmarshal(a.Body, &got); err != nil {
					t.Fatal(err)
				}
			}
			if a.Code != tc.code || got.Status.Token != tc.want {
				t.Errorf("%s\nwant %d and the token %q, got %d: %s", tc.reason, tc.code, tc.want, a.Code, a.Body)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	// TestVersions: the versions of a custom resource share their objects.
	types := refractTypes(t)
	v1 := types[0]
	v2 := v1
	v2.GVR.Version = "v2"
	schema := *v1.Schema
	schema.storage = v1.GVR.Version
	v2.Schema = &schema
	s := New(Options{Types: append(BuiltIn(), v1, v2)})
	if got, want := s.stores[v1.GVR.GroupResource()], s.stores[v2.GVR.GroupResource()]; got != want {
		t.Error("want one store for both versions")
	}
}

// transport connects clients to a server in this process. A Server is not safe for concurrent use, and the discovery
// client reads several groups at once.
type transport struct {
	mu sync.Mutex
	s  *Server
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.s.Serve(r, nil)
	return &http.Response{StatusCode: a.Code, Header: a.Header, Body: io.NopCloser(strings.NewReader(string(a.Body))), Request: r}, nil
}

// TestClients: client-go can use discovery, and metadata as protobuf.
func TestClients(t *testing.T) {
	s := fresh(t)
	made(t, s, fmt.Sprintf(settings, "one", "web"))
	cfg := &rest.Config{Host: "http://x", Transport: &transport{s: s}}
	d := discovery.NewDiscoveryClientForConfigOrDie(cfg)
	count := func() (resources int) {
		t.Helper()
		_, lists, err := d.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range lists {
			resources += len(list.APIResources)
		}
		return resources
	}
	aggregated := count()
	d.UseLegacyDiscovery = true
	if got := count(); got != aggregated || got < len(s.order) {
		t.Errorf("discovery finds %d resources at once, and %d one by one, of %d", aggregated, got, len(s.order))
	}
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := m.Resource(configmaps).Namespace("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "one" || len(list.Items[0].ManagedFields) != 1 {
		t.Errorf("metadata: %v, %v", list, err)
	}
}

// TestSameEachTime: two servers give the same answers to the same requests, byte for byte.
func TestSameEachTime(t *testing.T) {
	run := func() []string {
		s := fresh(t)
		me := newSide("", inMemory(s))
		var all []string
		g := &generator{rand.New(rand.NewPCG(7, 0))}
		for _, a := range g.begin() {
			if _, err := me.ask(a); err != nil {
				t.Fatal(err)
			}
		}
		for range 600 {
			a := g.next()
			r := httptest.NewRequest(a.method, me.fill(a, a.path+"?"+a.query), strings.NewReader(me.fill(a, a.body)))
			r.Header.Set("Content-Type", a.media)
			r.Header.Set("Accept", a.accept)
			code, _, body, err := me.send(r)
			if err != nil {
				t.Fatal(err)
			}
			var o map[string]any
			if json.Unmarshal(body, &o) == nil {
				me.learn(a, o, code)
			}
			all = append(all, fmt.Sprint(a, code, string(body)))
		}
		return all
	}
	first, second := run(), run()
	for i := range first {
		if first[i] != second[i] {
			t.Fatalf("request %d\n%s\n%s", i, first[i], second[i])
		}
	}
}
