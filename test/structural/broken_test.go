package structural

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// breakage is a mistake that a test inserts into a schema or a definition.
type breakage struct {
	name string
	do   func(r *rand.Rand, node map[string]any)
}

// sets returns a breakage that sets keys of a JSON object.
func sets(name string, members map[string]any) breakage {
	return breakage{name, func(_ *rand.Rand, node map[string]any) { maps.Copy(node, runtime.DeepCopyJSON(members)) }}
}

// drops returns a breakage that removes keys of a JSON object.
func drops(names ...string) breakage {
	return breakage{"no " + names[0], func(_ *rand.Rand, node map[string]any) {
		for _, name := range names {
			delete(node, name)
		}
	}}
}

type members = map[string]any

func junctor(inner members) members { return members{"anyOf": []any{inner, members{}}} }

func celRule(r members) members { return members{"x-kubernetes-validations": []any{r}} }

// expensive is a CEL rule that takes nine to the power of seven steps.
var expensive = func() string {
	rule := "a + b + c + d + e + f + g > 0"
	for _, name := range "abcdefg" {
		rule = fmt.Sprintf("[1,2,3,4,5,6,7,8,9].all(%c, %s)", name, rule)
	}
	return rule
}()

// ofSchemas are the breakages for schemas at any depth.
var ofSchemas = []breakage{
	drops("type"), drops("items"), drops("properties"), drops("x-kubernetes-list-map-keys"), drops("x-kubernetes-list-type"), drops("x-kubernetes-map-type"),
	drops("required", "default"), drops("x-kubernetes-preserve-unknown-fields"),
	sets("type null", members{"type": "null"}),
	sets("unknown type", members{"type": "text"}),
	sets("another type", members{"type": "array"}),
	sets("a type after all", members{"type": "integer"}),
	sets("both kinds of properties", members{"properties": members{"a": members{"type": "string"}}, "additionalProperties": members{"type": "string"}}),
	sets("no additional properties", members{"additionalProperties": false}),
	sets("preserve false", members{"x-kubernetes-preserve-unknown-fields": false}),
	sets("int or string", members{"x-kubernetes-int-or-string": true}),
	sets("int or string, and all else", members{
		"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true,
	}),
	sets("embedded", members{"x-kubernetes-embedded-resource": true}),
	sets("embedded without content", members{"type": "object", "x-kubernetes-embedded-resource": true, "properties": members{}}),
	sets("embedded map", members{"type": "object", "x-kubernetes-embedded-resource": true, "additionalProperties": members{"type": "string"}}),
	sets("embedded with wrong metadata", members{
		"type": "object", "x-kubernetes-embedded-resource": true,
		"properties": members{"metadata": members{"type": "string"}, "kind": members{"type": "integer"}, "apiVersion": members{"type": "boolean"}},
	}),
	sets("metadata default in embedded", members{
		"type": "object", "x-kubernetes-embedded-resource": true, "properties": members{"metadata": members{
			"type": "object", "properties": members{"name": members{"type": "string", "default": "Not_A_Name"}},
		}},
	}),
	sets("uniqueItems", members{"uniqueItems": true}),
	sets("$ref", members{"$ref": "#/definitions/a"}),
	sets("definitions", members{"definitions": members{"a": members{"type": "string"}}}),
	sets("dependencies", members{"dependencies": members{"a": []any{"b"}}}),
	sets("patternProperties", members{"patternProperties": members{"^a": members{"type": "string"}}}),
	sets("additionalItems", members{"additionalItems": members{"type": "string"}}),
	sets("id", members{"id": "a"}),
	sets("tuple", members{"type": "array", "items": []any{members{"type": "string"}, members{"type": "integer"}}}),
	sets("nullable", members{"nullable": true}),
	sets("pattern", members{"pattern": "(["}),
	sets("perl pattern", members{"pattern": "^(?!a).*$"}),
	sets("default with unknown fields", members{"default": members{"unheard": members{"of": int64(1)}}}),
	sets("default of text", members{"default": "text"}),
	sets("default of a number", members{"default": 0.5}),
	sets("default of a list", members{"default": []any{nil, int64(1), int64(1)}}),
	sets("default null", members{"default": nil}),
	sets("enum beside default", members{"enum": []any{"a"}, "default": "b"}),
	sets("range beside default", members{"type": "integer", "minimum": int64(3), "default": int64(1)}),
	sets("junctor with type", junctor(members{"type": "string"})),
	sets("junctor with all", junctor(members{
		"description": "d", "title": "t", "nullable": true, "default": "x", "x-kubernetes-preserve-unknown-fields": true,
		"x-kubernetes-int-or-string": true, "x-kubernetes-embedded-resource": true, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": []any{"a"},
		"x-kubernetes-map-type": "atomic", "additionalProperties": members{"type": "string"}, "x-kubernetes-validations": []any{members{"rule": "true"}},
	})),
	sets("junctor with unknown properties", members{"not": members{"properties": members{"unheard": members{"items": members{"minimum": int64(1)}}}}}),
	sets("junctor with metadata", members{"allOf": []any{members{"properties": members{"metadata": members{"required": []any{"name"}}}}}}),
	sets("junctor with items", members{"oneOf": []any{members{"items": members{"maxLength": int64(1)}}, members{"pattern": "(["}}}),
	sets("list type", members{"x-kubernetes-list-type": "set"}),
	sets("unknown list type", members{"x-kubernetes-list-type": "bag"}),
	sets("map of nothing", members{"type": "array", "x-kubernetes-list-type": "map", "items": members{"type": "string"}}),
	sets("map with wrong keys", members{
		"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"a", "b", "b", "c"}, "items": members{
			"type": "object", "nullable": true,
			"properties": members{"a": members{"type": "object"}, "b": members{"type": "string", "nullable": true}},
		},
	}),
	sets("set of maps", members{"type": "array", "x-kubernetes-list-type": "set", "items": members{"type": "object", "nullable": true}}),
	sets("set of sets", members{"type": "array", "x-kubernetes-list-type": "set", "items": members{
		"type": "array", "x-kubernetes-list-type": "set", "items": members{"type": "string"},
	}}),
	sets("map type", members{"x-kubernetes-map-type": "atomic"}),
	sets("unknown map type", members{"x-kubernetes-map-type": "loose"}),
	sets("keys alone", members{"x-kubernetes-list-map-keys": []any{"a"}}),
	sets("rule that is none", celRule(members{"rule": "self ="})),
	sets("rule on nothing", celRule(members{"rule": "self.unheard == 1"})),
	sets("rule of no verdict", celRule(members{"rule": "'text'"})),
	sets("empty rule", celRule(members{"rule": " "})),
	sets("oldSelf", celRule(members{"rule": "self == oldSelf"})),
	sets("optionalOldSelf without it", celRule(members{"rule": "true", "optionalOldSelf": true})),
	sets("message in lines", celRule(members{"rule": "true", "message": "a\nb"})),
	sets("rule in lines", celRule(members{"rule": "true ||\nfalse"})),
	sets("blank message", celRule(members{"rule": "true", "message": "  ", "messageExpression": " "})),
	sets("message of no text", celRule(members{"rule": "true", "messageExpression": "1"})),
	sets("unknown reason", celRule(members{"rule": "true", "reason": "Because"})),
	sets("fieldPath", celRule(members{"rule": "true", "fieldPath": ".unheard"})),
	sets("fieldPath in lines", celRule(members{"rule": "true", "fieldPath": ".a\n"})),
	sets("expensive rule", celRule(members{"rule": expensive})),
	sets("metadata", members{"properties": members{"metadata": members{"type": "object", "properties": members{"labels": members{"type": "object"}}}}}),
	sets("metadata with a default", members{"properties": members{"metadata": members{
		"type": "object", "default": members{"name": "a"}, "properties": members{"name": members{"type": "string", "default": "b"}},
	}}}),
	sets("kind", members{"properties": members{"kind": members{"type": "integer"}, "apiVersion": members{"type": "object"}}}),
}

// ofDefinitions are the breakages for the parts of a definition outside of its schemas.
var ofDefinitions = []breakage{
	version("no storage", func(v members) { v["storage"] = false }),
	version("not served", func(v members) { v["served"] = false }),
	version("no schema", func(v members) { delete(v, "schema") }),
	version("empty schema", func(v members) { v["schema"] = members{} }),
	version("wrong name", func(v members) { v["name"] = "V_1" }),
	version("scale of nothing", func(v members) {
		v["subresources"] = members{"scale": members{"specReplicasPath": "", "statusReplicasPath": ""}}
	}),
	version("scale elsewhere", func(v members) {
		v["subresources"] = members{"scale": members{"specReplicasPath": ".status.a", "statusReplicasPath": ".spec.a", "labelSelectorPath": "status"}}
	}),
	version("status with a limited root", func(v members) {
		v["subresources"] = members{"status": members{}}
		schema, _ := at(v, "schema", "openAPIV3Schema").(members)
		maps.Copy(schema, members{"minProperties": int64(1), "anyOf": []any{members{"required": []any{"a"}}}})
	}),
	version("columns", func(v members) {
		v["additionalPrinterColumns"] = []any{members{"name": "", "type": "text", "jsonPath": "a", "format": "f"}, members{"name": "A", "type": "", "jsonPath": ""}}
	}),
	version("selectable fields", func(v members) {
		v["selectableFields"] = []any{members{"jsonPath": ".unheard"}, members{"jsonPath": ".metadata.name"}, members{"jsonPath": ".spec"}, members{"jsonPath": ""}}
	}),
	version("nullable root", func(v members) {
		schema, _ := at(v, "schema", "openAPIV3Schema").(members)
		maps.Copy(schema, members{"nullable": true, "additionalProperties": true, "default": members{}})
	}),
	{"twice the same version", func(_ *rand.Rand, crd members) {
		versions := list(crd, "spec", "versions")
		again, _ := runtime.DeepCopyJSONValue(versions[0]).(members)
		spec, _ := crd["spec"].(members)
		spec["versions"] = append(versions, again)
	}},
	within("spec", "two storage versions", func(spec members) {
		versions := list(spec, "versions")
		again, _ := runtime.DeepCopyJSONValue(versions[0]).(members)
		again["name"] = "v2"
		spec["versions"] = append(versions, again)
	}),
	within("spec", "no versions", func(spec members) { spec["versions"] = []any{} }),
	within("spec", "no group", func(spec members) { spec["group"] = "" }),
	within("spec", "another group", func(spec members) { spec["group"] = "other.example" }),
	within("spec", "group without a dot", func(spec members) { spec["group"] = "Example" }),
	within("spec", "protected group", func(spec members) { spec["group"] = "a.k8s.io" }),
	within("spec", "scope", func(spec members) { spec["scope"] = "Universe" }),
	within("spec", "no scope", func(spec members) { delete(spec, "scope") }),
	within("spec", "preserve", func(spec members) { spec["preserveUnknownFields"] = true }),
	within("spec", "names", func(spec members) {
		spec["names"] = members{"plural": "Things", "kind": "a b", "listKind": "a b", "singular": "T", "shortNames": []any{"A"}, "categories": []any{"B"}}
	}),
	within("spec", "no names", func(spec members) { spec["names"] = members{"plural": "", "kind": ""} }),
	within("spec", "unknown conversion", func(spec members) { spec["conversion"] = members{"strategy": "Magic"} }),
	within("spec", "conversion without a webhook", func(spec members) { spec["conversion"] = members{"strategy": "Webhook"} }),
	within("spec", "conversion with too much", func(spec members) {
		spec["conversion"] = members{"strategy": "None", "webhook": members{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": members{"url": "https://a.example"},
		}}
	}),
	within("spec", "conversion that is wrong", func(spec members) {
		spec["conversion"] = members{"strategy": "Webhook", "webhook": members{
			"conversionReviewVersions": []any{"v2", "v2", "V"}, "clientConfig": members{"url": "http://a.example/?q#f", "caBundle": "bm90IGEgY2VydA=="},
		}}
	}),
	within("spec", "conversion by a wrong service", func(spec members) {
		spec["conversion"] = members{"strategy": "Webhook", "webhook": members{"conversionReviewVersions": []any{"v1"}, "clientConfig": members{
			"service": members{"name": "", "namespace": "", "path": "a//b", "port": int64(70000)},
		}}}
	}),
	within("metadata", "name", func(metadata members) { metadata["name"] = "things" }),
	within("metadata", "labels", func(metadata members) { metadata["labels"] = members{"a b": "c d"} }),
}

func within(where, name string, do func(members)) breakage {
	return breakage{name, func(_ *rand.Rand, crd members) {
		if inner, ok := crd[where].(members); ok {
			do(inner)
		}
	}}
}

func version(name string, do func(members)) breakage {
	return breakage{name, func(r *rand.Rand, crd members) {
		versions := list(crd, "spec", "versions")
		if len(versions) == 0 {
			return
		}
		if v, ok := versions[r.IntN(len(versions))].(members); ok {
			do(v)
		}
	}}
}

// broken returns a copy of a definition with one to three breakages, and the names of the breakages. In a sequence of
// seeds, every breakage occurs regularly.
func broken(seed uint64, crd members) (out members, what []string) {
	r := rand.New(source(seed))
	out = runtime.DeepCopyJSON(crd)
	all := len(ofSchemas) + len(ofDefinitions)
	for i := range 1 + r.IntN(3) {
		n := r.IntN(all)
		if i == 0 {
			n = int(seed) % all
		}
		if n < len(ofSchemas) {
			nodes := schemaNodes(out)
			ofSchemas[n].do(r, nodes[r.IntN(len(nodes))])
			what = append(what, ofSchemas[n].name)
			continue
		}
		b := ofDefinitions[n-len(ofSchemas)]
		b.do(r, out)
		what = append(what, b.name)
	}
	return out, what
}

// schemaNodes returns the schemas of all versions and all nested schemas. If there are none, it returns an empty schema
// that is not part of the definition.
func schemaNodes(crd members) []members {
	var out []members
	for _, version := range list(crd, "spec", "versions") {
		v, _ := version.(members)
		if root, ok := at(v, "schema", "openAPIV3Schema").(members); ok {
			out = append(out, nodesOf(root)...)
		}
	}
	if len(out) == 0 {
		out = append(out, members{})
	}
	return out
}

func nodesOf(schema members) []members {
	out := []members{schema}
	for _, key := range []string{"items", "additionalProperties", "not"} {
		if inner, ok := schema[key].(members); ok {
			out = append(out, nodesOf(inner)...)
		}
	}
	properties, _ := schema["properties"].(members)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if inner, ok := properties[name].(members); ok {
			out = append(out, nodesOf(inner)...)
		}
	}
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		for _, branch := range list(schema, key) {
			if inner, ok := branch.(members); ok {
				out = append(out, nodesOf(inner)...)
			}
		}
	}
	return out
}
