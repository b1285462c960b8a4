package v1alpha1

import (
	"encoding/json"
	"testing"
)

// TestTopping: the book's type had no tag for the spec, so that its cost was always 0.
func TestTopping(t *testing.T) {
	var got Topping
	if err := json.Unmarshal([]byte(`{"spec":{"cost":0.8}}`), &got); err != nil || got.Spec.Cost != 0.8 {
		t.Errorf("the cost is %v, %v", got.Spec.Cost, err)
	}
}

// TestPizza: nobody who encodes a pizza says what it does not have.
func TestPizza(t *testing.T) {
	got, err := json.Marshal(&Pizza{})
	if err != nil || string(got) != `{"spec":{}}` {
		t.Errorf("an empty pizza is %s, %v", got, err)
	}
}
