package schema

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// checkLimits checks a value that is not null and has the right type.
func (c *checker) checkLimits(value any, s *shape) {
	l := s.limits
	if l == nil {
		return
	}
	switch v := value.(type) {
	case string:
		c.checkSpan(utf8.RuneCountInString(v), l.length, "characters")
		if l.pattern != nil && !l.pattern.MatchString(v) {
			c.report(fmt.Sprintf("is %s, want a match of %s", c.show(v), l.pattern), "")
		}
	case []any:
		c.checkSpan(len(v), l.elements, "elements")
	case map[string]any:
		c.checkSpan(s.size(v), l.members, "members")
	case int64, float64:
		c.checkNumber(v, l)
	}
	c.checkEnum(value, s)
	c.checkAlternatives(value, l)
}

func (c *checker) checkSpan(n int, s span, noun string) {
	if s.least != nil && int64(n) < *s.least {
		c.report(fmt.Sprintf("has %d %s, want at least %d", n, noun, *s.least), "")
	}
	if s.most != nil && int64(n) > *s.most {
		c.report(fmt.Sprintf("has %d %s, want at most %d", n, noun, *s.most), "")
	}
}

func (c *checker) checkNumber(v any, l *limits) {
	if l.minimum != nil {
		switch order := compare(v, *l.minimum); {
		case order < 0 && !l.above:
			c.report(fmt.Sprintf("is %s, want at least %s", c.show(v), quote(*l.minimum)), "")
		case order <= 0 && l.above:
			c.report(fmt.Sprintf("is %s, want more than %s", c.show(v), quote(*l.minimum)), "")
		}
	}
	if l.maximum != nil {
		switch order := compare(v, *l.maximum); {
		case order > 0 && !l.below:
			c.report(fmt.Sprintf("is %s, want at most %s", c.show(v), quote(*l.maximum)), "")
		case order >= 0 && l.below:
			c.report(fmt.Sprintf("is %s, want less than %s", c.show(v), quote(*l.maximum)), "")
		}
	}
	if l.multipleOf != nil && !multiple(v, *l.multipleOf) {
		c.report(fmt.Sprintf("is %s, want a multiple of %s", c.show(v), quote(*l.multipleOf)), "")
	}
}

func (c *checker) checkEnum(value any, s *shape) {
	enum := s.limits.enum
	if enum == nil || s.typed && value == "" || slices.ContainsFunc(enum, func(e any) bool { return tree.Equal(e, value) }) {
		return
	}
	hint := ""
	if text, ok := value.(string); ok {
		var texts []string
		for _, e := range enum {
			if e, ok := e.(string); ok {
				texts = append(texts, e)
			}
		}
		if near := nearest.To(text, texts); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
	}
	shown := c.show(value)
	if text := quote(value); text != "" && !c.hides() {
		shown = text
	}
	if len(enum) == 1 {
		c.report(fmt.Sprintf("is %s, want %s", shown, quoteAll(enum)), hint)
		return
	}
	c.report(fmt.Sprintf("is %s, want one of %s", shown, quoteAll(enum)), hint)
}

func (c *checker) checkAlternatives(value any, l *limits) {
	for _, s := range l.allOf {
		c.value(value, none{}, s)
	}
	if len(l.anyOf) > 0 && c.fitting(value, l.anyOf) == 0 {
		c.reportNone(value, l.anyOf)
	}
	if len(l.oneOf) > 0 {
		switch n := c.fitting(value, l.oneOf); {
		case n == 0:
			c.reportNone(value, l.oneOf)
		case n > 1:
			c.reportSeveral(l.oneOf)
		}
	}
	if l.not != nil && c.fitting(value, []*shape{l.not}) > 0 {
		c.reportNot(l.not)
	}
}

// fitting returns the number of alternatives that a value fits.
func (c *checker) fitting(value any, alternatives []*shape) int {
	n := 0
	for _, s := range alternatives {
		var trial checker
		if trial.value(value, none{}, s); len(trial.found) == 0 {
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
		c.value(value, none{}, alternatives[0])
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
		c.at(step{key: names[0]}, "is not allowed here", "")
		return
	}
	c.report("is excluded by its schema", "")
}

// onlyRequired returns the members that the alternatives require, if each alternative requires one member and has no
// other condition.
func onlyRequired(alternatives []*shape) []string {
	var names []string
	for _, s := range alternatives {
		if len(s.required) != 1 || s.want != anything || s.members != nil || s.rest != nil || s.items != nil || s.limits != nil {
			return nil
		}
		names = append(names, s.required[0])
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

// float returns the float64 that is nearest to a number.
func float(v any) float64 {
	if n, ok := v.(int64); ok {
		return float64(n)
	}
	f, _ := v.(float64)
	return f
}

// compare compares a number with a bound, exactly if both are integers.
func compare(v any, bound float64) int {
	n, ok := integer(v)
	limit, exact := integer(bound)
	if ok && exact {
		return cmp.Compare(n, limit)
	}
	return cmp.Compare(float(v), bound)
}

// multiple reports whether a number is a multiple of a positive factor, within the precision of float64.
func multiple(v any, factor float64) bool {
	n, ok := integer(v)
	f, whole := integer(factor)
	if ok && whole && f != 0 {
		return n%f == 0
	}
	times := float(v) / factor
	return math.Abs(times-math.Round(times)) < 1e-9
}
