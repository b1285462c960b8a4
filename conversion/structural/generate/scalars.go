package generate

import (
	"math"
	"strings"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// scalar returns a scalar that is an edge case of JSON.
func (v *values) scalar() any {
	return pick[any](v.choices, "text", "", "größe", "日本", "1", true, false, int64(0), int64(1), int64(-1), int64(42),
		int64(1<<53-1), int64(1<<53+1), int64(math.MaxInt64), int64(math.MinInt64), 1.0, 0.5, -0.5, 1e300, 1e-300, nil)
}

// samples are texts for each format: valid texts and an invalid one.
var samples = map[string]struct {
	right []string
	wrong string
}{
	"bsonobjectid":   {[]string{"507f1f77bcf86cd799439011"}, "507f1f77"},
	"uri":            {[]string{"https://example.org/a?b=c", "/path"}, "::"},
	"email":          {[]string{"a@example.org"}, "a@"},
	"hostname":       {[]string{"example.org", "a"}, "-a-"},
	"ipv4":           {[]string{"192.0.2.1", "0.0.0.0"}, "192.0.2.256"},
	"ipv6":           {[]string{"2001:db8::1", "::"}, "2001:db8::g"},
	"cidr":           {[]string{"192.0.2.0/24", "2001:db8::/32"}, "192.0.2.0/33"},
	"mac":            {[]string{"00:00:5e:00:53:01"}, "00:00"},
	"uuid":           {[]string{"123e4567-e89b-12d3-a456-426614174000"}, "123e4567"},
	"uuid3":          {[]string{"123e4567-e89b-32d3-a456-426614174000"}, "123e4567-e89b-12d3-a456-426614174000"},
	"uuid4":          {[]string{"123e4567-e89b-42d3-a456-426614174000"}, "123e4567-e89b-12d3-a456-426614174000"},
	"uuid5":          {[]string{"123e4567-e89b-52d3-a456-426614174000"}, "123e4567-e89b-12d3-a456-426614174000"},
	"isbn":           {[]string{"0321751043", "978-0321751041"}, "0321751044"},
	"isbn10":         {[]string{"0321751043"}, "978-0321751041"},
	"isbn13":         {[]string{"978-0321751041"}, "0321751043"},
	"creditcard":     {[]string{"4111-1111-1111-1111"}, "4111"},
	"ssn":            {[]string{"111-11-1111"}, "111-11"},
	"hexcolor":       {[]string{"#FFFFFF", "fff"}, "#FFFFF"},
	"rgbcolor":       {[]string{"rgb(0,128,255)"}, "rgb(0,128)"},
	"byte":           {[]string{"aGVsbG8=", "YQ=="}, "aGVsbG8"},
	"date":           {[]string{"2026-02-28", "0001-01-01"}, "2026-02-30"},
	"duration":       {[]string{"22s", "1h30m", "22 ns"}, "22 years"},
	"datetime":       {[]string{"2026-02-28T12:00:00Z", "2014-12-15T19:30:20.000+01:00"}, "2026-02-28 12:00"},
	"date-time":      {[]string{"2026-02-28T12:00:00Z", "2014-12-15T19:30:20.000+01:00"}, "2026-02-28T25:00:00Z"},
	"k8s-short-name": {[]string{"a-name", strings.Repeat("a", 63)}, "A-name"},
	"k8s-long-name":  {[]string{"a.long.name"}, "a..name"},
}

func (v *values) text(s *schema.Structural) string {
	limits := s.ValueValidation
	if sample, ok := samples[limits.Format]; ok {
		if v.slips() {
			return sample.wrong
		}
		return pick(v.choices, sample.right...)
	}
	if limits.Pattern != "" && !v.slips() {
		return v.matching(limits.Pattern)
	}
	if len(v.options.Texts) > 0 && v.chance(20) {
		if text := pick(v.choices, v.options.Texts...); suits(text, limits) {
			return text
		}
	}
	low, high := v.sizes(limits.MinLength, limits.MaxLength, 4, many)
	text := pick(v.choices, "text", "größe", "日本語", "a", "x-1", "forbidden", "true", "17", "")
	letters := v.between(low, high)
	v.take(letters, limits.MinLength, many)
	return fit(text, letters)
}

// suits reports whether the length of a text fits the limits.
func suits(text string, limits *schema.ValueValidation) bool {
	letters := int64(utf8.RuneCountInString(text))
	return (limits.MinLength == nil || letters >= *limits.MinLength) && (limits.MaxLength == nil || letters <= *limits.MaxLength)
}

// fit returns a text with the requested number of letters. If the text is too short, fit repeats its last letter.
func fit(text string, letters int) string {
	all := []rune(text)
	if len(all) >= letters {
		return string(all[:letters])
	}
	last := 'a'
	if text != "" {
		last, _ = utf8.DecodeLastRuneInString(text)
	}
	return text + strings.Repeat(string(last), letters-len(all))
}

// Limits of the integer formats.
const (
	leastInt32, mostInt32 = math.MinInt32, math.MaxInt32
)

// rangeOf returns the smallest and the largest integer that a schema allows.
func rangeOf(s *schema.Structural) (low, high int64) {
	low, high = math.MinInt64, math.MaxInt64
	if s.ValueValidation.Format == "int32" {
		low, high = leastInt32, mostInt32
	}
	if least := s.ValueValidation.Minimum; least != nil && *least > float64(low) {
		low = int64(math.Ceil(*least))
		if s.ValueValidation.ExclusiveMinimum && float64(low) == *least {
			low++
		}
	}
	if most := s.ValueValidation.Maximum; most != nil && *most < float64(high) {
		high = int64(math.Floor(*most))
		if s.ValueValidation.ExclusiveMaximum && float64(high) == *most {
			high--
		}
	}
	return low, high
}

// inner are numbers that are not limits of a schema, but edge cases for many programs.
var inner = []int64{0, 1, -1, 2, 3, 5, 7, 10, 12, 13, 42, 100, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MinInt64}

func (v *values) integer(s *schema.Structural) any {
	low, high := rangeOf(s)
	switch {
	case v.slips() && low > math.MinInt64:
		return low - 1
	case v.slips() && high < math.MaxInt64:
		return high + 1
	case v.slips():
		return pick(v.choices, 1.0, 0.5, 1e300)
	}
	n := pick(v.choices, low, high, pick(v.choices, inner...), pick(v.choices, inner...))
	if n < low || n > high {
		n = pick(v.choices, low, high)
	}
	if step := s.ValueValidation.MultipleOf; step != nil && *step >= 1 {
		n -= n % int64(*step)
		if n < low {
			n += int64(*step)
		}
	}
	return n
}

func (v *values) number(s *schema.Structural) any {
	if v.chance(40) {
		return v.integer(s)
	}
	low, high := rangeOf(s)
	if s.ValueValidation.MultipleOf != nil && !v.slips() {
		return v.integer(s)
	}
	for range 5 {
		if n := pick(v.choices, 0.5, -0.5, 1.5, 1.0, 12.25, 1e-7, 1e21, -1e21); n >= float64(low) && n <= float64(high) {
			return n
		}
	}
	return v.integer(s)
}
