package structural

import (
	"fmt"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// Names of lints about restrictions that no value can satisfy.
const (
	lintYAMLBoolean = "YAMLBoolean"
	lintEnumType    = "EnumOfAnotherType"
	lintEmptyRange  = "EmptyRange"
	lintNegative    = "NegativeLimit"
	lintMetadata    = "MetadataWithoutProperties"
)

// read explains the words that YAML 1.1 reads as booleans unless they are quoted.
var read = map[string]string{
	"true":  "YAML reads y, yes, on and true without quotes as true: quote the intended text",
	"false": "YAML reads n, no, off and false without quotes as false: quote the intended text",
}

// values checks the restrictions of values in a schema.
func (l *linter) values(s *apiextensionsv1.JSONSchemaProps, at string, c schemaContext) {
	for _, name := range []string{"true", "false"} {
		if _, ok := s.Properties[name]; ok {
			l.warnf(lintYAMLBoolean, property(at, name), "is named %s; %s", name, read[name])
		}
	}
	l.enum(s, at)
	l.ranges(s, at)
	l.limits(s, at)
	l.metadata(s, at, c)
}

// enum reports values of an enum that the type excludes.
func (l *linter) enum(s *apiextensionsv1.JSONSchemaProps, at string) {
	if s.Type == "" {
		return
	}
	for i := range s.Enum {
		var value any
		if json.Unmarshal(s.Enum[i].Raw, &value) != nil || isOfType(value, s.Type) {
			continue // Null has no raw text here, and is not checked.
		}
		text := string(s.Enum[i].Raw)
		rule, why := lintEnumType, ""
		if hint := read[text]; hint != "" && s.Type == "string" {
			rule, why = lintYAMLBoolean, "; "+hint
		}
		l.warnf(rule, fmt.Sprintf("%s.enum[%d]", at, i), "is %s, and the type is %s, so that no object has it%s", text, s.Type, why)
	}
}

// isOfType reports whether a value other than null has a type.
func isOfType(value any, name string) bool {
	switch v := value.(type) {
	case string:
		return name == "string"
	case bool:
		return name == "boolean"
	case int64:
		return name == "integer" || name == "number"
	case float64:
		return name == "number" || name == "integer" && v == float64(int64(v))
	case []any:
		return name == "array"
	default:
		return name == "object"
	}
}

// ranges reports lower limits above upper limits.
func (l *linter) ranges(s *apiextensionsv1.JSONSchemaProps, at string) {
	if low, high := s.Minimum, s.Maximum; low != nil && high != nil && (*low > *high || *low == *high && (s.ExclusiveMinimum || s.ExclusiveMaximum)) {
		l.warnf(lintEmptyRange, at+".minimum", "is %s, and maximum is %s%s: no number is valid",
			number(*low), number(*high), exclusive(s))
	}
	for _, r := range lengths(s) {
		if r.low != nil && r.high != nil && *r.low > *r.high {
			l.warnf(lintEmptyRange, at+".min"+r.of, "is %d, and max%s is %d: no value is valid", *r.low, r.of, *r.high)
		}
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// exclusive returns a note if a limit is exclusive.
func exclusive(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case *s.Minimum != *s.Maximum:
		return ""
	case s.ExclusiveMinimum:
		return " (exclusiveMinimum)"
	default:
		return " (exclusiveMaximum)"
	}
}

// lengthRange has the limits of a length or of a number of elements.
type lengthRange struct {
	of        string
	low, high *int64
}

func lengths(s *apiextensionsv1.JSONSchemaProps) []lengthRange {
	return []lengthRange{
		{"Length", s.MinLength, s.MaxLength}, {"Items", s.MinItems, s.MaxItems}, {"Properties", s.MinProperties, s.MaxProperties},
	}
}

// limits reports length limits that are negative or exclude each other.
func (l *linter) limits(s *apiextensionsv1.JSONSchemaProps, at string) {
	for _, r := range lengths(s) {
		if r.low != nil && *r.low < 0 {
			l.warnf(lintNegative, at+".min"+r.of, "is %d, which limits nothing; want 0 or more", *r.low)
		}
		if r.high != nil && *r.high < 0 {
			l.warnf(lintNegative, at+".max"+r.of, "is %d: no value is valid; want 0 or more, or leave it out for no limit", *r.high)
		}
	}
	if m := s.MultipleOf; m != nil && *m <= 0 {
		l.warnf(lintNegative, at+".multipleOf", "is %s: no number is valid; want more than 0", number(*m))
	}
}

// metadata checks the metadata of templates. The API server knows the fields of metadata only at the root and in an
// embedded resource. Elsewhere it prunes metadata without properties like any other object.
func (l *linter) metadata(s *apiextensionsv1.JSONSchemaProps, at string, c schemaContext) {
	m, ok := s.Properties["metadata"]
	if !ok || c.root || c.nested || s.XEmbeddedResource || m.XEmbeddedResource || m.Type != "object" {
		return
	}
	if len(m.Properties) > 0 || m.AdditionalProperties != nil || keepsUnknown(&m) {
		return
	}
	l.warnf(lintMetadata, property(at, "metadata"), "has no properties, so that labels, annotations and all else in it are pruned; "+
		"name them under properties (controller-gen does with crd:generateEmbeddedObjectMeta=true)")
}
