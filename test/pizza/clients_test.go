package pizza

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestA9List: all objects in a list have the requested version, whatever their stored versions are.
func TestA9List(t *testing.T) { each(t, a9List) }

func a9List(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(alpha, "one", `[a, b, a]`))
	s.create(pizza(beta, "two", `[{name: c, quantity: 3}]`))
	s.wantLists(map[string]string{"one": "[a b a] [2 a 1 b]", "two": "[c c c] [3 c]"})

	s.storeAsBeta()
	s.create(pizza(alpha, "three", `[d, d]`))
	versions := map[string]string{}
	for name, o := range s.stored() {
		versions[name] = o["apiVersion"].(string)
	}
	if diff := cmp.Diff(map[string]string{"one": alpha, "two": alpha, "three": beta}, versions); diff != "" {
		t.Fatalf("stored versions: -want, +got:\n%s", diff)
	}
	s.wantLists(map[string]string{"one": "[a b a] [2 a 1 b]", "two": "[c c c] [3 c]", "three": "[d d] [2 d]"})
}

// wantLists compares the toppings in lists of both versions: in pages, from etcd, and from the watch cache.
func (s *scene) wantLists(want map[string]string) {
	s.Helper()
	for _, raw := range []metav1.ListOptions{{Limit: 2}, {}, {ResourceVersion: "0"}} {
		got := map[string]string{}
		for _, version := range []string{alpha, beta} {
			// The watch cache may lack the latest writes.
			s.until("the list is whole", func(ctx context.Context) error {
				page, seen := raw, map[string]string{}
				for {
					list := &unstructured.UnstructuredList{}
					list.SetAPIVersion(version)
					list.SetKind("PizzaList")
					if err := s.api.List(ctx, list, client.InNamespace(s.ns), &client.ListOptions{Raw: &page}); err != nil {
						return err
					}
					for i := range list.Items {
						if is := list.Items[i].GetAPIVersion(); is != version {
							return fmt.Errorf("%s is in %s", list.Items[i].GetName(), is)
						}
						seen[list.Items[i].GetName()] = fmt.Sprint(names(&list.Items[i]))
					}
					if page.Continue = list.GetContinue(); page.Continue == "" {
						break
					}
				}
				if len(seen) != len(want) {
					return fmt.Errorf("the list has %v", seen)
				}
				for name, toppings := range seen {
					got[name] = strings.TrimPrefix(got[name]+" "+toppings, " ")
				}
				return nil
			})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("lists with %+v: -want, +got:\n%s", raw, diff)
		}
	}
}

// TestA9Watch: watches in both versions get the same events, each in its own version.
func TestA9Watch(t *testing.T) { each(t, a9Watch) }

func a9Watch(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	watches := map[string]apiwatch.Interface{}
	for _, version := range []string{alpha, beta} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind("PizzaList")
		w, err := s.api.Watch(t.Context(), list, client.InNamespace(s.ns))
		s.must(err)
		defer w.Stop()
		watches[version] = w
	}
	p := s.create(pizza(alpha, "p", `[a, a]`))
	s.must(s.api.Patch(t.Context(), object(beta, "Pizza", s.ns, "p"),
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"toppings":[{"name":"b","quantity":2},{"name":"c"}]}}`))))
	s.must(s.api.Delete(t.Context(), p))
	for version, want := range map[string][]string{
		alpha: {"ADDED [a a]", "MODIFIED [b b c]", "DELETED [b b c]"},
		beta:  {"ADDED [2 a]", "MODIFIED [2 b 1 c]", "DELETED [2 b 1 c]"},
	} {
		var got []string
		for range want {
			select {
			case e := <-watches[version].ResultChan():
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok || u.GetAPIVersion() != version {
					t.Fatalf("%s: the event %s has %v", version, e.Type, e.Object)
				}
				got = append(got, fmt.Sprint(e.Type, " ", names(u)))
			case <-t.Context().Done():
				t.Fatalf("%s: no event after %v", version, got)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: events: -want, +got:\n%s", version, diff)
		}
	}
}

// TestA9Patch: a patch applies to the object in the version of the request.
func TestA9Patch(t *testing.T) { each(t, a9Patch) }

func a9Patch(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(alpha, "p", `[a, b, a]`))
	cases := []struct {
		version string
		kind    types.PatchType
		patch   string
		want    []string // In v1alpha1.
	}{
		{beta, types.JSONPatchType, `[{"op":"replace","path":"/spec/toppings/1/quantity","value":3}]`, []string{"a", "a", "b", "b", "b"}},
		{alpha, types.JSONPatchType, `[{"op":"remove","path":"/spec/toppings/0"}]`, []string{"a", "b", "b", "b"}},
		{beta, types.MergePatchType, `{"spec":{"toppings":[{"name":"c","quantity":2}]}}`, []string{"c", "c"}},
		{alpha, types.MergePatchType, `{"metadata":{"labels":{"x":"y"}}}`, []string{"c", "c"}},
		{beta, types.MergePatchType, `{"status":{"cost":1.5}}`, []string{"c", "c"}},
		{alpha, types.MergePatchType, `{"spec":{"toppings":[]}}`, nil},
	}
	for _, tc := range cases {
		s.must(s.api.Patch(t.Context(), object(tc.version, "Pizza", s.ns, "p"), client.RawPatch(tc.kind, []byte(tc.patch))))
		if diff := cmp.Diff(tc.want, names(s.get(alpha, "p"))); diff != "" {
			t.Errorf("%s of %s: -want, +got:\n%s", tc.patch, tc.version, diff)
		}
	}
	p := s.get(beta, "p")
	if diff := cmp.Diff(map[string]any{"cost": 1.5}, p.Object["status"]); diff != "" {
		t.Errorf("status: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"x": "y"}, p.GetLabels()); diff != "" {
		t.Errorf("labels: -want, +got:\n%s", diff)
	}
	if len(p.GetAnnotations()) > 0 {
		t.Errorf("want no annotation: %v", p.GetAnnotations())
	}
}

// TestA9Delete: an object can be deleted in either version, alone or in a collection.
func TestA9Delete(t *testing.T) { each(t, a9Delete) }

func a9Delete(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	for _, name := range []string{"one", "two", "three"} {
		s.create(pizza(alpha, name, `[a]`))
	}
	s.must(s.api.Delete(t.Context(), object(beta, "Pizza", s.ns, "one")))
	s.must(s.api.Delete(t.Context(), object(alpha, "Pizza", s.ns, "two")))
	s.must(s.api.DeleteAllOf(t.Context(), object(beta, "Pizza", s.ns, ""), client.InNamespace(s.ns)))
	if stored := s.stored(); len(stored) > 0 {
		t.Errorf("some pizzas are left: %v", stored)
	}
}

// TestA9Apply: two managers apply their fields of one pizza in two versions. The API server converts partial objects
// for this.
func TestA9Apply(t *testing.T) { each(t, a9Apply) }

func a9Apply(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	kitchen := func(spec string, force bool) error {
		return s.apply("kitchen", force, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p"},%s}`, beta, spec))
	}
	till := func(rest string, force bool) error {
		return s.apply("till", force, fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p",%s}`, alpha, rest))
	}
	s.must(kitchen(`"spec":{"toppings":[{"name":"a","quantity":2},{"name":"b"}]}`, false))
	s.must(till(`"labels":{"paid":"no"}},"status":{"cost":4.5}`, false))
	s.must(kitchen(`"spec":{"toppings":[{"name":"a","quantity":3}]}`, false)) // A manager may change its own fields.
	s.wantParts("after both have applied", []string{"a", "a", "a"}, map[string]string{"paid": "no"}, 4.5)

	if owners := s.owners(); owners["kitchen"] != beta || owners["till"] != alpha {
		t.Errorf("the managers are %v", owners)
	}
	err := till(`"labels":{"paid":"yes"}},"spec":{"toppings":["c","c"]},"status":{"cost":5}`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "kitchen": .spec.toppings`) {
		t.Errorf("want a conflict if a manager applies another's field in another version: %v", err)
	}
	s.wantParts("after the conflict", []string{"a", "a", "a"}, map[string]string{"paid": "no"}, 4.5)

	s.must(till(`"labels":{"paid":"yes"}},"spec":{"toppings":["c","c"]},"status":{"cost":5}`, true))
	s.wantParts("after the till has taken over the toppings", []string{"c", "c"}, map[string]string{"paid": "yes"}, 5.0)

	// The kitchen takes the toppings back, and the till gives up all its fields except the label.
	s.must(kitchen(`"spec":{"toppings":[{"name":"d","quantity":2}]}`, true))
	s.must(till(`"labels":{"paid":"yes"}}`, false))
	p := s.get(alpha, "p")
	if diff := cmp.Diff([]string{"d", "d"}, names(p)); diff != "" {
		t.Errorf("the toppings of the kitchen: -want, +got:\n%s", diff)
	}
	if cost, ok, _ := unstructured.NestedFieldNoCopy(p.Object, "status", "cost"); ok {
		t.Errorf("a field that its manager no longer applies still exists: %v", cost)
	}
	if len(p.GetAnnotations()) > 0 {
		t.Errorf("want no annotation: %v", p.GetAnnotations())
	}
	if stored := s.stored()["p"]; stored["apiVersion"] != alpha {
		t.Errorf("it is stored as %v", stored["apiVersion"])
	}
}

// apply applies JSON with server-side apply.
func (s *scene) apply(manager string, force bool, manifest string) error {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(manifest)); err != nil {
		return fmt.Errorf("%w in %s", err, manifest)
	}
	u.SetNamespace(s.ns)
	how := []client.PatchOption{client.FieldOwner(manager)}
	if force {
		how = append(how, client.ForceOwnership)
	}
	return s.api.Patch(s.Context(), u, client.RawPatch(types.ApplyPatchType, []byte(manifest)), how...)
}

// wantParts compares the toppings, labels and cost of pizza p in both versions. All toppings are equal.
func (s *scene) wantParts(when string, toppings []string, labels map[string]string, cost float64) {
	s.Helper()
	for _, version := range []string{alpha, beta} {
		p := s.get(version, "p")
		want := slices.Clone(toppings)
		if version == beta { // One topping with a quantity.
			want = []string{fmt.Sprintf("%d %s", len(toppings), toppings[0])}
		}
		if diff := cmp.Diff(want, names(p)); diff != "" {
			s.Errorf("%s, toppings in %s: -want, +got:\n%s", when, version, diff)
		}
		if diff := cmp.Diff(labels, p.GetLabels()); diff != "" {
			s.Errorf("%s, labels in %s: -want, +got:\n%s", when, version, diff)
		}
		got, _, _ := unstructured.NestedFieldNoCopy(p.Object, "status", "cost")
		if fmt.Sprint(got) != fmt.Sprint(cost) {
			s.Errorf("%s, the cost in %s is %v, want %v", when, version, got, cost)
		}
	}
}

// owners returns the version in which each manager has applied pizza p.
func (s *scene) owners() map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, f := range s.get(alpha, "p").GetManagedFields() {
		out[f.Manager] = f.APIVersion
	}
	return out
}
