package restaurant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/kit/webhook/admission"
)

// menu is the list of toppings of a restaurant. With a nil menu, the toppings are not known yet.
type menu []string

func (m menu) Get(_ context.Context, namespace, name string) (*v1alpha1.Topping, error) {
	switch {
	case m == nil:
		return nil, admission.Unavailable(errors.New("informers not ready"))
	case namespace != "":
		return nil, fmt.Errorf("toppings have no namespace, got %q", namespace)
	case slices.Contains(m, name):
		return &v1alpha1.Topping{}, nil
	default:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "toppings"}, name)
	}
}

// ask posts a review of a pizza; old may be empty.
func ask(t *testing.T, h http.Handler, object, old []byte) *httptest.ResponseRecorder {
	t.Helper()
	var o metav1.TypeMeta
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatal(err)
	}
	gvk := o.GroupVersionKind()
	r := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u1", Operation: admissionv1.Create, Kind: metav1.GroupVersionKind(gvk), Namespace: "n",
			Resource: metav1.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: "pizzas"},
			Object:   runtime.RawExtension{Raw: object},
		},
	}
	if len(old) > 0 {
		r.Request.Operation, r.Request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: old}
	}
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

func answerOf(t *testing.T, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), review); err != nil || w.Code != http.StatusOK || review.Response == nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	if review.Response.UID != "u1" || review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" {
		t.Errorf("the answer is to another question: %s", w.Body)
	}
	return review.Response
}

func TestDefaults(t *testing.T) {
	const all = `[{"name":"tomato","quantity":1},{"name":"mozzarella","quantity":1},{"name":"salami","quantity":1}]`
	cases := map[string]struct {
		reason string
		object string
		want   string
	}{
		"NoSpec":    {"The empty pizza of the book gets the recommended toppings.", `{"apiVersion":"` + alpha + `","kind":"Pizza","metadata":{"name":"p"}}`, `{"apiVersion":"` + alpha + `","kind":"Pizza","metadata":{"name":"p"},"spec":{"toppings":["tomato","mozzarella","salami"]}}`},
		"NullSpec":  {"A null spec, before pruning, is treated like a missing one.", string(pizza(alpha, `null`)), string(pizza(alpha, `{"toppings":["tomato","mozzarella","salami"]}`))},
		"Absent":    {"A pizza without toppings gets the recommended ones.", string(pizza(beta, `{}`)), string(pizza(beta, `{"toppings":`+all+`}`))},
		"Empty":     {"An empty list of toppings counts as missing.", string(pizza(beta, `{"toppings":[]}`)), string(pizza(beta, `{"toppings":`+all+`}`))},
		"Unknown":   {"Fields of later versions stay.", string(pizza(beta, `{"later":9007199254740993}`)), string(pizza(beta, `{"later":9007199254740993,"toppings":`+all+`}`))},
		"Chosen":    {"Chosen toppings stay.", string(pizza(beta, `{"toppings":[{"name":"a"}]}`)), string(pizza(beta, `{"toppings":[{"name":"a"}]}`))},
		"Quantity0": {"Invalid quantities stay, and the schema rejects them.", string(pizza(beta, `{"toppings":[{"name":"a","quantity":0}]}`)), string(pizza(beta, `{"toppings":[{"name":"a","quantity":0}]}`))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := answerOf(t, ask(t, admission.Mutating(Defaults()...), []byte(tc.object), nil))
			if !got.Allowed || (len(got.Patch) > 0) != (got.PatchType != nil) {
				t.Fatalf("%s\nthe answer is %+v", tc.reason, got)
			}
			out := []byte(tc.object)
			if len(got.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(got.Patch)
				if err != nil {
					t.Fatal(err)
				}
				if out, err = patch.Apply(out); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(canonical(t, []byte(tc.want)), canonical(t, out)); diff != "" {
				t.Errorf("%s\nthe patch %s: -want, +got:\n%s", tc.reason, got.Patch, diff)
			}
		})
	}
}

// canonical returns JSON with sorted members and unchanged numbers.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestValidations(t *testing.T) {
	has := menu{"tomato", "mozzarella"}
	cases := map[string]struct {
		reason      string
		menu        menu
		object, old []byte
		want        string
	}{
		"Known":      {reason: "The restaurant has all toppings.", menu: has, object: pizza(alpha, `{"toppings":["mozzarella","tomato"]}`)},
		"KnownBeta":  {reason: "The restaurant has all toppings.", menu: has, object: pizza(beta, `{"toppings":[{"name":"mozzarella","quantity":2}]}`)},
		"None":       {reason: "A pizza without toppings has no unknown topping.", menu: has, object: pizza(alpha, `{}`)},
		"First":      {reason: "The first unknown topping is named.", menu: has, object: pizza(alpha, `{"toppings":["tomato","salami","ham"]}`), want: `topping "salami" not known`},
		"FirstBeta":  {reason: "In the other version, the name of the first unknown topping is shown, too.", menu: has, object: pizza(beta, `{"toppings":[{"name":"salami"},{"name":"ham"}]}`), want: `topping "salami" not known`},
		"Quoted":     {reason: "Names are quoted.", menu: has, object: pizza(alpha, `{"toppings":["a\"b"]}`), want: `topping "a\"b" not known`},
		"Before":     {reason: "A topping that was on the pizza before may stay.", menu: has, object: pizza(alpha, `{"toppings":["salami","tomato"]}`), old: pizza(alpha, `{"toppings":["salami"]}`)},
		"BeforeBeta": {reason: "A topping that was on the pizza before may stay in the other version, too.", menu: has, object: pizza(beta, `{"toppings":[{"name":"salami","quantity":2}]}`), old: pizza(beta, `{"toppings":[{"name":"salami"}]}`)},
		"Added":      {reason: "An added topping must be known.", menu: has, object: pizza(alpha, `{"toppings":["salami","ham"]}`), old: pizza(alpha, `{"toppings":["salami"]}`), want: `topping "ham" not known`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := answerOf(t, ask(t, admission.Validating(Validations(tc.menu)...), tc.object, tc.old))
			message := ""
			if got.Result != nil {
				message = got.Result.Message
			}
			if got.Allowed != (tc.want == "") || message != tc.want {
				t.Errorf("%s\nallowed is %t with %q, want %q", tc.reason, got.Allowed, message, tc.want)
			}
			if got.Patch != nil || got.PatchType != nil {
				t.Errorf("%s\na validating webhook changes nothing: %s", tc.reason, got.Patch)
			}
		})
	}
}

// TestValidationUnavailable verifies that no pizza is rejected while the toppings are not known.
func TestValidationUnavailable(t *testing.T) {
	w := ask(t, admission.Validating(Validations(menu(nil))...), pizza(alpha, `{"toppings":["a"]}`), nil)
	if w.Code != http.StatusInternalServerError || !bytes.Contains(w.Body.Bytes(), []byte("informers not ready")) {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}
