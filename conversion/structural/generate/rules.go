package generate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiserver/pkg/cel"
)

// rule is an x-kubernetes-validations rule.
type rule = apiextensionsv1.ValidationRule

// typed reports whether CEL rules can access the values of a schema.
func typed(s *props) bool {
	switch {
	case s.XIntOrString:
		return true
	case s.Type == typeArray:
		return s.Items != nil && typed(s.Items.Schema)
	case s.Type == typeObject && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return typed(s.AdditionalProperties.Schema)
	default:
		return s.Type != ""
	}
}

// addRules adds one or two rules.
func addRules(c choices, s *props, at place) {
	if !typed(s) {
		return
	}
	from := rulesOf(c, s)
	if !at.lost {
		from = append(from, changeRules(c, s)...)
	}
	chosen := some(c, 1, 2, from)
	for i := range chosen {
		word(c, &chosen[i], s)
	}
	s.XValidations = append(s.XValidations, chosen...)
}

// rulesOf returns rules about a single value.
func rulesOf(c choices, s *props) []rule {
	switch {
	case s.XIntOrString:
		return []rule{{Rule: "type(self) == string ? self != 'none' : self != 13"}}
	case s.Type == typeString && converted(s.Format):
		return nil
	case s.Type == typeString:
		out := []rule{{Rule: "self != 'forbidden'"}, {Rule: "self.size() != 1"}, {Rule: "!self.startsWith('x')"}}
		if s.MaxLength != nil {
			out[2].MessageExpression = "'not ' + self"
		}
		return out
	case s.Type == typeInteger:
		return []rule{{Rule: "self != 13"}, {Rule: "self % 2 == 0", MessageExpression: "self > 0 ? 'odd' : 'odd and small'"}}
	case s.Type == typeNumber:
		return []rule{{Rule: "self != 0.5"}, {Rule: "self < 1000.0"}}
	case s.Type == typeBoolean:
		return []rule{{Rule: "self"}}
	case s.Type == typeArray:
		return []rule{{Rule: "self.size() != 2"}}
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		out := []rule{{Rule: "size(self) != 1"}, {Rule: "!('forbidden' in self)"}}
		if s.MaxProperties != nil {
			out = append(out, rule{Rule: "self.all(k, k.size() < 9)"})
		}
		return out
	default:
		return objectRules(c, s)
	}
}

// converted reports whether CEL rules see texts of a format as values of another type:
// https://kubernetes.io/docs/reference/using-api/cel/#type-integration.
func converted(format string) bool {
	return slices.Contains([]string{"byte", "date", "date-time", "datetime", "duration"}, format)
}

// reachable returns the properties that CEL rules can name, under their escaped names.
func reachable(s *props) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if escaped, ok := cel.Escape(name); ok && typed(new(s.Properties[name])) {
			out = append(out, escaped)
		}
	}
	return out
}

func objectRules(c choices, s *props) []rule {
	names := reachable(s)
	if len(names) == 0 {
		return nil
	}
	a, b := pick(c, names...), pick(c, names...)
	out := []rule{{Rule: fmt.Sprintf("has(self.%s)", a), Reason: new(apiextensionsv1.FieldValueRequired)}}
	if a != b {
		out = append(out,
			rule{Rule: fmt.Sprintf("!has(self.%s) || !has(self.%s)", a, b), Reason: new(apiextensionsv1.FieldValueForbidden)},
			rule{Rule: fmt.Sprintf("has(self.%s) || has(self.%s)", a, b)})
	}
	for i := range out {
		if _, plain := s.Properties[a]; plain && c.chance(40) {
			out[i].FieldPath = "." + a
		}
	}
	return out
}

// changeRules returns rules about the old and the new value.
func changeRules(c choices, s *props) []rule {
	switch {
	case s.Type == typeInteger, s.Type == typeNumber:
		return []rule{
			{Rule: "self >= oldSelf"},
			{Rule: "!oldSelf.hasValue() || self != oldSelf.value() + self", OptionalOldSelf: new(true)},
		}
	case s.Type == typeString, s.Type == typeBoolean:
		return []rule{{Rule: "self == oldSelf"}, {Rule: "!oldSelf.hasValue() || self == oldSelf.value()", OptionalOldSelf: new(true)}}
	case s.Type == typeArray:
		return []rule{{Rule: "self.size() >= oldSelf.size()"}}
	case s.Type == typeObject && len(s.Properties) > 0:
		var out []rule
		for _, name := range some(c, 1, 1, reachable(s)) {
			out = append(out, rule{Rule: fmt.Sprintf("has(self.%s) == has(oldSelf.%s)", name, name)})
		}
		return out
	default:
		return nil
	}
}

// word adds a message or a reason to some rules.
func word(c choices, r *rule, s *props) {
	if r.MessageExpression == "" && c.chance(50) {
		r.Message = pick(c, "is not allowed", "größer als erlaubt", "cannot be "+s.Type+" like this")
	}
	if r.Reason == nil && c.chance(25) {
		r.Reason = new(pick(c, apiextensionsv1.FieldValueInvalid, apiextensionsv1.FieldValueDuplicate))
	}
}

// addRootRule adds a rule about fields that every object has.
func addRootRule(c choices, s *props) {
	s.XValidations = append(s.XValidations, pick(c,
		rule{Rule: "self.metadata.name != 'forbidden'", Message: "is not a good name"},
		rule{Rule: "has(self.spec)", Reason: new(apiextensionsv1.FieldValueRequired), FieldPath: ".spec"},
		rule{Rule: "!has(oldSelf.spec) || has(self.spec)", Message: "spec must stay"},
		rule{Rule: "!oldSelf.hasValue() || has(self.spec)", OptionalOldSelf: new(true)},
		rule{Rule: "self.kind != 'Forbidden'"},
	))
}

// addDefault sets a default if it finds a valid one.
func (m *maker) addDefault(s *props) {
	before, ok := structure(s)
	if !ok {
		return
	}
	v := &values{choices: m.choices, options: ObjectOptions{Valid: true}, depth: 3}
	value := v.value(before)
	if s.Type == typeObject && m.chance(40) {
		value = map[string]any{}
	}
	if value == nil {
		return
	}
	s.Default = new(literal(value))
	// As a property, because the schema is not that of a whole resource.
	after, ok := structure(&props{Type: typeObject, Properties: map[string]props{"inside": *s}})
	if !ok {
		s.Default = nil
		return
	}
	wrong, err := defaulting.ValidateDefaults(context.Background(), nil, after, false, true)
	if err != nil || len(wrong) > 0 {
		s.Default = nil
	}
}

// structure returns the structural schema, in the form that the API server uses.
func structure(s *props) (*schema.Structural, bool) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s.DeepCopy(), &internal, nil); err != nil {
		return nil, false
	}
	out, err := schema.NewStructural(&internal)
	return out, err == nil
}
