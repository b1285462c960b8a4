package pizza

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// TestA1: both definitions are established in the versions of the book, and their schemas are structural.
func TestA1(t *testing.T) { each(t, a1) }

func a1(t *testing.T, w *world) {
	s := begin(t, w, setting{alone: true})
	for name, versions := range map[string][]string{pizzas: {"v1alpha1", "v1beta1"}, toppings: {"v1alpha1"}} {
		crd, err := s.definition(t.Context(), name)
		s.must(err)
		if crd.APIVersion = "apiextensions.k8s.io/v1"; !isTrue(crd, apiextensionsv1.Established) {
			t.Errorf("%s is not established: %v", name, crd.Status.Conditions)
		}
		if isTrue(crd, apiextensionsv1.NonStructuralSchema) {
			t.Errorf("%s is not structural: %v", name, crd.Status.Conditions)
		}
		var served []string
		for _, v := range crd.Spec.Versions {
			if v.Served {
				served = append(served, v.Name)
			}
			if v.Storage != (v.Name == "v1alpha1") {
				t.Errorf("%s: storage of %s is %t", name, v.Name, v.Storage)
			}
		}
		if diff := cmp.Diff(versions, served); diff != "" {
			t.Errorf("%s: served versions: -want, +got:\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"v1alpha1"}, crd.Status.StoredVersions); diff != "" {
			t.Errorf("%s: stored versions: -want, +got:\n%s", name, diff)
		}
	}
}

func isTrue(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	for _, c := range crd.Status.Conditions {
		if c.Type == kind {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// TestA2: without a conversion, the API server only changes the apiVersion, although v1beta1 has another schema:
// "clearly not what we want".
func TestA2(t *testing.T) { each(t, a2) }

func a2(t *testing.T, w *world) {
	s := begin(t, w, setting{alone: true, edit: unconverted})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
	old, now := s.get(alpha, "margherita"), s.get(beta, "margherita")
	if diff := cmp.Diff(beta, now.GetAPIVersion()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mozzarella", "tomato"}, names(now)); diff != "" {
		t.Errorf("the toppings in v1beta1 are those of v1alpha1: -want, +got:\n%s", diff)
	}
	now.SetAPIVersion(alpha)
	if diff := cmp.Diff(old, now); diff != "" {
		t.Errorf("only the apiVersion may differ: -v1alpha1, +v1beta1:\n%s", diff)
	}
}

// unconverted is a setting.edit: the definition has no conversion, as in manifests/crds.
func unconverted(crd map[string]any) {
	crd["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
}

// TestA3: the same object can be read in both versions.
func TestA3(t *testing.T) { each(t, a3) }

func a3(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
	old, now := s.get(alpha, "margherita"), s.get(beta, "margherita")
	if diff := cmp.Diff([]string{"mozzarella", "tomato"}, names(old)); diff != "" {
		t.Errorf("v1alpha1: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"1 mozzarella", "1 tomato"}, names(now)); diff != "" {
		t.Errorf("v1beta1: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(old.Object["metadata"], now.Object["metadata"]); diff != "" {
		t.Errorf("the metadata must be equal in both versions: -v1alpha1, +v1beta1:\n%s", diff)
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		if _, ok, _ := unstructured.NestedFieldNoCopy(now.Object, "metadata", field); !ok {
			t.Errorf("v1beta1 has no metadata.%s", field)
		}
	}
	for _, o := range []*unstructured.Unstructured{old, now} {
		if _, ok := o.Object["status"]; ok {
			t.Errorf("%s has a status without a write: %v", o.GetAPIVersion(), o.Object)
		}
	}
}

// TestA4: repeated cheese becomes a quantity, and the object is stored in the storage version.
func TestA4(t *testing.T) { each(t, a4) }

func a4(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(alpha, "extra", `[mozzarella, tomato, mozzarella]`))
	if diff := cmp.Diff([]string{"2 mozzarella", "1 tomato"}, names(s.get(beta, "extra"))); diff != "" {
		t.Errorf("v1beta1: -want, +got:\n%s", diff)
	}
	s.create(pizza(beta, "double", `[{name: tomato, quantity: 2}, {name: salami}]`))
	stored := s.stored()["double"]
	if diff := cmp.Diff(alpha, stored["apiVersion"]); diff != "" {
		t.Errorf("the stored version: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"tomato", "tomato", "salami"}, namesOf(stored)); diff != "" {
		t.Errorf("the stored toppings: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mozzarella", "tomato", "mozzarella"}, namesOf(s.stored()["extra"])); diff != "" {
		t.Errorf("the stored toppings: -want, +got:\n%s", diff)
	}
}

// TestA5: a request without a version gets v1beta1.
func TestA5(t *testing.T) { each(t, a5) }

func a5(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
	d, err := discovery.NewDiscoveryClientForConfig(s.cfg)
	s.must(err)
	s.until("v1beta1 is preferred", func(context.Context) error { // The API server updates discovery only after a moment.
		groups, err := d.ServerGroups()
		if err != nil {
			return err
		}
		for _, g := range groups.Groups {
			if g.Name == group && g.PreferredVersion.GroupVersion == beta {
				return nil
			}
		}
		return fmt.Errorf("the groups are %v", groups.Groups)
	})
	s.until("kubectl get pizza prints v1beta1", func(context.Context) error {
		out, err := s.run("get", "pizza", "margherita", "-o", "yaml")
		for _, text := range []string{"apiVersion: " + beta + "\n", "  - name: mozzarella\n    quantity: 1\n  - name: tomato\n    quantity: 1\n"} {
			if err == nil && !strings.Contains(out, text) {
				err = fmt.Errorf("want %q", text)
			}
		}
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, out)
		}
		return nil
	})
	out, err := s.run("get", "pizzas.v1alpha1."+group, "margherita", "-o", "yaml")
	if err != nil || !strings.Contains(out, "apiVersion: "+alpha+"\n") || !strings.Contains(out, "  - mozzarella\n  - tomato\n") {
		t.Errorf("kubectl get with a version: %v\n%s", err, out)
	}
}

// TestA6: a pizza may only have toppings of the restaurant.
func TestA6(t *testing.T) { each(t, a6) }

func a6(t *testing.T, w *world) {
	s := begin(t, w, setting{admission: true})
	harness.WantStatus(s.T, "The restaurant has no toppings yet.", s.api.Create(t.Context(), s.file("margherita-pizza.yaml")), 400,
		`admission webhook "restaurant.programming-kubernetes.info" denied the request: topping "mozzarella" not known`)
	if stored := s.stored(); len(stored) > 0 {
		t.Errorf("a pizza was stored nevertheless: %v", stored)
	}
	for _, name := range []string{"tomato", "mozzarella", "salami"} {
		s.must(s.api.Create(t.Context(), s.file("topping-"+name+".yaml")))
	}
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml"))) // Accepted at once.
	out, err := s.run("create", "-f", "examples/pizza/objects/margherita-pizza.yaml", "--dry-run=server")
	if err == nil || !strings.Contains(out, "AlreadyExists") && !strings.Contains(out, "already exists") {
		t.Errorf("want the pizza to exist: %v\n%s", err, out)
	}
}

// TestA7: an empty pizza gets the recommended toppings of the restaurant, and no status.
func TestA7(t *testing.T) { each(t, a7) }

func a7(t *testing.T, w *world) {
	s := begin(t, w, setting{admission: true, toppings: []string{"tomato", "mozzarella", "salami"}})
	s.must(s.api.Create(t.Context(), s.file("empty-pizza.yaml")))
	got := s.get(beta, "salami")
	want := map[string]any{
		"apiVersion": beta, "kind": "Pizza", "metadata": got.Object["metadata"],
		"spec": map[string]any{"toppings": []any{
			map[string]any{"name": "tomato", "quantity": int64(1)},
			map[string]any{"name": "mozzarella", "quantity": int64(1)},
			map[string]any{"name": "salami", "quantity": int64(1)},
		}},
	}
	if diff := cmp.Diff(want, got.Object); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"tomato", "mozzarella", "salami"}, namesOf(s.stored()["salami"])); diff != "" {
		t.Errorf("the stored toppings: -want, +got:\n%s", diff)
	}
	for name, manifest := range map[string]string{
		"absent":  "{apiVersion: " + beta + ", kind: Pizza, metadata: {name: absent}, spec: {}}",
		"nothing": pizza(beta, "nothing", `[]`),
		"none":    pizza(beta, "none", `null`),
		"no-spec": "{apiVersion: " + beta + ", kind: Pizza, metadata: {name: no-spec}}",
	} {
		s.create(manifest)
		if diff := cmp.Diff([]string{"1 tomato", "1 mozzarella", "1 salami"}, names(s.get(beta, name))); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", manifest, diff)
		}
	}
}

// TestA8: unknown fields are pruned or rejected, as the client requests.
func TestA8(t *testing.T) { each(t, a8) }

func a8(t *testing.T, w *world) {
	s := begin(t, w, setting{whoever: true})
	const file = "examples/pizza/objects/topping-salami-with-unknown-fields.yaml"
	out, err := s.run("create", "-f", file)
	want := `Topping in version "v1alpha1" cannot be handled as a Topping: strict decoding error: unknown field "spec.color"`
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("kubectl validates strictly by default: %v\n%s", err, out)
	}
	salami := s.file("topping-salami-with-unknown-fields.yaml")
	harness.WantStatus(s.T, "A client with strict validation gets an error.",
		client.WithFieldValidation(s.api, "Strict").Create(t.Context(), salami.DeepCopy()), 400, want)
	for _, how := range []string{"warn", "ignore"} {
		out, err := s.run("create", "-f", file, "--validate="+how)
		if err != nil {
			t.Fatalf("--validate=%s: %v\n%s", how, err, out)
		}
		if got := strings.Contains(out, `Warning: unknown field "spec.color"`); got != (how == "warn") {
			t.Errorf("--validate=%s prints\n%s", how, out)
		}
		got := object(alpha, "Topping", "", "salami")
		s.must(s.api.Get(t.Context(), client.ObjectKeyFromObject(got), got))
		if diff := cmp.Diff(map[string]any{"cost": 1.2}, got.Object["spec"]); diff != "" {
			t.Errorf("--validate=%s: the stored topping: -want, +got:\n%s", how, diff)
		}
		s.must(s.api.Delete(t.Context(), got))
	}
}

// TestA10: a topping without a quantity counts once, and the schema limits quantities.
func TestA10(t *testing.T) { each(t, a10) }

func a10(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(beta, "plain", `[{name: tomato, quantity: 3}, {name: salami, quantity: 2}]`))
	p := s.get(beta, "plain")
	s.must(unstructured.SetNestedSlice(p.Object, []any{
		map[string]any{"name": "tomato"}, map[string]any{"name": "salami", "quantity": int64(2)},
	}, "spec", "toppings"))
	s.must(s.api.Update(t.Context(), p))
	if diff := cmp.Diff([]string{"tomato", "salami", "salami"}, names(s.get(alpha, "plain"))); diff != "" {
		t.Errorf("without a quantity: -want, +got:\n%s", diff)
	}
	cases := map[string]struct {
		toppings string
		want     string
	}{
		"Zero":     {`[{name: a, quantity: 0}]`, `spec.toppings[0].quantity: Invalid value: 0: spec.toppings[0].quantity in body should be greater than or equal to 1`},
		"Negative": {`[{name: a}, {name: b, quantity: -1}]`, `spec.toppings[1].quantity: Invalid value: -1: spec.toppings[1].quantity in body should be greater than or equal to 1`},
		"TooMany":  {`[{name: a, quantity: 1001}]`, `spec.toppings[0].quantity: Invalid value: 1001: spec.toppings[0].quantity in body should be less than or equal to 1000`},
		"TheBomb":  {`[{name: a, quantity: 1000000000}]`, `spec.toppings[0].quantity in body should be less than or equal to 1000`},
		"InAll":    {`[{name: a, quantity: 600}, {name: b, quantity: 401}]`, `spec.toppings: Invalid value: must be at most 1000 toppings in all`},
		"NoName":   {`[{quantity: 1}]`, `spec.toppings[0].name: Required value`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := s.api.Create(t.Context(), s.read(pizza(beta, "wrong", tc.toppings)))
			harness.WantStatus(t, "The schema rejects the pizza.", err, 422, tc.want)
		})
	}
	s.create(pizza(beta, "full", `[{name: a, quantity: 600}, {name: b, quantity: 400}]`))
	if got := len(names(s.get(alpha, "full"))); got != 1000 {
		t.Errorf("a full pizza has %d toppings", got)
	}
}

// TestA10Schemaless: the conversion enforces the limit of quantities even if the schema does not.
func TestA10Schemaless(t *testing.T) { each(t, a10Schemaless) }

func a10Schemaless(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	// The schema is changed last: a policy must be able to convert all objects that the schema allows. Otherwise it is
	// not used.
	s.must(s.update(func(crd *apiextensionsv1.CustomResourceDefinition) {
		spec := crd.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["spec"]
		list := spec.Properties["toppings"]
		list.XValidations = nil
		quantity := list.Items.Schema.Properties["quantity"]
		quantity.Maximum = nil
		list.Items.Schema.Properties["quantity"], spec.Properties["toppings"] = quantity, list
	}))
	bomb := s.read(pizza(beta, "bomb", `[{name: a}, {name: b, quantity: 2147483647}]`))
	var err error
	s.until("the schema accepts the pizza", func(ctx context.Context) error {
		if err = s.api.Create(ctx, bomb.DeepCopy()); apierrors.IsInvalid(err) {
			return err
		}
		return nil
	})
	harness.WantStatus(s.T, "The quantity is not expanded.", err, 500,
		append(w.by.tooMany(), "conversion webhook for "+beta+", Kind=Pizza failed:")...)
	if stored := s.stored(); len(stored) > 0 {
		t.Errorf("the pizza was stored: %v", stored)
	}
}

// TestA14: the API server also calls a webhook without side effects in a dry run. If the webhook does not know the
// toppings yet, failurePolicy decides.
func TestA14(t *testing.T) { each(t, a14) }

func a14(t *testing.T, w *world) {
	s := begin(t, w, setting{admission: true, toppings: []string{"tomato", "mozzarella", "salami"}})
	out, err := s.run("create", "-f", "examples/pizza/objects/empty-pizza.yaml", "--dry-run=server", "-o", "yaml")
	if err != nil || !strings.Contains(out, "  - tomato\n  - mozzarella\n  - salami\n") {
		t.Errorf("a dry run: %v\n%s", err, out)
	}
	if _, err := s.tryGet(t.Context(), alpha, "salami"); !apierrors.IsNotFound(err) {
		t.Errorf("want nothing stored by a dry run: %v", err)
	}
	s.silence()
	s.serve(serving{deaf: true})
	harness.WantStatus(s.T, "The webhook does not know the toppings.", s.api.Create(t.Context(), s.file("margherita-pizza.yaml")), 500,
		`failed calling webhook "restaurant.programming-kubernetes.info"`)
	if _, err := s.tryGet(t.Context(), alpha, "margherita"); !apierrors.IsNotFound(err) {
		t.Errorf("want the rejected pizza to be absent: %v", err)
	}
	s.silence()
	s.serve(serving{})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
}
