package structural

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/json"
)

// pizza returns a pizza of about 10 KB, with 250 toppings without quantities.
func pizza(b *testing.B) map[string]any {
	b.Helper()
	toppings := make([]any, 250)
	for i := range toppings {
		toppings[i] = map[string]any{"name": fmt.Sprintf("a topping with the number %03d", i)}
	}
	obj := map[string]any{
		"apiVersion": "restaurant.example/v1beta1",
		"kind":       "Pizza",
		"metadata":   map[string]any{"name": "margherita", "namespace": "default"},
		"spec":       map[string]any{"toppings": toppings},
	}
	data, err := json.Marshal(obj)
	if err != nil {
		b.Fatal(err)
	}
	if len(data) < 10_000 || len(data) > 12_000 {
		b.Fatalf("the pizza has %d bytes", len(data))
	}
	return obj
}

func BenchmarkDecode(b *testing.B) {
	v := compiled(b).Versions()[1]
	obj := pizza(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Decode(obj); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	v := compiled(b).Versions()[1]
	r, err := v.Decode(pizza(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if found := v.Validate(r.Object); found != nil {
			b.Fatal(found)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	crd := parse(b, pizzas)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(crd); err != nil {
			b.Fatal(err)
		}
	}
}
