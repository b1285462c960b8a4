package restaurant

import (
	"cmp"
	"fmt"
	"slices"

	"refract.dev/conversion/convert"
	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/examples/pizza/v1beta1"
)

// MaxToppings is the maximum number of toppings of a pizza; repeated toppings count each time. The schemas of both
// versions have the same limit.
const MaxToppings = 1000

// For at most few different toppings, a search is faster than a map.
const few = 16

// Resource returns the conversion of pizzas. v1alpha1 repeats the name of a topping, and v1beta1 has a quantity. The
// order has no meaning in either version, so v1alpha1 [a, b, a] becomes v1beta1 2 × a, 1 × b and comes back as [a, a,
// b].
func Resource() convert.Resource {
	return convert.Resource{
		Group: v1beta1.GroupVersion.Group,
		Kind:  "Pizza",
		Hub:   v1beta1.GroupVersion.Version,
		Spokes: []convert.Spoke{{
			Version: v1alpha1.GroupVersion.Version,
			Conversions: []convert.Conversion{
				convert.Field("spec.toppings", "spec.toppings", count, expand,
					convert.Equivalent(sameNames, sameToppings)),
			},
		}},
	}
}

// count returns each topping once, in the order of first appearance.
func count(names []string) ([]v1beta1.PizzaTopping, error) {
	toppings := make([]v1beta1.PizzaTopping, 0, min(len(names), few))
	var at map[string]int // Index in toppings; nil while there are few.
	for _, name := range names {
		i, ok := find(toppings, at, name)
		if ok {
			toppings[i].Quantity++
			continue
		}
		toppings = append(toppings, v1beta1.PizzaTopping{Name: name, Quantity: 1})
		switch {
		case at != nil:
			at[name] = i
		case len(toppings) > few:
			at = make(map[string]int, 2*few)
			for i := range toppings {
				at[toppings[i].Name] = i
			}
		}
	}
	return toppings, nil
}

// find returns the index of a topping, or the index that it will get.
func find(toppings []v1beta1.PizzaTopping, at map[string]int, name string) (int, bool) {
	if at != nil {
		i, ok := at[name]
		if !ok {
			i = len(toppings)
		}
		return i, ok
	}
	for i := range toppings {
		if toppings[i].Name == name {
			return i, true
		}
	}
	return len(toppings), false
}

// expand repeats the name of each topping by its quantity. It returns an error if there are more than [MaxToppings] in
// total, or if a quantity is less than 1. It allocates nothing before these checks.
func expand(toppings []v1beta1.PizzaTopping) ([]string, error) {
	total, err := sum(toppings)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, total)
	for i := range toppings {
		for range quantity(&toppings[i]) {
			names = append(names, toppings[i].Name)
		}
	}
	return names, nil
}

// sum returns the total number of toppings, at most [MaxToppings].
func sum(toppings []v1beta1.PizzaTopping) (int64, error) {
	var total int64
	for i := range toppings {
		q := quantity(&toppings[i])
		switch {
		case q < 1:
			return 0, at(i, fmt.Errorf("want 1 or more, got %d", q))
		case q > MaxToppings:
			return 0, at(i, fmt.Errorf("%d exceeds %d", q, MaxToppings))
		case total+q > MaxToppings:
			return 0, at(i, fmt.Errorf("%d more toppings than the %d before exceed %d", q, total, MaxToppings))
		}
		total += q
	}
	return total, nil
}

// quantity returns the quantity of a topping; 0 means 1.
func quantity(t *v1beta1.PizzaTopping) int64 { return cmp.Or(t.Quantity, 1) }

// at adds the path of the topping to the error.
func at(i int, err error) error { return convert.ErrorAt(fmt.Sprintf("[%d].quantity", i), err) }

// sameNames reports whether both lists have the same toppings equally often.
func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	var rooms [2][few]string // A few names need no allocation.
	return slices.Equal(sorted(rooms[0][:0], a), sorted(rooms[1][:0], b))
}

// sorted appends names to room and sorts the result.
func sorted(room, names []string) []string {
	room = append(room, names...)
	slices.Sort(room)
	return room
}

// sameToppings reports whether both lists have the same toppings with the same total quantities. An invalid list equals
// only itself.
func sameToppings(a, b []v1beta1.PizzaTopping) bool {
	if slices.Equal(a, b) {
		return true
	}
	for _, side := range [][]v1beta1.PizzaTopping{a, b} {
		if _, err := sum(side); err != nil {
			return false
		}
	}
	balance := make(map[string]int64, len(a))
	for i := range a {
		balance[a[i].Name] += quantity(&a[i])
	}
	for i := range b {
		balance[b[i].Name] -= quantity(&b[i])
	}
	for _, n := range balance {
		if n != 0 {
			return false
		}
	}
	return true
}
