package pizza

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/test/harness"
)

// spec returns the JSON of a pizza with this spec.
func spec(version, name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":%q,"namespace":"n","uid":"u"},"spec":%s}`, version, name, spec)
}

// TestBookAbsentQuantity: the book's code lost a topping without a quantity. In a review, a field may be absent even if
// the schema has a default for it, for example if the review contains the fields of one manager.
func TestBookAbsentQuantity(t *testing.T) { each(t, bookAbsentQuantity) }

func bookAbsentQuantity(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	for _, version := range []string{"v1", "v1beta1"} {
		r := s.review(version, alpha, spec(beta, "p", `{"toppings":[{"name":"tomato"}]}`))
		if r.Response.Result.Status != metav1.StatusSuccess || fmt.Sprint(names(objects(r)[0])) != "[tomato]" {
			t.Errorf("%s: the answer is %+v", version, r.Response)
		}
	}
}

// TestBookBomb: the book's code created any number of toppings from a quantity. The converter must fail for the whole
// review, with a message that names the object.
func TestBookBomb(t *testing.T) { each(t, bookBomb) }

func bookBomb(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	r := s.review("v1", alpha,
		spec(beta, "one", `{"toppings":[{"name":"a"}]}`),
		spec(beta, "two", `{"toppings":[{"name":"a"},{"name":"b","quantity":2147483647}]}`),
		spec(beta, "three", `{"toppings":[{"name":"a"}]}`))
	if r.Response.Result.Status != metav1.StatusFailure || len(r.Response.ConvertedObjects) > 0 {
		t.Errorf("the answer is %+v", r.Response)
	}
	for _, text := range append([]string{"1", "n/two"}, w.by.tooMany()...) {
		if !strings.Contains(r.Response.Result.Message, text) {
			t.Errorf("%q is not in %q", text, r.Response.Result.Message)
		}
	}
}

// TestNullSpec: the API server removes a null that the schema does not allow. The required spec is then missing, unless
// the admission webhook adds it.
func TestNullSpec(t *testing.T) { each(t, nullSpec) }

func nullSpec(t *testing.T, w *world) {
	s := begin(t, w, setting{toppings: []string{"tomato", "mozzarella", "salami"}})
	harness.WantStatus(s.T, "No webhook adds a spec.", s.api.Create(t.Context(), s.file("empty-pizza.yaml")), 422, "spec: Required value")
	s.admit()
	s.must(s.api.Create(t.Context(), s.file("empty-pizza.yaml")))
}

// TestAdmissionOfUpdates: the webhook checks updates as it checks creations, and does not check deletions.
func TestAdmissionOfUpdates(t *testing.T) { each(t, admissionOfUpdates) }

func admissionOfUpdates(t *testing.T, w *world) {
	s := begin(t, w, setting{admission: true, toppings: []string{"tomato", "mozzarella", "salami", "ham"}})
	s.create(pizza(beta, "p", `[{name: ham, quantity: 2}]`))
	merge := func(version, patch string) error {
		return s.api.Patch(t.Context(), object(version, "Pizza", s.ns, "p"), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	s.must(merge(beta, `{"spec":{"toppings":[]}}`))
	if diff := cmp.Diff([]string{"tomato", "mozzarella", "salami"}, names(s.get(alpha, "p"))); diff != "" {
		t.Errorf("after all toppings are removed: -want, +got:\n%s", diff)
	}
	s.must(merge(alpha, `{"metadata":{"finalizers":["example.org/oven"]},"spec":{"toppings":["ham"]}}`))
	harness.WantStatus(s.T, "A missing topping.", merge(alpha, `{"spec":{"toppings":["ham","pineapple"]}}`), 400, `topping "pineapple" not known`)

	// The restaurant has no more ham. Pizzas that have ham already stay valid.
	s.must(s.api.Delete(t.Context(), object(alpha, "Topping", "", "ham")))
	s.until("ham is unknown", func(ctx context.Context) error {
		err := s.api.Create(ctx, s.read(pizza(alpha, "probe", `[ham]`)), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), `topping "ham" not known`) {
			return fmt.Errorf("ham is still known: %w", err)
		}
		return nil
	})
	s.must(merge(beta, `{"metadata":{"labels":{"table":"4"}}}`))
	s.must(s.api.Delete(t.Context(), object(beta, "Pizza", s.ns, "p")))
	s.must(merge(alpha, `{"metadata":{"finalizers":null}}`))
	if stored := s.stored(); len(stored) > 0 {
		t.Errorf("the pizza still exists: %v", stored)
	}
}

// TestAdmissionWithSideEffects: the API server rejects a webhook configuration that does not declare sideEffects as
// none.
func TestAdmissionWithSideEffects(t *testing.T) { each(t, admissionWithSideEffects) }

func admissionWithSideEffects(t *testing.T, w *world) {
	s := begin(t, w, setting{whoever: true})
	for _, u := range s.admission {
		u = s.asked(u)
		u.Object["webhooks"].([]any)[0].(map[string]any)["sideEffects"] = "Unknown"
		harness.WantStatus(s.T, "A dry run would fail.", s.api.Create(t.Context(), u), 422, `webhooks[0].sideEffects: Unsupported value: "Unknown"`)
	}
}

// TestBookEmptyStaysEmpty: the book's code converted an empty list of toppings to null, which the schema rejects at the
// next write.
func TestBookEmptyStaysEmpty(t *testing.T) { each(t, bookEmptyStaysEmpty) }

func bookEmptyStaysEmpty(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(alpha, "bare", `[]`))
	p := s.get(beta, "bare")
	if diff := cmp.Diff(map[string]any{"toppings": []any{}}, p.Object["spec"]); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	p.SetLabels(map[string]string{"x": "y"})
	s.must(s.api.Update(t.Context(), p))
	s.create("{apiVersion: " + alpha + ", kind: Pizza, metadata: {name: nothing}, spec: {}}")
	p = s.get(beta, "nothing")
	if diff := cmp.Diff(map[string]any{}, p.Object["spec"]); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	s.must(s.api.Update(t.Context(), p))
}

// TestBookSameVersion: the book's code rejected objects that already have the requested version.
func TestBookSameVersion(t *testing.T) { each(t, bookSameVersion) }

func bookSameVersion(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	for _, version := range []string{alpha, beta} {
		in := spec(version, "p", `{"toppings":[], "float": 1.0, "large": 9007199254740993}`)
		r := s.review("v1", version, in)
		if len(r.Response.ConvertedObjects) != 1 || string(r.Response.ConvertedObjects[0].Raw) != in {
			t.Errorf("%s: the answer is %+v", version, r.Response)
		}
	}
}

// TestBookOrder: v1alpha1 loses the order of repeated toppings in v1beta1. After a round trip, each topping has the
// same total quantity, and no annotation stores the original.
func TestBookOrder(t *testing.T) { each(t, bookOrder) }

func bookOrder(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.create(pizza(beta, "p", `[{name: t, quantity: 1}, {name: u}, {name: t, quantity: 2}]`))
	p := s.get(beta, "p")
	if diff := cmp.Diff([]string{"3 t", "1 u"}, names(p)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if stored := s.stored()["p"]; len(p.GetAnnotations()) > 0 || strings.Contains(fmt.Sprint(stored["metadata"]), "annotations") {
		t.Errorf("want no annotation: %v", stored)
	}
	s.storeAsBeta() // v1beta1 can hold it.
	s.create(pizza(beta, "q", `[{name: t, quantity: 1}, {name: u}, {name: t, quantity: 2}]`))
	if diff := cmp.Diff([]string{"1 t", "1 u", "2 t"}, names(s.get(beta, "q"))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestBookUnknownFields: fields that the Go types lack survive a conversion and the setting of defaults without loss of
// digits. All metadata survives, too.
func TestBookUnknownFields(t *testing.T) { each(t, bookUnknownFields) }

func bookUnknownFields(t *testing.T, w *world) {
	s := begin(t, w, setting{
		toppings: []string{"tomato", "mozzarella", "salami"},
		edit: func(crd map[string]any) {
			versions := crd["spec"].(map[string]any)["versions"].([]any)
			for _, v := range versions {
				err := unstructured.SetNestedField(v.(map[string]any), map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					"schema", "openAPIV3Schema", "properties", "spec", "properties", "extra")
				if err != nil {
					t.Fatal(err)
				}
			}
		},
	})
	s.admit()
	extra := map[string]any{"large": int64(9007199254740993), "list": []any{nil, "x", 1.5}, "deep": map[string]any{"er": true}}
	u := s.read("{apiVersion: " + beta + ", kind: Pizza, metadata: {name: p, finalizers: [example.org/oven], annotations: {a: b}}, spec: {}}")
	u.Object["spec"].(map[string]any)["extra"] = extra
	s.must(s.api.Create(t.Context(), u))
	for _, version := range []string{alpha, beta} {
		p := s.get(version, "p")
		if diff := cmp.Diff(extra, p.Object["spec"].(map[string]any)["extra"]); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", version, diff)
		}
		if len(p.GetFinalizers()) != 1 || len(p.GetAnnotations()) != 1 || len(p.GetManagedFields()) == 0 || len(names(p)) != 3 {
			t.Errorf("%s: the pizza is %v", version, p.Object)
		}
	}
	s.must(s.api.Patch(t.Context(), object(alpha, "Pizza", s.ns, "p"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// TestBookFreshTopping: the book's code did not know a new topping for a moment.
func TestBookFreshTopping(t *testing.T) { each(t, bookFreshTopping) }

func bookFreshTopping(t *testing.T, w *world) {
	s := begin(t, w, setting{admission: true})
	for i := range 20 {
		name := fmt.Sprintf("topping-%d", i)
		s.topping(name)
		s.create(pizza([]string{alpha, beta}[i%2], name, []string{`[` + name + `]`, `[{name: ` + name + `}]`}[i%2]))
	}
}

// TestBookToppingCost: the cost of a topping was missing in the book's Go type.
func TestBookToppingCost(t *testing.T) { each(t, bookToppingCost) }

func bookToppingCost(t *testing.T, w *world) {
	s := begin(t, w, setting{whoever: true})
	s.must(s.api.Create(t.Context(), s.file("topping-mozzarella.yaml")))
	kinds := runtime.NewScheme()
	s.must(v1alpha1.AddToScheme(kinds))
	typed, err := client.New(s.cfg, client.Options{Scheme: kinds})
	s.must(err)
	got := &v1alpha1.Topping{}
	s.must(typed.Get(t.Context(), client.ObjectKey{Name: "mozzarella"}, got))
	if got.Spec.Cost != 0.8 {
		t.Errorf("the cost is %v", got.Spec.Cost)
	}
}

// TestBookWrongBundle: the book copies the CA bundle into three manifests, where it becomes wrong when the certificate
// changes. The webhook must correct it.
func TestBookWrongBundle(t *testing.T) { each(t, bookWrongBundle) }

func bookWrongBundle(t *testing.T, w *world) {
	s := begin(t, w, setting{})
	s.must(s.api.Create(t.Context(), s.file("margherita-pizza.yaml")))
	other := base64.StdEncoding.EncodeToString([]byte(s.otherAuthority()))
	s.must(s.api.Patch(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: pizzas}},
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"conversion":{"webhook":{"clientConfig":{"caBundle":%q}}}}}`, other))))
	s.untilTrusted()
	s.until("pizzas are converted", func(ctx context.Context) error {
		_, err := s.tryGet(ctx, beta, "margherita")
		return err
	})
	s.converts()
}

// otherAuthority returns the certificate of an authority that has not issued the webhook's certificate.
func (s *scene) otherAuthority() string {
	s.Helper()
	var text string
	s.until("the API server's own authority is published", func(ctx context.Context) error {
		m := &corev1.ConfigMap{}
		err := s.api.Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "kube-root-ca.crt"}, m)
		if text = m.Data["ca.crt"]; err == nil && text == "" {
			err = errors.New("ca.crt is empty")
		}
		return err
	})
	return text
}
