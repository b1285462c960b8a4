package propagation

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clientrest "k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"refract.dev/internal/poll"
)

// TestLook: the right to list is sufficient to prove that an object is gone. A right to get all types would include
// nodes/proxy and pods/exec. The hub of the test ignores field selectors.
func TestLook(t *testing.T) {
	var (
		widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		kinds   = map[schema.GroupVersionResource]string{widgets: "WidgetList", crdResource: "CustomResourceDefinitionList"}
		key     = Key{GroupResource: widgets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
		served  = source{gvr: widgets, kind: "Widget"}
		label   = map[string]any{"kubeadmiral.io/propagation-policy-name": "everywhere"}

		// The answer of an API server to a path that it does not serve.
		unserved = apierrors.NewGenericServerResponse(404, "list", widgets.GroupResource(), "", "404 page not found", 0, true)
	)
	widget := func(name string, labels map[string]any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": name, "labels": labels},
		}}
	}
	crd := func(name string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		}}
	}
	list := func(meta map[string]any) runtime.Object {
		return &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "WidgetList", "metadata": meta}}
	}
	cases := map[string]struct {
		reason string
		hub    []runtime.Object
		answer runtime.Object // The answer to a list of widgets; nil for the fake's own answer.
		err    error          // Its error.
		src    source
		want   string
		asked  []string
	}{
		"There": {
			"The object asks to be propagated, so the cache is behind.",
			[]runtime.Object{widget("other", nil), widget("web", label)}, nil, nil, served, "stays", []string{"widgets metadata.name=web"},
		},
		"NoLongerAsks": {
			"The object has lost its label.",
			[]runtime.Object{widget("web", nil), widget("webshop", label)}, nil, nil, served, "gone", []string{"widgets metadata.name=web"},
		},
		"NotFound": {
			"The server serves the type without the object, whatever else the list contains.",
			[]runtime.Object{widget("webshop", label)}, nil, nil, served, "gone", []string{"widgets metadata.name=web"},
		},
		"PartOfAList": {
			"The object may be in the rest of the list.",
			nil, list(map[string]any{"continue": "more"}), nil, served, "want a whole list", []string{"widgets metadata.name=web"},
		},
		"NotServed": {
			"The type is about to be served: an API server has just started.",
			[]runtime.Object{crd("widgets.example.com")}, nil, unserved, served, "stays",
			[]string{"widgets metadata.name=web", "customresourcedefinitions metadata.name=widgets.example.com"},
		},
		"TypeGone": {
			"All objects were deleted with their type.",
			[]runtime.Object{crd("gadgets.example.com")}, nil, unserved, served, "gone",
			[]string{"widgets metadata.name=web", "customresourcedefinitions metadata.name=widgets.example.com"},
		},
		"TypeUnknown": {
			"The same for a type that did not exist when this process started.",
			nil, nil, nil, source{}, "gone", []string{"customresourcedefinitions metadata.name=widgets.example.com"},
		},
		"Forbidden": {
			"Nobody knows.",
			nil, nil, apierrors.NewForbidden(widgets.GroupResource(), "", nil), served, "looking for the source of copies", []string{"widgets metadata.name=web"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, tc.hub...)
			hub.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.answer != nil || tc.err != nil, tc.answer, tc.err
			})
			s := newSources(hub, nil, discard)
			obj, gone, err := s.look(t.Context(), key, tc.src)
			got := "stays"
			if gone != "" {
				got = "gone"
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) || (obj != nil) != (gone == causeWithdrawn) {
				t.Errorf("%s\nlook(): got %v, %s, want %s", tc.reason, obj, got, tc.want)
			}
			var asked []string
			for _, a := range hub.Actions() {
				l, ok := a.(clienttesting.ListAction)
				if !ok {
					t.Errorf("%s\nlook() made a request %s, want only lists", tc.reason, a.GetVerb())
					continue
				}
				asked = append(asked, l.GetResource().Resource+" "+l.GetListRestrictions().Fields.String())
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("%s\nlook(): requests: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLookKeeps: look returns a follower, and the sources know it from then on.
func TestLookKeeps(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	key := Key{GroupResource: secrets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "db"}}
	db := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": "db", "resourceVersion": "7"},
	}}
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{secrets: "SecretList"}, db)
	s := newSources(hub, nil, discard)
	s.types[key.GroupResource] = &sourceType{gvr: secrets, kind: "Secret", namespaced: true, others: &view{}}
	s.wanted[key.GroupResource] = map[types.NamespacedName]bool{key.NamespacedName: true}
	obj, gone, err := s.look(t.Context(), key, source{gvr: secrets, kind: "Secret"})
	if err != nil || gone != "" || obj.GetName() != "db" || obj.GetKind() != "Secret" || obj.GetResourceVersion() != "7" {
		t.Errorf("look(): got %v, %q, %v, want the Secret", obj, gone, err)
	}
	if kept, _ := s.types[key.GroupResource].others.get(key.NamespacedName); kept == nil {
		t.Error("want the Secret known from then on")
	}
}

// TestTypeThatTheHubDoesNotServe: each time that the hub stops serving a listed type, one line is logged. The type is
// watched again only when the hub lists it. Its known objects stay until discovery no longer lists the type.
func TestTypeThatTheHubDoesNotServe(t *testing.T) {
	hub := &widgetHub{listed: true, served: true, items: []string{"web"}}
	server := httptest.NewServer(hub)
	t.Cleanup(server.Close)
	cfg := &clientrest.Config{Host: server.URL, QPS: -1}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said []string
	s := newSources(dyn, disco, funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, "no longer serves a type") {
			said = append(said, line)
		}
	}, funcr.Options{}))
	ctx, stop := context.WithCancel(t.Context())
	defer s.watches.Wait()
	defer stop()
	web := Key{GroupResource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	more := web
	more.Name = "more"
	has := func(key Key) bool {
		src, known := s.get(key)
		return known && src.object != nil
	}
	resting := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		is := s.types[web.GroupResource]
		return is != nil && is.resting
	}
	discover := func() {
		t.Helper()
		if err := s.discover(ctx); err != nil {
			t.Fatal(err)
		}
	}
	discover()
	poll.Until(t, "the object is known", func() bool { return has(web) })

	hub.set(func() { hub.served = false })
	poll.Until(t, "the type is not watched any more", resting)
	for range 3 { // Discovery is outdated.
		<-s.wake
		discover()
		poll.Until(t, "the type is not watched any more, although discovery lists it", resting)
	}
	if _, complete := s.all(); !has(web) || !complete {
		t.Error("want the known objects kept")
	}

	hub.set(func() { hub.served, hub.items = true, []string{"web", "more"} })
	discover()
	poll.Until(t, "the returned type is watched", func() bool { return has(web) && has(more) && !resting() })

	hub.set(func() { hub.served, hub.listed = false, false })
	poll.Until(t, "the type is not watched any more", resting)
	discover()
	if has(web) || s.kind(schema.GroupKind{Group: "example.com", Kind: "Widget"}) != nil {
		t.Error("want the objects forgotten when discovery does not list the type")
	}
	hub.set(func() { hub.served, hub.listed = true, true })
	discover()
	poll.Until(t, "the type is found again", func() bool { return has(web) && has(more) })

	mu.Lock()
	defer mu.Unlock()
	if len(said) != 2 || !strings.Contains(said[1], `"type"="widgets.example.com"`) {
		t.Errorf("want one line with the name of the type for each time that it disappeared, got %q", said)
	}
}

// widgetHub is an API server with the type Widget.
type widgetHub struct {
	mu             sync.Mutex
	listed, served bool // Whether discovery lists the type, and whether the server serves it.
	items          []string
	ended          chan struct{} // Closed when set is called; nil if no request waits for it.
}

func (h *widgetHub) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	if h.ended != nil {
		close(h.ended)
		h.ended = nil
	}
}

func (h *widgetHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	listed, served, items := h.listed, h.served, h.items
	if h.ended == nil {
		h.ended = make(chan struct{})
	}
	ended := h.ended
	h.mu.Unlock()
	const group = "example.com/v1"
	version := metav1.GroupVersionForDiscovery{GroupVersion: group, Version: "v1"}
	reply := func(code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // The client may have closed the connection.
	}
	switch {
	case r.URL.Path == "/api":
		reply(http.StatusOK, metav1.APIVersions{})
	case r.URL.Path == "/apis" && listed:
		reply(http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{
			Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		}}})
	case r.URL.Path == "/apis":
		reply(http.StatusOK, metav1.APIGroupList{})
	case r.URL.Path == "/apis/"+group && listed:
		reply(http.StatusOK, metav1.APIResourceList{GroupVersion: group, APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: []string{"list", "watch", "patch", "delete"}},
		}})
	case !served || r.URL.Path != "/apis/"+group+"/widgets":
		http.Error(w, "404 page not found", http.StatusNotFound)
	case r.URL.Query().Get("sendInitialEvents") != "":
		reply(http.StatusUnprocessableEntity, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	default:
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": group, "kind": "WidgetList", "metadata": map[string]any{"resourceVersion": "9"}}}
		for _, name := range items {
			list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": group, "kind": "Widget", "metadata": map[string]any{"namespace": "shop", "name": name, "uid": name, "resourceVersion": "7"},
			}})
		}
		reply(http.StatusOK, list)
	}
}
