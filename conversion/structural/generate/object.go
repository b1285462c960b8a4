package generate

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"refract.dev/conversion/structural"
)

// ObjectOptions are the options for generated objects. With the zero value, about half of the objects are valid.
type ObjectOptions struct {
	// Valid requests valid objects without unknown fields. A CEL rule or a not may still make an object invalid, so the
	// caller must call Validate.
	Valid bool
	// Name and Namespace are those of the object, if set. An empty Name means a name that fits the schema.
	Name, Namespace string
	// Texts are useful texts, such as the enum values of another version. Where the schema allows almost any text,
	// every fifth text is one of them.
	Texts []string
	// Each list may always have a few elements, and each text a few letters. Room is the number of further elements and
	// letters that all lists and texts of an object may have together, within the limits of the schema. If it is
	// negative, they may have no more. If it is 0, lists and texts may be as long as the schema allows; most texts are
	// then short, and some have the maximum length, up to a few hundred letters.
	Room int
}

// Object returns an object for a version, with values at the limits of its schema. Most values are valid. An invalid
// object has one or two mistakes at any depth: an unknown, missing, null, mistyped, too long or repeated field, or
// malformed metadata. Numbers are int64 or float64.
func Object(src Source, version *structural.Version, o ObjectOptions) map[string]any {
	v := &values{choices: choices{src}, options: o, depth: 3, spare: max(0, o.Room)}
	root := settled(v.choices, version.Structural())
	root.XEmbeddedResource = false // Object itself sets apiVersion, kind and metadata.
	name := v.nameOf(version, o)
	root.Properties = maps.Clone(root.Properties)
	maps.DeleteFunc(root.Properties, func(name string, _ schema.Structural) bool { return everywhere(name) })
	root.ValueValidation.Required = slices.DeleteFunc(slices.Clone(root.ValueValidation.Required), everywhere)
	out := v.object(root)
	out["apiVersion"], out["kind"] = version.APIVersion(), version.Kind()
	metadata := map[string]any{"name": name}
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	decorate(v.choices, metadata)
	v.spoil(metadata)
	out["metadata"] = metadata
	return out
}

// everywhere reports whether every object has the field.
func everywhere(name string) bool {
	return name == "metadata" || name == "apiVersion" || name == "kind"
}

// name returns a name. Usually it fits the schema.
func (v *values) name(limits *schema.Structural) string {
	for range 5 {
		if name := strings.ToLower(v.text(settled(v.choices, limits))); len(validation.IsDNS1123Subdomain(name)) == 0 {
			return name
		}
	}
	return "obj"
}

// decorate adds common fields to metadata.
func decorate(c choices, metadata map[string]any) {
	if c.chance(25) {
		metadata["labels"] = map[string]any{"app": pick(c, "web", ""), "example.org/tier": "back"}
	}
	if c.chance(15) {
		metadata["annotations"] = map[string]any{"note": pick(c, "größer", "", "{}")}
	}
	if c.chance(4) {
		metadata["finalizers"] = []any{"example.org/last"}
	}
}

// spoil adds invalid fields to the metadata of some objects.
func (v *values) spoil(metadata map[string]any) {
	if v.options.Valid || !v.chance(8) {
		return
	}
	wrong := []weighted[map[string]any]{
		{6, map[string]any{"unknown": "field"}},
		{2, map[string]any{"clusterName": "gone", "Labels": map[string]any{}}},
		{2, map[string]any{"labels": map[string]any{"app": int64(1)}}},
		{2, map[string]any{"labels": map[string]any{"app": "not a label!"}}},
		{2, map[string]any{"labels": map[string]any{"-": "x"}}},
		{2, map[string]any{"labels": nil, "annotations": nil}},
		{2, map[string]any{"labels": []any{}}},
		{1, map[string]any{"annotations": map[string]any{"a b": "x", "C": nil}}},
		{1, map[string]any{"annotations": map[string]any{"a": true}}},
		{1, map[string]any{"annotations": "text"}},
		{2, map[string]any{"name": "Not_A_Name"}},
		{2, map[string]any{"name": int64(7)}},
		{2, map[string]any{"name": nil}},
		{1, map[string]any{"finalizers": []any{"plain"}}},
		{1, map[string]any{"finalizers": []any{"no good!/x"}}},
		{1, map[string]any{"finalizers": []any{int64(1)}}},
		{2, map[string]any{"creationTimestamp": "yesterday"}},
		{1, map[string]any{"creationTimestamp": nil, "generation": int64(4)}},
		{1, map[string]any{"generation": "4"}},
		{1, map[string]any{"uid": "mine", "selfLink": "/here"}},
		{1, map[string]any{"uid": int64(1)}},
		{1, map[string]any{"generateName": "made-"}},
		{1, map[string]any{"generateName": "Made_"}},
		{1, map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": int64(5)}},
		{1, map[string]any{"deletionGracePeriodSeconds": int64(5)}},
		{1, map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p"}}}},
		{1, map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "unknown": true}}}},
		{1, map[string]any{"deletionGracePeriodSeconds": -1.5}},
		{1, map[string]any{"managedFields": []any{map[string]any{"operation": "Nothing"}}}},
	}
	maps.Copy(metadata, runtime.DeepCopyJSON(draw(v.choices, wrong)))
}
