package verify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

const group = "example.org"

// crd returns a definition of the kind Thing. The arguments are pairs of the name of a version and the schema of its
// spec. The first version is the storage version.
func crd(versions ...any) map[string]any {
	list := []any{}
	for i := 0; i < len(versions); i += 2 {
		list = append(list, map[string]any{"name": versions[i], "served": true, "storage": i == 0, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": versions[i+1], "status": map[string]any{
				"type": "object", "properties": map[string]any{"phase": map[string]any{"type": "string"}},
			}}},
		}})
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": list,
			"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
		},
	}
}

// definition returns a definition of the kind Thing from texts such as "v1: SCHEMA".
func definition(tb testing.TB, versions ...string) *structural.Definition {
	tb.Helper()
	var all []any
	for _, text := range versions {
		name, spec, _ := strings.Cut(text, ": ")
		var schema map[string]any
		if err := yaml.Unmarshal([]byte(spec), &schema); err != nil {
			tb.Fatal(err)
		}
		all = append(all, name, schema)
	}
	d, err := structural.New(crd(all...))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// engine returns an engine for the kind Thing with the hub v2.
func engine(tb testing.TB, spokes ...convert.Spoke) *convert.Engine {
	tb.Helper()
	e, err := convert.New(convert.Resource{Group: group, Kind: "Thing", Hub: "v2", Spokes: spokes})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// each is a subject that converts objects one by one, as maps.
type each func(obj map[string]any, from, to string) (map[string]any, error)

func (f each) Convert(_ context.Context, objects [][]byte, apiVersion string) ([][]byte, error) {
	out := make([][]byte, 0, len(objects))
	for _, text := range objects {
		var obj map[string]any
		if err := utiljson.Unmarshal(text, &obj); err != nil {
			return nil, err
		}
		from, _ := obj["apiVersion"].(string)
		if from == apiVersion {
			out = append(out, text)
			continue
		}
		if _, ok := obj["metadata"].(map[string]any); !ok {
			obj["metadata"] = map[string]any{}
		}
		obj["apiVersion"] = apiVersion
		got, err := f(obj, strings.TrimPrefix(from, group+"/"), strings.TrimPrefix(apiVersion, group+"/"))
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(got)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// spec returns the spec of an object, and whether it is an object.
func spec(obj map[string]any) (map[string]any, bool) {
	s, ok := obj["spec"].(map[string]any)
	return s, ok
}

// move renames a member of the spec.
func move(obj map[string]any, from, to string) {
	if s, ok := spec(obj); ok {
		if v, ok := s[from]; ok {
			delete(s, from)
			s[to] = v
		}
	}
}

// known is a Knowledge with functions. Each function may be nil.
type known struct {
	normalize func(version string, obj map[string]any) map[string]any
	mayLose   map[string][]string
	// rules are the names of rules, by path. If rules is nil, each path is the name of its own rule.
	rules map[string]string
}

func (k known) Normalize(version, _ string, obj map[string]any) (map[string]any, error) {
	if k.normalize == nil {
		return obj, nil
	}
	return k.normalize(version, obj), nil
}

func (k known) MayLose(version, _ string) []string { return k.mayLose[version] }

func (k known) RuleAt(_, _, path string) string {
	if k.rules != nil {
		return k.rules[path]
	}
	return "rule of " + path
}

// leaves returns the number of scalars and empty values in a value.
func leaves(v any) int {
	switch v := v.(type) {
	case map[string]any:
		n := 0
		for _, inner := range v {
			n += leaves(inner)
		}
		return max(n, 1)
	case []any:
		n := 0
		for _, inner := range v {
			n += leaves(inner)
		}
		return max(n, 1)
	default:
		return 1
	}
}

func body(obj map[string]any) map[string]any {
	obj = maps.Clone(obj)
	delete(obj, "apiVersion")
	delete(obj, "kind")
	delete(obj, "metadata")
	return obj
}

// text returns a report as JSON.
func text(tb testing.TB, r *verify.Report) string {
	tb.Helper()
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}

// The pizza, with the functions of the Go converter in the book.

type counted struct {
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
}

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

const maxToppings = 1000

func toNames(toppings []counted) ([]string, error) {
	out := []string{}
	for _, t := range toppings {
		if t.Quantity < 0 || len(out)+t.Quantity > maxToppings {
			return nil, fmt.Errorf("%d are too many", t.Quantity)
		}
		out = append(out, slices.Repeat([]string{t.Name}, t.Quantity)...)
	}
	return out, nil
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func pizzaSpoke(o ...convert.Option) convert.Spoke {
	return convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
		convert.Field("spec.toppings", "spec.toppings", toCounted, toNames, o...),
	}}
}

var sameToppings = convert.Equivalent(sameNames, func(a, b []counted) bool {
	x, errX := toNames(a)
	y, errY := toNames(b)
	return errX == nil && errY == nil && sameNames(x, y)
})

const pizzaV1 = `v1: {type: object, properties: {
	toppings: {type: array, items: {type: string}}, crust: {type: string}}}`

const pizzaV2 = `v2: {type: object, properties: {
	toppings: {type: array, items: {type: object, required: [name, quantity], properties: {
		name: {type: string}, quantity: {type: integer, minimum: 1, maximum: 10}}}}, crust: {type: string}}}`

// knownPizza ignores the order of toppings.
var knownPizza = known{normalize: func(_ string, obj map[string]any) map[string]any {
	s, ok := spec(obj)
	list, isList := s["toppings"].([]any)
	if !ok || !isList {
		return obj
	}
	var names []string
	for _, topping := range list {
		switch topping := topping.(type) {
		case string:
			names = append(names, topping)
		case map[string]any:
			name, _ := topping["name"].(string)
			quantity, _ := topping["quantity"].(int64)
			names = append(names, slices.Repeat([]string{name}, int(quantity))...)
		}
	}
	slices.Sort(names)
	normal := make([]any, len(names))
	for i, name := range names {
		normal[i] = name
	}
	obj, s = maps.Clone(obj), maps.Clone(s)
	obj["spec"], s["toppings"] = s, normal
	return obj
}}

// pizzaV3 is the part of the schema of v3 after the field crust.
var pizzaV3 = strings.Replace(strings.TrimPrefix(pizzaV2, "v2: {type: object, properties: {\n\t"), ", crust: {type: string}", "", 1)
