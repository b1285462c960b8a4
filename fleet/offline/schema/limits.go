package schema

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"refract.dev/tree"
)

// checkLimits checks a value that is not null and has the right type.
func (c *checker) checkLimits(value any, s *shape) {
	switch v := value.(type) {
	case string:
		c.checkSpan(utf8.RuneCountInString(v), s.MinLength, s.MaxLength, "characters")
		if s.pattern != nil && !s.pattern.MatchString(v) {
			c.report(fmt.Sprintf("is %s, want a match of %s", c.show(v), s.pattern), "")
		}
	case []any:
		c.checkSpan(len(v), s.MinItems, s.MaxItems, "elements")
	case map[string]any:
		if s.MinProperties != nil || s.MaxProperties != nil {
			c.checkSpan(s.size(v), s.MinProperties, s.MaxProperties, "members")
		}
	case int64, float64:
		c.checkNumber(v, s)
	}
	c.checkEnum(value, s)
	c.checkAlternatives(value, s)
}

func (c *checker) checkSpan(n int, least, most *int64, noun string) {
	if least != nil && int64(n) < *least {
		c.report(fmt.Sprintf("has %d %s, want at least %d", n, noun, *least), "")
	}
	if most != nil && int64(n) > *most {
		c.report(fmt.Sprintf("has %d %s, want at most %d", n, noun, *most), "")
	}
}

// checkNumber compares a number with its bounds by the functions of API servers, which round the bound of a whole
// number toward zero.
func (c *checker) checkNumber(v any, s *shape) {
	least, most := "at least", "at most"
	if s.ExclusiveMinimum {
		least = "more than"
	}
	if s.ExclusiveMaximum {
		most = "less than"
	}
	want := func(words string, bound float64) {
		hint := ""
		if _, whole := v.(int64); whole && bound != math.Trunc(bound) {
			hint = fmt.Sprintf("for a whole number, an API server takes the bound as %d", int64(bound))
		}
		c.report(fmt.Sprintf("is %s, want %s %s", c.show(v), words, quote(bound)), hint)
	}
	if s.Minimum != nil && validate.MinimumNativeType("", "", v, *s.Minimum, s.ExclusiveMinimum) != nil {
		want(least, *s.Minimum)
	}
	if s.Maximum != nil && validate.MaximumNativeType("", "", v, *s.Maximum, s.ExclusiveMaximum) != nil {
		want(most, *s.Maximum)
	}
	if s.MultipleOf != nil && validate.MultipleOfNativeType("", "", v, *s.MultipleOf) != nil {
		want("a multiple of", *s.MultipleOf)
	}
}

func (c *checker) checkEnum(value any, s *shape) {
	if s.enum == nil || s.typed && value == "" || slices.ContainsFunc(s.enum, func(e any) bool { return tree.Equal(e, value) }) {
		return
	}
	hint := ""
	if text, ok := value.(string); ok {
		var texts []string
		for _, e := range s.enum {
			if e, ok := e.(string); ok {
				texts = append(texts, e)
			}
		}
		hint = didYouMean(text, texts)
	}
	shown, want := c.show(value), quoteAll(s.enum)
	if text := quote(value); text != "" && !c.hides() {
		shown = text
	}
	if len(s.enum) > 1 {
		want = "one of " + want
	}
	c.report(fmt.Sprintf("is %s, want %s", shown, want), hint)
}

func (c *checker) checkAlternatives(value any, s *shape) {
	for _, a := range s.allOf {
		c.value(value, nil, a)
	}
	if len(s.anyOf) > 0 && c.fitting(value, s.anyOf) == 0 {
		c.reportNone(value, s.anyOf)
	}
	if len(s.oneOf) > 0 {
		switch n := c.fitting(value, s.oneOf); {
		case n == 0:
			c.reportNone(value, s.oneOf)
		case n > 1:
			c.reportSeveral(s.oneOf)
		}
	}
	if s.not != nil && c.fitting(value, []*shape{s.not}) > 0 {
		c.reportNot(s.not)
	}
}

// fitting returns the number of alternatives that a value fits.
func (c *checker) fitting(value any, alternatives []*shape) int {
	n := 0
	for _, s := range alternatives {
		var trial checker
		if trial.value(value, nil, s); len(trial.found) == 0 {
			n++
		}
	}
	return n
}

// reportNone reports that a value fits no alternative. With a single alternative, it reports the reasons.
func (c *checker) reportNone(value any, alternatives []*shape) {
	if names := onlyRequired(alternatives); names != nil {
		c.report("has none of the members "+strings.Join(names, ", "), "")
		return
	}
	if len(alternatives) == 1 {
		c.value(value, nil, alternatives[0])
		return
	}
	c.report(fmt.Sprintf("is %s, which fits none of the %d alternatives of its schema", c.show(value), len(alternatives)), "")
}

func (c *checker) reportSeveral(alternatives []*shape) {
	if names := onlyRequired(alternatives); names != nil {
		c.report("has more than one of the members "+strings.Join(names, ", "), "")
		return
	}
	c.report("fits more than one alternative of its schema, want one", "")
}

func (c *checker) reportNot(not *shape) {
	if names := onlyRequired([]*shape{not}); names != nil {
		c.report("is not allowed here", "", names[0])
		return
	}
	c.report("is excluded by its schema", "")
}

// onlyRequired returns the members that the alternatives require, if each alternative requires one member and has no
// other condition.
func onlyRequired(alternatives []*shape) []string {
	var names []string
	for _, s := range alternatives {
		if len(s.Required) != 1 || !reflect.DeepEqual(s.JSONSchemaProps, apiextensionsv1.JSONSchemaProps{Required: s.Required}) {
			return nil
		}
		names = append(names, s.Required[0])
	}
	return names
}

// integer returns the value of a number that fits into an int64.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && v >= math.MinInt64 && v < math.MaxInt64
	default:
		return 0, false
	}
}
