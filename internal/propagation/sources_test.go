package propagation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestLook asks whether an object is really gone, by no other right than to list: a
// right to get every type is one to nodes/proxy and pods/exec, too. The hub of the test
// does not heed field selectors.
func TestLook(t *testing.T) {
	var (
		widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		kinds   = map[schema.GroupVersionResource]string{widgets: "WidgetList", crdResource: "CustomResourceDefinitionList"}
		key     = Key{GroupResource: widgets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
		served  = source{gvr: widgets, kind: "Widget"}
		label   = map[string]any{"kubeadmiral.io/propagation-policy-name": "everywhere"}

		// What an API server answers to a path that it does not serve.
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
		answer runtime.Object // To a list of widgets, if there is one.
		err    error          // The same.
		src    source
		want   string
		asked  []string
	}{
		"There": {
			"It asks to be propagated: what was seen is behind.",
			[]runtime.Object{widget("other", nil), widget("web", label)}, nil, nil, served, "stays", []string{"widgets metadata.name=web"},
		},
		"NoLongerAsks": {
			"It has lost its label.",
			[]runtime.Object{widget("web", nil), widget("webshop", label)}, nil, nil, served, "gone", []string{"widgets metadata.name=web"},
		},
		"NotFound": {
			"A server that serves the type does not have it, whatever else that lists.",
			[]runtime.Object{widget("webshop", label)}, nil, nil, served, "gone", []string{"widgets metadata.name=web"},
		},
		"PartOfAList": {
			"Perhaps it is in the rest.",
			nil, list(map[string]any{"continue": "more"}), nil, served, "want a whole list", []string{"widgets metadata.name=web"},
		},
		"NotServed": {
			"Its type is about to be served: an API server has just begun.",
			[]runtime.Object{crd("widgets.example.com")}, nil, unserved, served, "stays",
			[]string{"widgets metadata.name=web", "customresourcedefinitions metadata.name=widgets.example.com"},
		},
		"TypeGone": {
			"With the type all of its objects have gone.",
			[]runtime.Object{crd("gadgets.example.com")}, nil, unserved, served, "gone",
			[]string{"widgets metadata.name=web", "customresourcedefinitions metadata.name=widgets.example.com"},
		},
		"TypeUnknown": {
			"The same, of a type that was not there when this began.",
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
			s := newSources(hub, nil, discard, func(Key, bool) {})
			obj, gone, err := s.look(t.Context(), key, tc.src)
			got := "stays"
			if gone != "" {
				got = "gone"
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) || obj != nil {
				t.Errorf("%s\nlook(): got %v, %s, want %s", tc.reason, obj, got, tc.want)
			}
			var asked []string
			for _, a := range hub.Actions() {
				l, ok := a.(clienttesting.ListAction)
				if !ok {
					t.Errorf("%s\nlook(): it has done a %s, want lists alone", tc.reason, a.GetVerb())
					continue
				}
				asked = append(asked, l.GetResource().Resource+" "+l.GetListRestrictions().Fields.String())
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("%s\nlook(): what it asked for: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLookKeeps: what travels with others is returned, and known from then on.
func TestLookKeeps(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	key := Key{GroupResource: secrets.GroupResource(), NamespacedName: types.NamespacedName{Namespace: "shop", Name: "db"}}
	db := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": "db", "resourceVersion": "7"},
	}}
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{secrets: "SecretList"}, db)
	s := newSources(hub, nil, discard, func(Key, bool) {})
	s.types[key.GroupResource] = &sourceType{gvr: secrets, kind: "Secret", namespaced: true, others: &view{}}
	s.wanted[key.GroupResource] = map[types.NamespacedName]bool{key.NamespacedName: true}
	obj, gone, err := s.look(t.Context(), key, source{gvr: secrets, kind: "Secret"})
	if err != nil || gone != "" || obj.GetName() != "db" || obj.GetKind() != "Secret" || obj.GetResourceVersion() != "7" {
		t.Errorf("look(): got %v, %q, %v, want the Secret", obj, gone, err)
	}
	if kept, _ := s.types[key.GroupResource].others.get(key.NamespacedName); kept == nil {
		t.Error("want it known from then on")
	}
}
