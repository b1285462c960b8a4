package generate

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/tree"
)

// Small returns the smallest objects for a version, at most limit objects. They are in the order of their number of
// leaves. The second result is the largest number of leaves for which the list is complete; -1 if the list does not
// even have all objects without leaves. Both results depend only on the arguments.
//
// A leaf is a scalar or an empty value. The plainest value of a required field does not count as a leaf. For a scalar,
// only a few values are used: those at the limits of the schema, and one or two plain ones. The objects may be invalid,
// so the caller must call Validate.
func Small(version *structural.Version, o ObjectOptions, leaves, limit int) ([]map[string]any, int) {
	e := &small{values: values{choices: choices{Seeded(0)}, options: ObjectOptions{Valid: true}}, steps: stepsPerObject * (limit + 1)}
	root := settled(e.choices, version.Structural())
	root.Properties = maps.Clone(root.Properties)
	maps.DeleteFunc(root.Properties, func(name string, _ schema.Structural) bool { return everywhere(name) })
	root.XEmbeddedResource = false
	name := e.nameOf(version, o)
	var out []map[string]any
	for n := range leaves + 1 {
		complete := e.object(root, n, true, func(v any) bool {
			obj, _ := runtime.DeepCopyJSONValue(v).(map[string]any)
			obj["apiVersion"], obj["kind"] = version.APIVersion(), version.Kind()
			metadata := map[string]any{"name": name}
			if o.Namespace != "" {
				metadata["namespace"] = o.Namespace
			}
			obj["metadata"] = metadata
			if len(out) < limit {
				out = append(out, obj)
				return true
			}
			return false
		})
		if !complete {
			return out, n - 1
		}
	}
	return out, leaves
}

// stepsPerObject limits the search. It is necessary for schemas with many fields of which no object has the requested
// number of leaves.
const stepsPerObject = 1000

// nameOf returns the name for objects of a version.
func (v *values) nameOf(version *structural.Version, o ObjectOptions) string {
	name := o.Name
	if metadata, ok := version.Structural().Properties["metadata"]; ok && name == "" {
		if limits, ok := metadata.Properties["name"]; ok {
			name = v.name(&limits)
		}
	}
	return cmp.Or(name, "an-object")
}

// small enumerates values with a given number of leaves. Its methods call yield for each value; the value is valid only
// during the call. The methods return false as soon as yield returns false, or after the last allowed step.
type small struct {
	values

	steps int
}

// value enumerates the values of a schema that have n leaves. If must is true, the plainest value has no leaves.
func (e *small) value(s *schema.Structural, n int, must bool, yield func(any) bool) bool {
	if e.steps--; e.steps < 0 {
		return false
	}
	enum := s.ValueValidation != nil && len(s.ValueValidation.Enum) > 0
	switch {
	case enum || s.XIntOrString || s.XEmbeddedResource:
	case s.Type == typeObject && (len(s.Properties) > 0 || s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil):
		return e.null(s, n, yield) && e.object(s, n, must, yield)
	case s.Type == typeArray:
		return e.null(s, n, yield) && e.list(s, n, must, yield)
	}
	if n > 1 {
		return true
	}
	for i, v := range e.scalars(s) {
		leaves := 1
		if must && i == 0 {
			leaves = 0
		}
		if n == leaves && !yield(v) {
			return false
		}
	}
	return true
}

// null enumerates null if the schema allows it.
func (*small) null(s *schema.Structural, n int, yield func(any) bool) bool {
	return !s.Nullable || n != 1 || yield(nil)
}

// object enumerates objects. An empty object is a leaf.
func (e *small) object(s *schema.Structural, n int, must bool, yield func(any) bool) bool {
	out := map[string]any{}
	each := func() bool { return yield(out) }
	names := slices.Sorted(maps.Keys(s.Properties))
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		names = []string{"a", "b-1", "größe"}
	}
	if n == 1 && !must && !e.members(s, names, 0, out, each) {
		return false
	}
	return n == 0 && !must || e.members(s, names, n, out, each)
}

// members adds members with some of these names to an object. They have n leaves in total.
func (e *small) members(s *schema.Structural, names []string, n int, out map[string]any, yield func() bool) bool {
	if e.steps--; e.steps < 0 {
		return false
	}
	if len(names) == 0 {
		return n > 0 || tooFew(s, out) || yield()
	}
	name, least := names[0], 1
	property, declared := s.Properties[name]
	if !declared {
		property = *s.AdditionalProperties.Structural
	}
	required := s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
	if required {
		least = 0
	} else if !e.members(s, names[1:], n, out, yield) {
		return false
	}
	for m := least; m <= n; m++ {
		complete := e.value(&property, m, required, func(v any) bool {
			out[name] = v
			defer delete(out, name)
			return e.members(s, names[1:], n-m, out, yield)
		})
		if !complete {
			return false
		}
	}
	return true
}

// tooFew reports whether an object has fewer members than its schema requires.
func tooFew(s *schema.Structural, obj map[string]any) bool {
	return s.ValueValidation != nil && s.ValueValidation.MinProperties != nil && int64(len(obj)) < *s.ValueValidation.MinProperties
}

// list enumerates lists. An empty list is a leaf.
func (e *small) list(s *schema.Structural, n int, must bool, yield func(any) bool) bool {
	least := 0
	if s.ValueValidation != nil && s.ValueValidation.MinItems != nil {
		least = int(*s.ValueValidation.MinItems)
	}
	if least > mostElements {
		return true
	}
	if n == 1 && !must && !e.elements(s, least, 0, []any{}, yield) {
		return false
	}
	return n == 0 && !must || e.elements(s, least, n, []any{}, yield)
}

// mostElements is the maximum minItems for which lists are enumerated.
const mostElements = 5

// elements adds elements to a list, until the list has the minimum length (least) and n leaves in total.
func (e *small) elements(s *schema.Structural, least, n int, out []any, yield func(any) bool) bool {
	if e.steps--; e.steps < 0 {
		return false
	}
	if len(out) >= least && n == 0 {
		return yield(out)
	}
	must := len(out) < least
	for m := range n + 1 {
		if m == 0 && !must {
			continue
		}
		complete := e.value(s.Items, m, must, func(v any) bool {
			return e.elements(s, least, n-m, append(slices.Clone(out), v), yield)
		})
		if !complete {
			return false
		}
	}
	return true
}

// scalars returns a few values of a schema. The plainest value is the first.
func (e *small) scalars(s *schema.Structural) []any {
	e.src = Seeded(0) // So that the values are the same each time.
	s = settled(e.choices, s)
	var out []any
	switch limits := s.ValueValidation; {
	case len(limits.Enum) > 0:
		for _, v := range limits.Enum {
			if !slices.ContainsFunc(out, func(other any) bool { return tree.Equal(other, v.Object) }) {
				out = append(out, v.Object)
			}
		}
	case s.XIntOrString:
		out = append(e.integers(s), e.texts(s)...)
	case s.XEmbeddedResource:
		out = []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "inner"}}}
	case s.Type == typeString:
		out = e.texts(s)
	case s.Type == typeInteger:
		out = e.integers(s)
	case s.Type == typeNumber:
		out = append(e.integers(s), 0.5)
	case s.Type == typeBoolean:
		out = []any{false, true}
	default:
		out = []any{map[string]any{}, map[string]any{"a": "x"}}
	}
	if s.Nullable && !slices.Contains(out[:1], nil) {
		out = append(out, nil)
	}
	return out
}

// texts returns at least one text.
func (e *small) texts(s *schema.Structural) []any {
	limits := s.ValueValidation
	var texts []string
	switch sample, ok := samples[limits.Format]; {
	case ok:
		texts = sample.right
	case limits.Pattern != "":
		for range 3 {
			texts = append(texts, e.matching(limits.Pattern))
		}
	default:
		low, high := 0, 1
		if limits.MinLength != nil {
			low = int(*limits.MinLength)
			high = max(high, low)
		}
		if limits.MaxLength != nil {
			high = int(*limits.MaxLength)
		}
		plain := min(max(1, low), high)
		texts = []string{fit("a", plain), fit("b", plain), fit("", low), fit("größe", min(high, max(low, 5)))}
	}
	return distinct(texts)
}

func (*small) integers(s *schema.Structural) []any {
	low, high := rangeOf(s)
	numbers := []int64{min(max(1, low), high), min(max(0, low), high), min(max(2, low), high), low, high}
	if step := s.ValueValidation.MultipleOf; step != nil && *step >= 1 {
		for i, n := range numbers {
			numbers[i] = n - n%int64(*step)
		}
	}
	return distinct(numbers)
}

// distinct returns the values without duplicates.
func distinct[T comparable](values []T) []any {
	var out []any
	for _, v := range values {
		if !slices.Contains(out, any(v)) {
			out = append(out, v)
		}
	}
	return out
}
