package suggest

import (
	"encoding/json"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// kind is the type of a value, as conversions distinguish types.
type kind string

const (
	object   kind = "object"
	table    kind = "table" // An object whose keys are data.
	array    kind = "list"
	text     kind = "string"
	integer  kind = "integer"
	number   kind = "number"
	boolean  kind = "boolean"
	either   kind = "integer or string"
	anything kind = "value of any type"
)

// article returns the name of the kind with an article.
func (k kind) article() string {
	switch k {
	case object, integer, either:
		return "an " + string(k)
	default:
		return "a " + string(k)
	}
}

func (k kind) scalar() bool { return slices.Contains([]kind{text, integer, number, boolean}, k) }

// described describes the type and the content of a value: "a list of strings".
func described(s *schema.Structural) string {
	switch k := kindOf(s); {
	case k == object && keepsAll(s):
		return "an object that takes any field"
	case k != array && k != table:
		return k.article()
	}
	return "a " + plural(s, false)
}

// plural describes values of a type. If many is true, it uses the plural; otherwise the singular without an article.
func plural(s *schema.Structural, many bool) string {
	k, of := kindOf(s), ""
	switch k {
	case array:
		of = " of " + plural(s.Items, true)
	case table:
		of = " of " + plural(s.AdditionalProperties.Structural, true)
	case either:
		return "integers or strings"
	case anything:
		return "values of any type"
	default: // The name of the kind is enough.
	}
	if many {
		return string(k) + "s" + of
	}
	return string(k) + of
}

// kindOf returns the kind of a value.
func kindOf(s *schema.Structural) kind {
	switch {
	case s.XIntOrString:
		return either
	case s.Type == "string":
		return text
	case s.Type == "integer":
		return integer
	case s.Type == "number":
		return number
	case s.Type == "boolean":
		return boolean
	case s.Type == "array" && s.Items != nil:
		return array
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
		return table
	case s.Type == "object":
		return object
	default:
		return anything
	}
}

// sameShape reports whether the values of each schema fit the other schema unchanged. It compares types, required
// members and enums, but not bounds, patterns and defaults.
func sameShape(a, b *schema.Structural) bool {
	k := kindOf(a)
	if k != kindOf(b) || a.XEmbeddedResource != b.XEmbeddedResource {
		return false
	}
	switch k {
	case object:
		return sameMembers(a, b)
	case table:
		return sameShape(a.AdditionalProperties.Structural, b.AdditionalProperties.Structural)
	case array:
		return sameShape(a.Items, b.Items)
	default:
		return sameEnum(a, b)
	}
}

func sameMembers(a, b *schema.Structural) bool {
	if len(a.Properties) != len(b.Properties) || keepsAll(a) != keepsAll(b) {
		return false
	}
	for name, value := range a.Properties {
		other, ok := b.Properties[name]
		if !ok || !sameShape(&value, &other) || requires(a, name) != requires(b, name) {
			return false
		}
	}
	return true
}

// sameEnum reports whether two schemas have equal enums, or both have none.
func sameEnum(a, b *schema.Structural) bool {
	values, others := enumOf(a), enumOf(b)
	return len(values) == len(others) && !slices.ContainsFunc(values, func(v any) bool { return !slices.Contains(others, v) })
}

// enumOf returns the scalar values of an enum without null. Without an enum it returns nil.
func enumOf(s *schema.Structural) []any {
	if s.ValueValidation == nil {
		return nil
	}
	var values []any
	for _, v := range s.ValueValidation.Enum {
		switch v.Object.(type) {
		case string, bool, int64, float64:
			values = append(values, v.Object)
		}
	}
	return values
}

// maxDepth is the maximum depth of the value that least returns.
const maxDepth = 32

// least returns a value that fits the types, enums, lower bounds and required members of a schema. It is the default,
// the first value of the enum, or the smallest value.
func least(s *schema.Structural, depth int) any {
	if hasDefault(s) {
		return s.Default.Object
	}
	if values := enumOf(s); values != nil {
		return values[0]
	}
	switch kindOf(s) {
	case object:
		out := map[string]any{}
		for name, value := range s.Properties {
			if requires(s, name) && depth < maxDepth {
				out[name] = least(&value, depth+1)
			}
		}
		return out
	case table, anything:
		return map[string]any{}
	case array:
		return leastList(s, depth)
	case text:
		return leastText(s)
	case boolean:
		return false
	default:
		return leastNumber(s)
	}
}

// most is the maximum length of lists and texts in the value that least returns.
const most = 64

func leastList(s *schema.Structural, depth int) any {
	out := []any{}
	if s.ValueValidation == nil || s.ValueValidation.MinItems == nil || depth >= maxDepth {
		return out
	}
	for range min(*s.ValueValidation.MinItems, most) {
		out = append(out, least(s.Items, depth+1))
	}
	return out
}

func leastText(s *schema.Structural) any {
	if s.ValueValidation == nil || s.ValueValidation.MinLength == nil {
		return ""
	}
	return string(slices.Repeat([]byte("x"), int(min(max(*s.ValueValidation.MinLength, 0), most))))
}

func leastNumber(s *schema.Structural) any {
	if v := s.ValueValidation; v != nil && v.Minimum != nil && *v.Minimum > 0 {
		least := *v.Minimum
		if v.ExclusiveMinimum {
			least++
		}
		if whole := int64(least); float64(whole) == least {
			return whole
		}
		return least
	}
	return int64(0)
}

// jsonOf returns a value in a schema as JSON.
func jsonOf(value any) *apiextensionsv1.JSON {
	data, err := json.Marshal(value)
	if err != nil {
		data = []byte("null") // Cannot happen: values in schemas are JSON values.
	}
	return &apiextensionsv1.JSON{Raw: data}
}
