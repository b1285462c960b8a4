package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
)

// TestCoverage compiles policies without entries for versions that differ in one place. If there is no error, each
// valid object of one version must be accepted by the other version: without dropped fields, and without values of
// another type.
func TestCoverage(t *testing.T) {
	t.Parallel()
	accepted, refused := 0, 0
	for seed := range uint64(150) {
		src := generate.Seeded(seed)
		def := differing(t, src)
		if def == nil {
			continue
		}
		spec := &refractv1alpha1.ConversionPolicySpec{CRD: def.Name(), Hub: "v2", Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1"}}}
		if p, _ := Compile(spec, def); p == nil {
			refused++
			continue
		}
		accepted++
		for _, names := range [][2]string{{"v1", "v2"}, {"v2", "v1"}} {
			for range 5 {
				passes(t, seed, src, def, names[0], names[1])
			}
		}
	}
	if accepted < 20 || refused < 10 {
		t.Errorf("%d policies compiled, and %d did not: want some of both", accepted, refused)
	}
}

// passes checks that the other version accepts an object without changes.
func passes(t *testing.T, seed uint64, src generate.Source, def *structural.Definition, from, to string) {
	t.Helper()
	versions := map[string]*structural.Version{}
	for _, v := range def.Versions() {
		versions[v.Name()] = v
	}
	obj := generate.Object(src, versions[from], generate.ObjectOptions{Valid: true, Name: "a"})
	decoded, err := versions[from].Decode(obj)
	if err != nil || len(versions[from].Validate(decoded.Object)) > 0 {
		return
	}
	obj = decoded.Object
	obj["apiVersion"] = versions[to].APIVersion()
	pruned, err := versions[to].Prune(obj)
	if err != nil {
		t.Fatalf("seed %d, %s: %v", seed, jsonText(obj), err)
	}
	if len(pruned.Unknown) > 0 {
		t.Errorf("seed %d: %s is an object of %s, and %s drops %q", seed, jsonText(obj), from, to, pruned.Unknown)
	}
	for _, f := range versions[to].Validate(pruned.Object) {
		if f.Rule == string(field.ErrorTypeTypeInvalid) {
			t.Errorf("seed %d: %s is an object of %s, and %s says: %s", seed, jsonText(obj), from, to, f)
		}
	}
}

// differing returns a definition with two versions whose schemas differ in one place. It returns nil if an API server
// would reject the definition.
func differing(t *testing.T, src generate.Source) *structural.Definition {
	t.Helper()
	text, err := json.Marshal(generate.Schema(src, generate.SchemaOptions{Depth: 3, Width: 3}))
	if err != nil {
		t.Fatal(err)
	}
	var schemas [2]map[string]any
	for i := range schemas {
		if err := json.Unmarshal(text, &schemas[i]); err != nil {
			t.Fatal(err)
		}
	}
	edit(src, schemas[1])
	versions := make([]any, len(schemas))
	for i, name := range []string{"v1", "v2"} {
		versions[i] = map[string]any{
			"name": name, "served": true, "storage": i == 0, "schema": map[string]any{"openAPIV3Schema": schemas[i]},
		}
	}
	def, err := structural.New(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
		},
	})
	if err != nil {
		return nil
	}
	return def
}

// edit changes a schema at a random place. It changes a type, removes a property, or changes whether fields outside the
// schema are kept.
func edit(src generate.Source, schema map[string]any) {
	all := inner(schema, nil)
	at := all[src.Uint64()%uint64(len(all))]
	properties, _ := at["properties"].(map[string]any)
	switch src.Uint64() % 4 {
	case 0:
		for _, name := range slices.Sorted(maps.Keys(properties))[:min(1, len(properties))] {
			delete(properties, name)
		}
	case 1:
		delete(at, "x-kubernetes-preserve-unknown-fields")
		delete(at, "additionalProperties")
	case 2:
		delete(at, "nullable")
	default:
		if at["type"] == "string" || at["type"] == "number" || at["type"] == "boolean" {
			for key := range at {
				delete(at, key)
			}
			at["type"] = "integer"
		}
	}
}

// inner returns a schema and all schemas inside it, in a fixed order.
func inner(schema map[string]any, all []map[string]any) []map[string]any {
	all = append(all, schema)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if property, ok := properties[name].(map[string]any); ok && name != "metadata" && name != "apiVersion" && name != "kind" {
			all = inner(property, all)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if s, ok := schema[key].(map[string]any); ok {
			all = inner(s, all)
		}
	}
	return all
}
