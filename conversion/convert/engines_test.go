package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"refract.dev/tree/raw"
)

// topping is a topping of a v1beta1 pizza. A nil quantity means one.
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

// toLines converts toppings to lines such as "2 tomato".
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

// alphaPizza and betaPizza are typical types for conversions of whole objects: the encoding has some zero values, and
// omits others.
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
	for _, s := range sizes { // The largest size that is not larger than the diameter.
		if s.diameter <= in.Spec.Diameter {
			out.Spec.Size = s.name
		}
	}
	var err error
	out.Spec.Toppings, err = toToppingNames(in.Spec.Toppings)
	return ErrorAt("spec.toppings", err)
}

// nest and flatten convert whole objects as maps: spec.count moves to spec.size.count and back.
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
	"none":     {{Version: "v1alpha1"}},
	"passing":  {{Version: "v1alpha1", Conversions: []Conversion{Move("spec.a", "spec.b.c"), Move("spec.left", "spec.right"), Move("spec.right", "spec.left"), Move(`spec["x.y"]`, `spec["x/y"].z`)}}},
	"onesided": {{Version: "v1alpha1", Conversions: onesided}},
	"list":     {{Version: "v1alpha1", Conversions: []Conversion{Items("spec.toppings", "spec.toppings", toppingFields, Keys([]string{"name"}, []string{"id.name"}))}}},
	"unnamed":  {{Version: "v1alpha1", Conversions: []Conversion{Items("spec.toppings", "spec.toppings", toppingFields)}}},
	"deep": {{Version: "v1alpha1", Conversions: []Conversion{
		Items("spec.orders", "spec.tables", []Conversion{
			Move("no", "number"),
			Items("pizzas", "pizzas", []Conversion{RawField("size", "size", sizeToDiameter, diameterToSize), SpokeOnly("note")}, Keys([]string{"name"}, []string{"name"})),
		}, Keys([]string{"no"}, []string{"number"})),
	}}},
	"table": {{Version: "v1alpha1", Conversions: []Conversion{Values("spec.stock", "spec.pantry.stock", toppingFields)}}},
	"matrix": {{Version: "v1alpha1", Conversions: []Conversion{
		Items("spec.rows", "spec.rows", []Conversion{Items("", "", []Conversion{RawField("", "", sizeToDiameter, diameterToSize)})}),
	}}},
	"group": {{Version: "v1alpha1", Conversions: []Conversion{
		RawField("spec.address", "spec.{host,port}", splitAddress, joinAddress),
		Items("spec.doors", "spec.doors", []Conversion{RawField("{host,port}", "address", joinAddress, splitAddress)}),
	}}},
	"parents": {{Version: "v1alpha1", Conversions: []Conversion{
		HubParent("spec.oven"), HubParent("spec.oven.door"), SpokeParent("spec.old"),
		Move("spec.degrees", "spec.oven.degrees"), HubOnly("spec.oven.wood"), Move("spec.locked", "spec.oven.door.locked"),
		Field("spec.cut", "spec.oven.sliced", func(*string) (bool, error) { return true, nil }, func(sliced bool) (*string, error) { return map[bool]*string{true: new("yes")}[sliced], nil }),
		SpokeOnly("spec.old.note"),
	}}},
	"laws": {{Version: "v1alpha1", Conversions: []Conversion{
		HubParent("spec.oven"), Move("spec.degrees", "spec.oven.degrees"), HubOnly("spec.oven.wood"),
		SpokeOnly("spec.note"), HubOnly("spec.note"),
		RawField("spec.address", "spec.{host,port}", splitAddress, joinAddress),
		Items("spec.orders", "spec.tables", []Conversion{
			Move("no", "number"),
			Items("pizzas", "pizzas", lawFields, Keys([]string{"name"}, []string{"id.name"})),
			SpokeOnly("note"),
		}, Keys([]string{"no"}, []string{"number"})),
		Items("spec.drinks", "spec.drinks", lawFields),
		Values("spec.stock", "spec.stock", lawFields),
	}}},
	"merged": {{Version: "v1alpha1", Conversions: []Conversion{
		RawField("spec.toppings", "spec.toppings", withoutNotes, keepRaw, Keys([]string{"name"}, []string{"name"})),
	}}},
}

func keepRaw(dst, value []byte) ([]byte, error) { return append(dst, value...), nil }

// testEngine returns the engine with this name. With the suffix " keep", the engine has the option Keep.
func testEngine(tb testing.TB, name string) *Engine {
	tb.Helper()
	name, keeps := strings.CutSuffix(name, " keep")
	spokes, ok := testEngines[name]
	if !ok {
		tb.Fatalf("no engine %q", name)
	}
	r := Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: spokes}
	if keeps {
		r.OnError = Keep
	}
	e, err := New(r)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// onesided has values that only one version has, and places that have different values in the two versions.
var onesided = []Conversion{
	SpokeOnly("spec.oven.wood"),
	SpokeOnly("spec.note"),
	HubOnly("spec.note"),
	SpokeOnly("spec.count"),
	Move("spec.number", "spec.count"),
	HubOnly("spec.crust", Default([]byte(`"thin"`))),
	HubOnly("spec.oven.degrees", Default([]byte("300"))),
}

// toppingFields are the conversions of a topping. Its name and amount move. Each version has a field that the other
// version does not have.
var toppingFields = []Conversion{
	Move("name", "id.name"),
	RawField("size", "diameter", sizeToDiameter, diameterToSize),
	SpokeOnly("note"),
	HubOnly("origin", Default([]byte(`"here"`))),
}

// lawFields are conversions of an element that lose nothing on the way to the other version and back.
var lawFields = []Conversion{
	HubParent("id"), Move("name", "id.name"), RawField("size", "diameter", sizeToDiameter, diameterToSize), SpokeOnly("note"), HubOnly("origin"),
}

// sizeToDiameter and diameterToSize lose a diameter that is not that of a size.
func sizeToDiameter(dst, value []byte) ([]byte, error) {
	for _, s := range sizes {
		if string(value) == strconv.Quote(s.name) {
			return strconv.AppendInt(dst, int64(s.diameter), 10), nil
		}
	}
	return dst, fmt.Errorf("%s is no size", value)
}

func diameterToSize(dst, value []byte) ([]byte, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return dst, fmt.Errorf("%s is no diameter", value)
	}
	name := ""
	for _, s := range sizes {
		if s.diameter <= n {
			name = s.name
		}
	}
	return strconv.AppendQuote(dst, name), nil
}

// address is a host with a port. The default port is 80.
type address struct {
	Host string `json:"host,omitempty"`
	Port int    `json:"port,omitempty"`
}

func splitAddress(dst, value []byte) ([]byte, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return dst, err
	}
	host, port, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(cmp.Or(port, "80"))
	if err != nil {
		return dst, err
	}
	data, err := json.Marshal(address{Host: host, Port: n})
	return append(dst, data...), err
}

func joinAddress(dst, value []byte) ([]byte, error) {
	var a address
	if err := json.Unmarshal(value, &a); err != nil {
		return dst, err
	}
	return raw.AppendString(dst, fmt.Sprintf("%s:%d", a.Host, cmp.Or(a.Port, 80))), nil
}

// withoutNotes removes the notes of toppings, and hidden toppings.
func withoutNotes(dst, value []byte) ([]byte, error) {
	var toppings []map[string]any
	if err := json.Unmarshal(value, &toppings); err != nil {
		return dst, err
	}
	toppings = slices.DeleteFunc(toppings, func(t map[string]any) bool { return t["hidden"] != nil })
	for _, t := range toppings {
		delete(t, "note")
	}
	data, err := json.Marshal(toppings)
	return append(dst, data...), err
}
