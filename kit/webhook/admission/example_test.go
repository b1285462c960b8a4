package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	admissionv1 "k8s.io/api/admission/v1"

	"refract.dev/kit/webhook/admission"
)

// Cake is a custom resource. Real ones have metadata as well.
type Cake struct {
	Spec CakeSpec `json:"spec"`
}

type CakeSpec struct {
	Layers []string `json:"layers"`
}

func ask(h http.Handler, operation, object string) *admissionv1.AdmissionResponse {
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"705ab4f5","operation":%q,`+
		`"kind":{"group":"bakery.example","version":"v1","kind":"Cake"},"object":%s}}`, operation, object)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", bytes.NewBufferString(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil {
		panic(err)
	}
	return review.Response
}

// A function sets a default in the object. The type does not know the icing, so the patch does not contain it, and the
// icing stays.
func ExampleDefault() {
	handler := admission.Mutating(admission.Default("bakery.example/v1", "Cake",
		func(_ context.Context, _ *admission.Request, cake *Cake) error {
			if cake.Spec.Layers == nil {
				cake.Spec.Layers = []string{"sponge", "cream"}
			}
			return nil
		}))

	answer := ask(handler, "CREATE", `{"spec":{"icing":"chocolate"}}`)
	fmt.Println(string(answer.Patch))
	// Output: [{"op":"add","path":"/spec/layers","value":["sponge","cream"]}]
}

// The user sees the text of the error.
func ExampleValidate() {
	handler := admission.Validating(admission.Validate("bakery.example/v1", "Cake",
		func(_ context.Context, _ *admission.Request, cake, _ *Cake) (warnings []string, err error) {
			switch n := len(cake.Spec.Layers); {
			case n > 10:
				return nil, fmt.Errorf("spec.layers: want at most 10, or the cake falls over, got %d", n)
			case n == 1:
				return []string{"spec.layers: with one layer it is a biscuit"}, nil
			default:
				return nil, nil
			}
		}))

	answer := ask(handler, "CREATE", `{"spec":{"layers":["a","b","c","d","e","f","g","h","i","j","k"]}}`)
	fmt.Println(answer.Allowed, answer.Result.Message)
	answer = ask(handler, "CREATE", `{"spec":{"layers":["a"]}}`)
	fmt.Println(answer.Allowed, answer.Warnings)
	// Output:
	// false spec.layers: want at most 10, or the cake falls over, got 11
	// true [spec.layers: with one layer it is a biscuit]
}
