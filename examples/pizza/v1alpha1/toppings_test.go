package v1alpha1

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/tree/raw"
)

// FuzzToppings compares with encoding/json, which takes null for an empty name.
func FuzzToppings(f *testing.F) {
	for _, text := range []string{`["a","b","a"]`, ` [ "" , "\u0061\"" ] `, `null`, `[]`, `[1]`, `{}`, `["a"`, `["\ud800"]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got Toppings
		if err := got.UnmarshalJSON(text); err != nil {
			if !errors.Is(err, raw.ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		var want []string
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		encoded, err := got.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var again []string
		if err := json.Unmarshal(encoded, &again); err != nil {
			t.Fatalf("%v in %s", err, encoded)
		}
		if len(want) == 0 {
			return
		}
		if diff := cmp.Diff(want, again); diff != "" {
			t.Errorf("-encoding/json, +ours:\n%s", diff)
		}
	})
}

// TestTopping: the book's type had no tag for the spec, so that its cost was always 0.
func TestTopping(t *testing.T) {
	var got Topping
	if err := json.Unmarshal([]byte(`{"spec":{"cost":0.8}}`), &got); err != nil || got.Spec.Cost != 0.8 {
		t.Errorf("the cost is %v, %v", got.Spec.Cost, err)
	}
}
