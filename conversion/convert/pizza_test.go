package convert

import (
	"fmt"
	"slices"
	"testing"
)

// counted is a topping of a v1beta1 pizza.
type counted struct {
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
}

const maxToppings = 1000

func toCounted(names []string) ([]counted, error) {
	out := make([]counted, 0, len(names))
	for _, name := range names {
		if i := slices.IndexFunc(out, func(t counted) bool { return t.Name == name }); i >= 0 {
			out[i].Quantity++
			continue
		}
		out = append(out, counted{Name: name, Quantity: 1})
	}
	return out, nil
}

func toNames(toppings []counted) ([]string, error) {
	total := 0
	for i, t := range toppings {
		if t.Quantity < 0 || t.Quantity > maxToppings || total+t.Quantity > maxToppings {
			return nil, ErrorAt(fmt.Sprintf("[%d].quantity", i), fmt.Errorf("%d exceeds %d", t.Quantity, maxToppings))
		}
		total += t.Quantity
	}
	out := make([]string, 0, total)
	for _, t := range toppings {
		for range t.Quantity {
			out = append(out, t.Name)
		}
	}
	return out, nil
}

func sameNames(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

const pizzaGroup = "restaurant.programming-kubernetes.info"

// pizzaEngine returns an engine for pizzas. If kept is true, the order of toppings matters.
func pizzaEngine(tb testing.TB, kept bool) *Engine {
	tb.Helper()
	var options []Option
	if !kept {
		options = append(options, Equivalent(sameNames, func(a, b []counted) bool {
			x, errX := toNames(a)
			y, errY := toNames(b)
			return errX == nil && errY == nil && sameNames(x, y)
		}))
	}
	e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: []Spoke{{
		Version:     "v1alpha1",
		Conversions: []Conversion{Field("spec.toppings", "spec.toppings", toCounted, toNames, options...)},
	}}})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}
