package verify_test

import (
	"slices"
	"strings"
	"testing"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/verify"
)

// Schemas of pizzas as in the examples, with up to a thousand toppings.
const (
	longV1 = `v1: {type: object, properties: {toppings: {type: array, maxItems: 1000, items: {type: string, minLength: 1, maxLength: 253}}}}`
	longV2 = `v2: {type: object, properties: {toppings: {type: array, maxItems: 1000, items: {type: object, required: [name, quantity], properties: {
		name: {type: string, minLength: 1, maxLength: 253}, quantity: {type: integer, minimum: 1, maximum: 1000}}},
		x-kubernetes-validations: [{rule: "self.map(t, t.quantity).sum() <= 1000"}]}}}`
)

// TestLongObjectsAreRare: a list that may be long is short in most objects, because long lists take much time and find
// few additional violations.
func TestLongObjectsAreRare(t *testing.T) {
	var sizes []int
	same := each(func(obj map[string]any, _, _ string) (map[string]any, error) {
		if sp, ok := spec(obj); ok {
			list, _ := sp["toppings"].([]any)
			sizes = append(sizes, len(list))
		}
		return obj, nil
	})
	const count = 300
	_, err := verify.Run(t.Context(), same, verify.Options{
		Definition: definition(t, longV1, strings.Replace(longV1, "v1", "v2", 1)), Hub: "v2", Versions: []string{"v1", "v2"},
		Objects: count, Laws: []verify.Law{verify.Valid},
	})
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, n := range sizes {
		if n > 20 {
			long++
		}
	}
	if len(sizes) < count || long > len(sizes)/20 || slices.Max(sizes) != 1000 {
		t.Errorf("of %d lists %d are long, the longest has %d elements; want a few of them, one with 1000", len(sizes), long, slices.Max(sizes))
	}
}

// TestLimitedListsMayBeLong: a few bytes may become many if the schema allows it.
func TestLimitedListsMayBeLong(t *testing.T) {
	r, err := verify.Run(t.Context(), verify.Engine(engine(t, pizzaSpoke(sameToppings))), verify.Options{
		Definition: definition(t, longV1, longV2), Hub: "v2", Versions: []string{"v1", "v2"}, Knowledge: knownPizza, Objects: -1,
		Laws: []verify.Law{verify.Bounded}, Recorded: []map[string]any{{
			"apiVersion": "example.org/v2", "kind": "Thing", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"toppings": []any{map[string]any{"name": strings.Repeat("x", 253), "quantity": int64(1000)}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Violations()) > 0 || r.Checks != 1 {
		t.Errorf("Run() = %s", text(t, r))
	}
}

// TestEditsGetSmallToo: edits are shrunk together with the edited object.
func TestEditsGetSmallToo(t *testing.T) {
	once := func(names []string) ([]counted, error) {
		out, err := toCounted(names)
		for i := range out {
			out[i].Quantity = 1
		}
		return out, err
	}
	s := verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
		convert.Field("spec.toppings", "spec.toppings", once, toNames, sameToppings),
	}}))
	for seed := range uint64(3) {
		r, err := verify.Run(t.Context(), s, verify.Options{
			Definition: definition(t, longV1, longV2), Hub: "v2", Versions: []string{"v1", "v2"}, Knowledge: knownPizza, Seed: seed, Objects: 100,
			Laws: []verify.Law{verify.Edit},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Violations()) != 1 {
			t.Fatalf("seed %d: Run() = %s", seed, text(t, r))
		}
		v := r.Violations()[0]
		sp, _ := spec(v.Object)
		list, _ := sp["toppings"].([]any)
		total := 0
		for _, topping := range list {
			total++
			if n, ok := memberOfMap(topping, "quantity").(int64); ok {
				total += int(n) - 1
			}
		}
		if total > 3 || leaves(body(v.Object)) > 5 {
			t.Errorf("seed %d: %s: %v", seed, v.Message, v.Object)
		}
	}
}

func memberOfMap(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}
