package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// topping is one of a v1beta1 pizza. Without quantity there is one.
type topping struct {
	Name     string `json:"name"`
	Quantity *int   `json:"quantity,omitempty"`
}

func toToppings(names []string) ([]topping, error) {
	var out []topping
	for _, name := range names {
		i := slices.IndexFunc(out, func(t topping) bool { return t.Name == name })
		if i >= 0 {
			*out[i].Quantity++
			continue
		}
		out = append(out, topping{Name: name, Quantity: new(1)})
	}
	return out, nil
}

func toToppingNames(toppings []topping) ([]string, error) {
	out := make([]counted, len(toppings))
	for i, t := range toppings {
		out[i] = counted{Name: t.Name, Quantity: 1}
		if t.Quantity != nil {
			out[i].Quantity = *t.Quantity
		}
	}
	return toNames(out)
}

func sameToppings(a, b []topping) bool {
	x, errX := toToppingNames(a)
	y, errY := toToppingNames(b)
	return errX == nil && errY == nil && sameNames(x, y)
}

// toLines makes lines such as "2 tomato" of toppings.
func toLines(toppings []topping) ([]string, error) {
	var out []string
	for _, t := range toppings {
		n := 1
		if t.Quantity != nil {
			n = *t.Quantity
		}
		out = append(out, fmt.Sprintf("%d %s", n, t.Name))
	}
	return out, nil
}

func fromLines(lines []string) ([]topping, error) {
	var out []topping
	for i, line := range lines {
		count, name, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(count)
		if err != nil {
			return nil, ErrorAt(fmt.Sprintf("[%d]", i), fmt.Errorf("want a number and a name, got %q", line))
		}
		out = append(out, topping{Name: name, Quantity: &n})
	}
	return out, nil
}

// alphaPizza and betaPizza are pizzas as authors of conversions write them: some zero
// values are encoded, some are not.
type alphaPizza struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              alphaSpec   `json:"spec"`
	Status            pizzaStatus `json:"status"`
}

type alphaSpec struct {
	Toppings []string `json:"toppings"`
	Size     string   `json:"size,omitempty"`
	Notes    []note   `json:"notes,omitempty"`
}

type betaPizza struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              betaSpec    `json:"spec"`
	Status            pizzaStatus `json:"status"`
}

type betaSpec struct {
	Toppings []topping `json:"toppings"`
	Diameter int       `json:"diameter"`
	Notes    []note    `json:"notes,omitempty"`
}

type note struct {
	Text string `json:"text"`
}

type pizzaStatus struct {
	Cost float64 `json:"cost,omitempty"`
}

var sizes = []struct {
	name     string
	diameter int
}{{"", 0}, {"small", 24}, {"large", 32}}

func toBeta(in *alphaPizza, out *betaPizza) error {
	out.ObjectMeta, out.Status = in.ObjectMeta, in.Status
	i := slices.IndexFunc(sizes, func(s struct {
		name     string
		diameter int
	},
	) bool {
		return s.name == in.Spec.Size
	})
	if i < 0 {
		return ErrorAt("spec.size", fmt.Errorf("%q is no size", in.Spec.Size))
	}
	out.Spec = betaSpec{Diameter: sizes[i].diameter, Notes: in.Spec.Notes}
	var err error
	out.Spec.Toppings, err = toToppings(in.Spec.Toppings)
	return err
}

func toAlpha(in *betaPizza, out *alphaPizza) error {
	out.ObjectMeta, out.Status = in.ObjectMeta, in.Status
	out.Spec.Notes = in.Spec.Notes
	for _, s := range sizes { // The largest that is not larger.
		if s.diameter <= in.Spec.Diameter {
			out.Spec.Size = s.name
		}
	}
	var err error
	out.Spec.Toppings, err = toToppingNames(in.Spec.Toppings)
	return ErrorAt("spec.toppings", err)
}

// nest and flatten are conversions of maps: spec.count moves to spec.size.count.
func nest(object map[string]any) (map[string]any, error) {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return object, nil
	}
	if count, ok := spec["count"]; ok {
		delete(spec, "count")
		spec["size"] = map[string]any{"count": count}
	}
	return object, nil
}

func flatten(object map[string]any) (map[string]any, error) {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return object, nil
	}
	if size, ok := spec["size"].(map[string]any); ok {
		delete(spec, "size")
		spec["count"] = size["count"]
	}
	return object, nil
}

// testEngines are the engines of the golden files, by name.
var testEngines = map[string][]Spoke{
	"pizza": {{Version: "v1alpha1", Conversions: []Conversion{
		Field("spec.toppings", "spec.toppings", toToppings, toToppingNames),
	}}},
	"unordered": {{Version: "v1alpha1", Conversions: []Conversion{
		Field("spec.toppings", "spec.toppings", toToppings, toToppingNames, Equivalent(sameNames, sameToppings)),
	}}},
	"three": {
		{Version: "v1alpha1", Conversions: []Conversion{Field("spec.toppings", "spec.toppings", toToppings, toToppingNames)}},
		{Version: "v1", Conversions: []Conversion{Field("spec.order.lines", "spec.toppings", fromLines, toLines)}},
	},
	"moves": {{Version: "v1alpha1", Conversions: []Conversion{
		RawField("spec.a", "spec.b.c", keepRaw, keepRaw),
		RawField("spec.x", "spec.b.d", keepRaw, keepRaw),
		RawField("spec.left", "spec.right", keepRaw, keepRaw),
		RawField("spec.right", "spec.left", keepRaw, keepRaw),
	}}},
	"typed":        {{Version: "v1alpha1", Conversions: []Conversion{Object(toBeta, toAlpha)}}},
	"unstructured": {{Version: "v1alpha1", Conversions: []Conversion{Unstructured(nest, flatten)}}},
	"roots": {{Version: "v1alpha1", Conversions: []Conversion{
		RawField("size", "spec.size", keepRaw, keepRaw),
		RawField("old.count", "count", keepRaw, keepRaw),
	}}},
	"sliced": {{Version: "v1alpha1", Conversions: []Conversion{
		Field("spec.cut", "spec.sliced", func(*string) (bool, error) { return true, nil }, func(sliced bool) (*string, error) { return map[bool]*string{true: new("yes")}[sliced], nil }),
	}}},
	"panics": {{Version: "v1alpha1", Conversions: []Conversion{
		Field("spec.toppings", "spec.toppings", func([]string) ([]topping, error) { panic("out of tomatoes") }, toToppingNames),
	}}},
	"none": {{Version: "v1alpha1"}},
}

func keepRaw(dst, value []byte) ([]byte, error) { return append(dst, value...), nil }

func testEngine(tb testing.TB, name string) *Engine {
	tb.Helper()
	spokes, ok := testEngines[name]
	if !ok {
		tb.Fatalf("no engine %q", name)
	}
	e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: spokes})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}
