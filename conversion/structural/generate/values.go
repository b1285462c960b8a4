package generate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// values generates values for schemas.
type values struct {
	choices

	options ObjectOptions
	// depth is the number of levels that a value without a schema may still have.
	depth int
	// spare is the unused part of ObjectOptions.Room.
	spare int
}

// slips reports whether the next value should be invalid. This is rare, so that most invalid objects have only one
// invalid value.
func (v *values) slips() bool { return !v.options.Valid && v.chance(3) }

// value returns a value for a schema.
func (v *values) value(s *schema.Structural) any {
	if s.Nullable && v.chance(15) && (s.ValueValidation == nil || len(s.ValueValidation.Enum) == 0 || v.slips()) {
		return nil
	}
	if v.slips() {
		return v.strange()
	}
	s = settled(v.choices, s)
	if enum := s.ValueValidation.Enum; len(enum) > 0 && !v.slips() {
		return runtime.DeepCopyJSONValue(pick(v.choices, enum[0], enum[len(enum)-1], pick(v.choices, enum...)).Object)
	}
	switch {
	case s.XIntOrString:
		return v.intOrString(s)
	case s.XEmbeddedResource:
		return v.embedded(s)
	}
	switch s.Type {
	case typeObject:
		return v.object(s)
	case typeArray:
		return v.array(s)
	case typeString:
		return v.text(s)
	case typeInteger:
		return v.integer(s)
	case typeNumber:
		return v.number(s)
	case typeBoolean:
		return v.chance(50)
	default:
		return v.untyped(s)
	}
}

// untyped returns a value of any type. It avoids a null that the schema does not allow, because pruning would remove
// the null, and a required field would be missing.
func (v *values) untyped(s *schema.Structural) any {
	out := v.anything()
	if out == nil && v.options.Valid && !s.Nullable {
		return map[string]any{}
	}
	return out
}

func (v *values) intOrString(s *schema.Structural) any {
	if v.chance(50) {
		return v.integer(s)
	}
	return v.text(s)
}

func (v *values) embedded(s *schema.Structural) map[string]any {
	out := v.object(s)
	if !v.slips() {
		if kind, ok := out["kind"].(string); !ok || kind == "" {
			out["kind"] = pick(v.choices, "Pod", "Job")
		}
		out["apiVersion"] = pick(v.choices, "v1", "batch/v1")
	}
	if delete(out, "metadata"); v.chance(50) {
		metadata := map[string]any{"name": "inner"}
		v.spoil(metadata)
		out["metadata"] = metadata
	}
	return out
}

// object returns an object with the required members and some optional ones.
func (v *values) object(s *schema.Structural) map[string]any {
	out := map[string]any{}
	limits := s.ValueValidation
	often := 60
	if v.spare > 0 {
		often = 90
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range names {
		property := s.Properties[name]
		required := slices.Contains(limits.Required, name)
		if required && !v.slips() || !required && v.chance(often) && v.room(out, limits.MaxProperties) {
			out[name] = v.value(&property)
		}
	}
	if s.AdditionalProperties != nil {
		v.fill(out, s)
	}
	for _, name := range names { // An empty object may have too few members.
		if limits.MinProperties == nil || int64(len(out)) >= *limits.MinProperties {
			break
		}
		property := s.Properties[name]
		out[name] = v.value(&property)
	}
	if !v.options.Valid && v.chance(3) || s.XPreserveUnknownFields && s.AdditionalProperties == nil && v.chance(40) {
		out[pick(v.choices, "unknown", "someGarbage", "größer", "with.dot")] = v.anything()
	}
	return out
}

// room reports whether an object may have one more member.
func (v *values) room(obj map[string]any, most *int64) bool {
	return most == nil || int64(len(obj)) < *most || v.slips()
}

// fill adds members with arbitrary names.
func (v *values) fill(out map[string]any, s *schema.Structural) {
	low, high := v.sizes(s.ValueValidation.MinProperties, s.ValueValidation.MaxProperties, 3, few)
	for _, name := range some(v.choices, low, high, []string{"a", "b-1", "forbidden", "größe", "metadata", "x/y"}) {
		switch {
		case s.AdditionalProperties.Structural != nil:
			out[name] = v.value(s.AdditionalProperties.Structural)
		case v.options.Valid: // The API server would not keep such members.
			out[name] = v.scalar()
		default:
			out[name] = v.anything()
		}
	}
}

// Without Room, the number of elements or letters beyond the minimum is usually at most the constant few, and for texts
// never more than the constant many.
const (
	few  = 6
	many = 256
)

// sizes returns the minimum and the maximum size of a value. Without an upper limit in the schema, the maximum is the
// minimum plus the argument usual. If Room is set, the maximum is limited to the sum of the minimum, the argument more
// and the unused room.
func (v *values) sizes(least, most *int64, usual, more int) (low, high int) {
	if least != nil {
		low = int(*least)
	}
	high = low + usual
	if most != nil {
		high = int(*most)
	}
	if v.options.Room != 0 {
		return v.fitting(low, min(high, low+more+v.spare))
	}
	switch {
	case v.slips():
		return high + 1, high + 1
	case v.slips() && low > 0:
		return low - 1, low - 1
	case v.chance(25):
		return low, low
	case v.chance(25): //nolint:gocritic // Another random number than in the previous case.
		return high, high
	default:
		return low, high
	}
}

// fitting is sizes for an object with Room. A value then rarely has the maximum size, but often if room is left.
func (v *values) fitting(low, high int) (least, most int) {
	largest := 15
	if v.spare > 0 {
		largest = 75
	}
	switch {
	case v.chance(largest):
		return high, high
	case v.chance(25):
		return low, low
	default:
		return low, min(high, low+few)
	}
}

// take subtracts a size from the unused room, except for the minimum size and the argument more.
func (v *values) take(n int, least *int64, more int) {
	if least != nil {
		n -= int(*least)
	}
	v.spare = max(0, v.spare-max(0, n-more))
}

func (v *values) array(s *schema.Structural) []any {
	low, high := v.sizes(s.ValueValidation.MinItems, s.ValueValidation.MaxItems, 3, few)
	out := []any{}
	length := v.between(low, high)
	v.take(length, s.ValueValidation.MinItems, few)
	for range length {
		item := v.value(s.Items)
		if !v.slips() && repeated(s, out, item) {
			continue
		}
		out = append(out, item)
	}
	if len(out) > 0 && v.slips() {
		out = append(out, runtime.DeepCopyJSONValue(out[0]))
	}
	return out
}

// repeated reports whether a set already has an item, or a list map an item with the same keys.
func repeated(s *schema.Structural, list []any, item any) bool {
	if s.XListType == nil || *s.XListType == "atomic" {
		return false
	}
	return slices.ContainsFunc(list, func(other any) bool { return identity(s, other) == identity(s, item) })
}

func identity(s *schema.Structural, item any) string {
	members, ok := item.(map[string]any)
	if !ok || *s.XListType == "set" {
		return fmt.Sprintf("%T %v", item, item)
	}
	var out []any
	for _, key := range s.XListMapKeys {
		value, given := members[key]
		if !given {
			value = s.Items.Properties[key].Default.Object
		}
		out = append(out, value)
	}
	return fmt.Sprintf("%v", out)
}

// anything returns a value of any type.
func (v *values) anything() any {
	if v.depth == 0 {
		return v.scalar()
	}
	v.depth--
	defer func() { v.depth++ }()
	switch v.below(4) {
	case 0:
		out := map[string]any{}
		for _, name := range some(v.choices, 0, 3, []string{"a", "spec", "metadata", "kind", "größe", "apiVersion"}) {
			out[name] = v.anything()
		}
		return out
	case 1:
		out := []any{}
		for range v.below(3) {
			out = append(out, v.anything())
		}
		return out
	default:
		return v.scalar()
	}
}

// strange returns a value that the schema does not expect.
func (v *values) strange() any {
	if v.chance(35) {
		return nil
	}
	return v.anything()
}
