package suggest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// samples are texts that stand for values of each kind, short and long ones.
var samples = map[kind][]string{
	integer: {"0", "1", "-1", "60", "100", "3600", "10000", "100000", "1000000", "1000000000"},
	number:  {"0", "1", "-1", "60", "100", "3600", "10000", "0.5", "1.0", "12.25"},
	boolean: {"true", "false"},
}

// wordy are formats of texts that are neither numbers nor booleans.
var wordy = []string{
	"duration", "date", "date-time", "datetime", "ipv4", "ipv6", "cidr", "mac", "email", "uri", "uuid", "uuid3", "uuid4", "uuid5",
}

// mayBe reports whether a text with this schema may stand for a value of a kind. If the pattern or the format excludes
// such texts, a cast is useless.
func mayBe(s *schema.Structural, k kind) bool {
	if s.ValueValidation != nil && slices.Contains(wordy, s.ValueValidation.Format) {
		return false
	}
	if values := enumOf(s); values != nil {
		return slices.ContainsFunc(values, func(v any) bool { return reads(v, k) })
	}
	return slices.ContainsFunc(samples[k], func(sample string) bool { return matches(s, sample) })
}

// reads reports whether an enum value is a text that stands for a value of a kind.
func reads(value any, k kind) bool {
	word, _ := value.(string)
	if k == boolean {
		return slices.Contains(samples[boolean], word)
	}
	_, err := strconv.ParseFloat(word, 64)
	return err == nil
}

// matches reports whether a text matches the pattern of a schema, if there is one.
func matches(s *schema.Structural, word string) bool {
	if s.ValueValidation == nil || s.ValueValidation.Pattern == "" {
		return true
	}
	pattern, err := regexp.Compile(s.ValueValidation.Pattern)
	return err != nil || pattern.MatchString(word)
}

// spans are the units of Go durations, by the names in [units]. The function count is the CEL function that returns a
// duration as a number of the units.
var spans = map[string]struct{ suffix, count string }{
	"milliseconds": {"ms", "getMilliseconds"},
	"seconds":      {"s", "getSeconds"},
	"minutes":      {"m", "getMinutes"},
	"hours":        {"h", "getHours"},
}

// lasting returns an entry for an integer and a duration such as 60s.
func lasting(hub, spoke *oneSided) (entry, bool) {
	count, duration := spoke, hub
	if kindOf(hub.value) == integer {
		count, duration = hub, spoke
	}
	of := "seconds"
	if u := unitOf(count.name); u != nil {
		of = u.name
	}
	span, known := spans[of]
	if !known || kindOf(count.value) != integer || !isDuration(duration.value, span.suffix) {
		return entry{}, false
	}
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{
		Hub: hub.place, Spoke: spoke.place,
		ToHub: fmt.Sprintf("string(value) + %q", span.suffix), ToSpoke: bounded(count.value, "duration(value)."+span.count+"()"), Lossy: true,
	}}
	if count == hub {
		e.ToHub, e.ToSpoke = e.ToSpoke, e.ToHub
	}
	note := fmt.Sprintf("decide whether the integer counts %s: a guess. The notation of a duration and fractions are kept", of)
	if duration.value.ValueValidation.Pattern == "" {
		note += ". The format also allows durations in other notations than 1h30m: objects with them are not converted"
	}
	e.notes = []string{note}
	return e, true
}

// isDuration reports whether the texts of a schema are Go durations, also in the unit with this suffix.
func isDuration(s *schema.Structural, suffix string) bool {
	switch v := s.ValueValidation; {
	case kindOf(s) != text, v == nil, enumOf(s) != nil, !matches(s, "60"+suffix):
		return false
	case v.Format == "duration":
		return true
	default: // Go durations have no unit for days.
		return v.Pattern != "" && v.Format == "" && !matches(s, "60") && !matches(s, "60d") && !matches(s, "60x")
	}
}

// bounded returns an expression whose value stays within the bounds of a schema. If the schema gets other bounds, the
// expression must be changed as well. A minimum of 0 is not enforced.
func bounded(s *schema.Structural, expression string) string {
	v := s.ValueValidation
	if v == nil {
		return expression
	}
	if most := v.Maximum; most != nil && !v.ExclusiveMaximum && isWhole(*most) {
		expression = fmt.Sprintf("math.least(%d, %s)", int64(*most), expression)
	}
	if least := v.Minimum; least != nil && *least > 0 && !v.ExclusiveMinimum && isWhole(*least) {
		expression = fmt.Sprintf("math.greatest(%d, %s)", int64(*least), expression)
	}
	return expression
}

// isWhole reports whether a bound is an exact integer.
func isWhole(bound float64) bool {
	const exact = 1 << 53
	return bound >= -exact && bound <= exact && bound == float64(int64(bound))
}
