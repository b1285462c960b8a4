package structural

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/tree"
)

// Names of breaking changes; the package comment describes them.
const (
	breakFieldRemoved   = "FieldRemoved"
	breakFieldsClosed   = "FieldsClosed"
	breakTypeChanged    = "TypeChanged"
	breakNull           = "NullableRemoved"
	breakRequired       = "RequiredAdded"
	breakEnum           = "EnumNarrowed"
	breakBound          = "BoundTightened"
	breakValidation     = "ValidationAdded"
	breakMerge          = "MergeChanged"
	breakDefault        = "DefaultChanged"
	breakVersionRemoved = "VersionNotServed"
)

// compatibility returns the changes of a definition that break existing objects or clients, in no particular order. The
// API server accepts all of them. Each version is compared with the same version of old. Differences between versions
// are the task of the conversion.
func compatibility(crd, old *apiextensionsv1.CustomResourceDefinition) []Finding {
	c := &comparison{}
	for i := range old.Spec.Versions {
		before := &old.Spec.Versions[i]
		at := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == before.Name })
		if at < 0 {
			if before.Served {
				c.warnf(breakVersionRemoved, "spec.versions", "%s was served before and is removed: clients that still use it get a 404", before.Name)
			}
			continue
		}
		after := &crd.Spec.Versions[at]
		if before.Served && !after.Served {
			c.warnf(breakVersionRemoved, fmt.Sprintf("spec.versions[%d].served", at), "%s was served before: clients that still use it get a 404", before.Name)
		}
		if a, b := schemaOf(before), schemaOf(after); a != nil && b != nil {
			c.schema(step{before: a, after: b, path: schemaPath(at), root: true})
		}
	}
	return c.found
}

// comparison collects breaking changes.
type comparison struct{ linter }

// step is a schema before and after an update.
type step struct {
	before, after *apiextensionsv1.JSONSchemaProps
	path          string
	// root is true for the schema of the resource itself.
	root bool
	// preserved is true if, after the update, an array around the schema keeps unknown fields of its items.
	preserved bool
}

func (s step) at(field string) string { return s.path + "." + field }

// schema compares a schema and all schemas inside it.
func (c *comparison) schema(s step) {
	before, after := typeOf(s.before), typeOf(s.after)
	if !widens(before, after) {
		c.warnf(breakTypeChanged, s.path, "is %s, and was %s before: existing values are not valid", named(after), named(before))
		return
	}
	c.value(s)
	c.bounds(s)
	c.validations(s)
	c.merge(s)
	c.required(s)
	c.members(s)
	itemsBefore, itemsAfter := itemsOf(s.before), itemsOf(s.after)
	if itemsBefore != nil && itemsAfter != nil {
		c.schema(step{before: itemsBefore, after: itemsAfter, path: s.at("items"), preserved: s.preserved || keepsUnknown(s.after)})
	}
}

// widens reports whether the new type includes all values of the old type. The type "" includes all values.
func widens(before, after string) bool {
	switch after {
	case before, "":
		return true
	case "number":
		return before == "integer"
	case "int-or-string":
		return before == "integer" || before == "string"
	default:
		return false
	}
}

func named(typ string) string {
	if typ == "" {
		return "anything"
	}
	return typ
}

// value compares nullable, the enum and the default.
func (c *comparison) value(s step) {
	if s.before.Nullable && !s.after.Nullable {
		c.warnf(breakNull, s.at("nullable"), "null was valid before, and no longer is")
	}
	if s.before.Default != nil && (s.after.Default == nil || !sameJSON(s.before.Default.Raw, s.after.Default.Raw)) {
		now := "there is none"
		if s.after.Default != nil {
			now = "is " + string(s.after.Default.Raw)
		}
		c.warnf(breakDefault, s.at("default"), "was %s before, and %s: an object without it gets another meaning", s.before.Default.Raw, now)
	}
	if len(s.after.Enum) == 0 {
		return
	}
	if len(s.before.Enum) == 0 {
		c.warnf(breakEnum, s.at("enum"), "there was none before: values that it lacks are no longer valid")
		return
	}
	var gone []string
	for _, value := range s.before.Enum {
		if !slices.ContainsFunc(s.after.Enum, func(v apiextensionsv1.JSON) bool { return sameJSON(v.Raw, value.Raw) }) {
			gone = append(gone, string(value.Raw))
		}
	}
	if len(gone) > 0 {
		c.warnf(breakEnum, s.at("enum"), "lacks %s, which it had before", strings.Join(gone, ", "))
	}
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && tree.Equal(x, y)
}

// bounds compares limits of sizes and lengths, and pattern, format and multipleOf.
func (c *comparison) bounds(s step) {
	a, b := s.before, s.after
	bound(c, s.at("minimum"), a.Minimum, b.Minimum, false)
	bound(c, s.at("maximum"), a.Maximum, b.Maximum, true)
	for _, exclusive := range []struct {
		name          string
		before, after bool
		// same is true if the restriction has not changed.
		same bool
	}{
		{"exclusiveMinimum", a.ExclusiveMinimum, b.ExclusiveMinimum, equal(a.Minimum, b.Minimum)},
		{"exclusiveMaximum", a.ExclusiveMaximum, b.ExclusiveMaximum, equal(a.Maximum, b.Maximum)},
	} {
		if exclusive.same && exclusive.after && !exclusive.before {
			c.warnf(breakBound, s.at(exclusive.name), "was not set before: the bound itself is no longer valid")
		}
	}
	for _, least := range []struct {
		name          string
		before, after *int64
	}{{"minLength", a.MinLength, b.MinLength}, {"minItems", a.MinItems, b.MinItems}, {"minProperties", a.MinProperties, b.MinProperties}} {
		if least.before != nil || least.after != nil && *least.after > 0 {
			bound(c, s.at(least.name), least.before, least.after, false)
		}
	}
	bound(c, s.at("maxLength"), a.MaxLength, b.MaxLength, true)
	bound(c, s.at("maxItems"), a.MaxItems, b.MaxItems, true)
	bound(c, s.at("maxProperties"), a.MaxProperties, b.MaxProperties, true)
	if b.MultipleOf != nil && !equal(a.MultipleOf, b.MultipleOf) {
		c.other(s.at("multipleOf"), a.MultipleOf == nil, fmt.Sprint(*b.MultipleOf))
	}
	if b.Pattern != "" && a.Pattern != b.Pattern {
		c.other(s.at("pattern"), a.Pattern == "", fmt.Sprintf("%q", b.Pattern))
	}
	if b.Format != "" && a.Format != b.Format {
		c.other(s.at("format"), a.Format == "", b.Format)
	}
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// bound compares the old and the new value of a numeric bound.
func bound[T int64 | float64](c *comparison, at string, before, after *T, upper bool) {
	switch {
	case after == nil:
	case before == nil:
		c.warnf(breakBound, at, "is %v, and there was none before", *after)
	case upper && *after < *before, !upper && *after > *before:
		c.warnf(breakBound, at, "is %v, and was %v before", *after, *before)
	}
}

// other reports a changed restriction that may be stricter or less strict than before.
func (c *comparison) other(at string, added bool, now string) {
	if added {
		c.warnf(breakBound, at, "is %s, and there was none before", now)
		return
	}
	c.warnf(breakBound, at, "is %s, and was another before: existing values may not be valid", now)
}

// validations compares validation rules. A changed rule may be stricter or less strict than before.
func (c *comparison) validations(s step) {
	const added = "was not set before: existing values may not be valid"
	for i, rule := range s.after.XValidations {
		if !slices.ContainsFunc(s.before.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			c.warnf(breakValidation, fmt.Sprintf("%s[%d].rule", s.at("x-kubernetes-validations"), i), added)
		}
	}
	for i := range s.after.AllOf {
		if !holds(s.before.AllOf, &s.after.AllOf[i]) {
			c.warnf(breakValidation, fmt.Sprintf("%s[%d]", s.at("allOf"), i), added)
		}
	}
	switch {
	case len(s.after.AnyOf) == 0:
	case len(s.before.AnyOf) == 0:
		c.warnf(breakValidation, s.at("anyOf"), added)
	case slices.ContainsFunc(s.before.AnyOf, func(one apiextensionsv1.JSONSchemaProps) bool { return !holds(s.after.AnyOf, &one) }):
		c.warnf(breakValidation, s.at("anyOf"), "had another alternative before, which existing values may need")
	}
	if len(s.after.OneOf) > 0 && !reflect.DeepEqual(s.before.OneOf, s.after.OneOf) {
		c.warnf(breakValidation, s.at("oneOf"), "was not the same before: existing values may not be valid")
	}
	if s.after.Not != nil && !reflect.DeepEqual(s.before.Not, s.after.Not) {
		c.warnf(breakValidation, s.at("not"), "was not the same before: existing values may not be valid")
	}
	if s.after.XEmbeddedResource && !s.before.XEmbeddedResource {
		c.warnf(breakValidation, s.at("x-kubernetes-embedded-resource"),
			"was not set before: existing values need an apiVersion, a kind and valid metadata")
	}
}

func holds(all []apiextensionsv1.JSONSchemaProps, one *apiextensionsv1.JSONSchemaProps) bool {
	return slices.ContainsFunc(all, func(s apiextensionsv1.JSONSchemaProps) bool { return reflect.DeepEqual(s, *one) })
}

// merge compares the fields that determine how server-side apply merges lists and maps, and which elements must be
// unique.
func (c *comparison) merge(s step) {
	if before, after := or(s.before.XListType, "atomic"), or(s.after.XListType, "atomic"); before != after {
		c.warnf(breakMerge, s.at("x-kubernetes-list-type"), "is %s, and was %s before: server-side apply merges differently%s", after, before, twice(after))
		return
	}
	keys := func(schema *apiextensionsv1.JSONSchemaProps) []string {
		return slices.Sorted(slices.Values(schema.XListMapKeys))
	}
	if before, after := keys(s.before), keys(s.after); !slices.Equal(before, after) {
		c.warnf(breakMerge, s.at("x-kubernetes-list-map-keys"), "are %s, and were %s before: server-side apply merges differently%s",
			strings.Join(after, ", "), strings.Join(before, ", "), twice("map"))
	}
	if before, after := or(s.before.XMapType, "granular"), or(s.after.XMapType, "granular"); before != after {
		c.warnf(breakMerge, s.at("x-kubernetes-map-type"), "is %s, and was %s before: server-side apply merges differently", after, before)
	}
}

func or(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

// twice describes which duplicates a list of this type rejects.
func twice(listType string) string {
	if listType == "atomic" {
		return ""
	}
	return ", and duplicate items are not valid"
}

// required reports newly required fields. A field with a default need not be in existing objects.
func (c *comparison) required(s step) {
	for i, name := range s.after.Required {
		if slices.Contains(s.before.Required, name) || s.after.Properties[name].Default != nil || s.root && isMeta(name) {
			continue
		}
		c.warnf(breakRequired, fmt.Sprintf("%s[%d]", s.at("required"), i),
			"%q was not required before, and has no default: objects without it are no longer valid", name)
	}
}

// members compares the fields of an object, or the values of a map.
func (c *comparison) members(s step) {
	for name := range s.before.Properties {
		if s.root && isMeta(name) {
			continue
		}
		before := s.before.Properties[name]
		after, ok := s.after.Properties[name]
		values := valuesOf(s.after)
		switch {
		case ok:
			c.schema(step{before: &before, after: &after, path: property(s.path, name)})
		case values != nil:
			c.schema(step{before: &before, after: values, path: s.at("additionalProperties")})
		case !s.open():
			c.warnf(breakFieldRemoved, property(s.path, name),
				"existed before: an API server drops existing values, and the next write of an object loses them")
		}
	}
	before, after := valuesOf(s.before), valuesOf(s.after)
	switch {
	case before != nil && after != nil:
		c.schema(step{before: before, after: after, path: s.at("additionalProperties")})
	case keepsUnknown(s.before) && !s.open() && after == nil:
		c.warnf(breakFieldsClosed, s.at("x-kubernetes-preserve-unknown-fields"),
			"was set before: an API server drops the fields that are not among properties, and the next write of an object loses them")
	case takesMore(s.before) && !s.open() && after == nil:
		c.warnf(breakFieldsClosed, s.at("additionalProperties"),
			"was open before: an API server drops the fields that are not among properties, and the next write of an object loses them")
	case (keepsUnknown(s.before) || takesMore(s.before)) && after != nil:
		c.warnf(breakFieldsClosed, s.at("additionalProperties"), "accepted any value before, and has a schema")
	}
}

// open reports whether the object keeps fields outside its properties after the update.
func (s step) open() bool { return s.preserved || keepsUnknown(s.after) || takesMore(s.after) }

// takesMore reports whether a schema accepts fields outside its properties.
func takesMore(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.AdditionalProperties != nil && (s.AdditionalProperties.Allows || s.AdditionalProperties.Schema != nil)
}
