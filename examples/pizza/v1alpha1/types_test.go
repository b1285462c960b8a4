package v1alpha1

import (
	"encoding/json"
	"testing"
)

// TestTopping verifies the JSON name of the spec. The type in the book has no tag for it, so its cost is always 0.
func TestTopping(t *testing.T) {
	var got Topping
	if err := json.Unmarshal([]byte(`{"spec":{"cost":0.8}}`), &got); err != nil || got.Spec.Cost != 0.8 {
		t.Errorf("the cost is %v, %v", got.Spec.Cost, err)
	}
}

// TestPizza verifies that an encoded pizza omits empty fields.
func TestPizza(t *testing.T) {
	got, err := json.Marshal(&Pizza{})
	if err != nil || string(got) != `{"spec":{}}` {
		t.Errorf("an empty pizza is %s, %v", got, err)
	}
}
