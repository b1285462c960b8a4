package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	admissionv1 "k8s.io/api/admission/v1"

	"refract.dev/internal/golden"
)

// TestGolden answers the review of every archive in testdata with the restaurant's defaults or validation. Each archive
// begins with a description of its case.
//
// An archive has mutate.json or validate.json, the review of an API server. The expected files are the answer and, if
// the answer has a patch, the patch as text and the patched object.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", answerArchive)
}

// restaurant returns the handler for the name of a review file.
func restaurant(t *testing.T, name string) http.Handler {
	t.Helper()
	switch name {
	case "mutate.json":
		return Mutating(Default(pizzas, "Pizza", func(_ context.Context, _ *Request, p *pizza) error {
			if len(p.Spec.Toppings) == 0 {
				p.Spec.Toppings = []string{"tomato", "mozzarella", "salami"}
			}
			for i := range p.Spec.Layers {
				if p.Spec.Layers[i].Quantity == 0 {
					p.Spec.Layers[i].Quantity = 1
				}
			}
			return nil
		}))
	case "validate.json":
		known := map[string]bool{"tomato": true, "mozzarella": true, "salami": true, "pineapple": true}
		return Validating(Validate(pizzas, "Pizza", func(_ context.Context, _ *Request, p, old *pizza) (warnings []string, err error) {
			for i, topping := range p.Spec.Toppings {
				if !known[topping] {
					return nil, fmt.Errorf("topping %q not known", topping)
				}
				if topping == "pineapple" {
					warnings = append(warnings, fmt.Sprintf("spec.toppings[%d]: pineapple divides opinions", i))
				}
			}
			if old != nil && old.Spec.Box != p.Spec.Box {
				return nil, errors.New("spec.box: the pizza is in it already")
			}
			return warnings, nil
		}))
	default:
		t.Fatalf("no handler for %s", name)
		return nil
	}
}

func answerArchive(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	review := archive.Files[0]
	w := post(t, restaurant(t, review.Name), string(review.Data))
	if w.Code != http.StatusOK {
		t.Fatalf("HTTP %d: %s", w.Code, w.Body)
	}
	out := []txtar.File{{Name: "want/answer.json", Data: indented(t, w.Body.Bytes())}}
	var answer, asked admissionv1.AdmissionReview
	if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &answer), json.Unmarshal(review.Data, &asked)); err != nil {
		t.Fatal(err)
	}
	if patch := answer.Response.Patch; patch != nil {
		result := apply(t, string(asked.Request.Object.Raw), string(patch))
		out = append(out, txtar.File{Name: "want/patch.json", Data: indented(t, patch)}, txtar.File{Name: "want/object.json", Data: indented(t, []byte(result))})
	}
	return out
}

func indented(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}
