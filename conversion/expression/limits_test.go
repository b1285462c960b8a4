package expression

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hangs is the time limit of a case. On an idle machine each case takes less than 100 ms, but a slow machine with the
// race detector needs much more.
const hangs = time.Minute

// TestBombs has expressions and values that would create large results or take much time. They must be rejected
// quickly, and before the result exists.
func TestBombs(t *testing.T) {
	long := `"` + strings.Repeat("a", 1<<20) + `"`
	texts := "[" + strings.Repeat(long+",", 6) + long + "]"
	numbers := "[" + strings.Repeat("1,", 200_000) + "1]"
	// Nested lists that share their contents: 30 lists with 2^30 elements.
	shared := share("[%, %]", "x30 == x30 && x30 in [x30]")
	cases := map[string]struct {
		reason            string
		expression, value string
		limits            Limits
		want              string // Part of the error.
	}{
		"Range":            {"A huge range is rejected before memory is allocated.", `lists.range(1000000000)`, `1`, Limits{}, "lists.range: the list would have 1000000000 elements, more than 100000: that is the limit"},
		"RangeOfValue":     {"A number in the value is not trusted.", `lists.range(value).size()`, `9223372036854775807`, Limits{}, "lists.range: "},
		"RangeOfRange":     {"Many lists are too large together.", `lists.range(100000).map(i, lists.range(100000)).flatten()`, `1`, Limits{}, "it costs more than 1000000 units: that is the limit"},
		"Expand":           {"The sum of the counts is checked before memory is allocated.", `value.expand("k", "n")`, `[{"k":1,"n":50000},{"k":1,"n":50001}]`, Limits{}, `"n" of element 1 is 50001: the list would have more than 100000 elements`},
		"ExpandOverflow":   {"The sum of the counts does not overflow.", `value.expand("k", "n")`, `[{"k":1,"n":1},{"k":1,"n":9223372036854775807}]`, Limits{}, "more than 100000 elements"},
		"Flatten":          {"Intermediate lists count.", `[lists.range(60), lists.range(60)].flatten().size()`, `1`, Limits{OutputItems: 100}, "flatten: the list would have more than 100 elements"},
		"Doubling":         {"The sum of two lists takes no memory, but visiting it takes time.", share("% + %", "x30.reverse()"), `[1]`, Limits{}, "+: the list would have more than 100000 elements"},
		"DoublingText":     {"The sum of texts is limited.", share("% + %", "x30"), `"aaaa"`, Limits{Cost: 1 << 40}, "+: the text would have more than 8388608 bytes"},
		"Shared":           {"A comparison visits shared content repeatedly.", shared, `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedResult":     {"The output visits shared content repeatedly.", share("[%, %]", "x30"), `[1]`, Limits{}, "the result has more than 100000 elements and members: that is the limit"},
		"SharedTables":     {"distinct visits shared content repeatedly.", share(`{"a": %, "b": %}`, "[x30, x30].distinct()"), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedJSON":       {"json.encode visits shared content repeatedly.", share("[%, %]", "json.encode(x30)"), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedFormat":     {"format visits shared content repeatedly.", share("[%, %]", `"%s".format([x30])`), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedText":       {"A long text is used repeatedly.", `lists.range(1000).map(i, value)`, long, Limits{}, "the result has more than 8388608 bytes"},
		"Replace":          {"The result is the product of two texts.", `value.replace("", value)`, long, Limits{}, "replace: the text would have more than 8388608 bytes"},
		"RegexReplace":     {"The result is the product of a text and a pattern.", `regex.replace(value, "a", value)`, `"` + strings.Repeat("a", 5000) + `"`, Limits{}, "regex.replace: the text would have more than 8388608 bytes"},
		"Join":             {"A long separator is used repeatedly.", `lists.range(100).map(i, "").join(value)`, long, Limits{}, "join: the text would have more than 8388608 bytes"},
		"Split":            {"Every character becomes an element.", `value.split("").size()`, long, Limits{}, "split: the list would have more than 100000 elements"},
		"Format":           {"The number of digits is limited.", `("%." + string(value) + "f").format([1.0])`, `1000000000`, Limits{}, "format: want at most 99 digits"},
		"FormatOften":      {"A long argument is used repeatedly.", `"%s%s%s%s%s%s%s%s%s".format(lists.range(9).map(i, value))`, long, Limits{}, "format: the text would have more"},
		"IndexOf":          {"A text is searched at each position.", `value.indexOf(value.substring(500000) + "b")`, long, Limits{}, "indexOf: the values are too big for this operation"},
		"Pattern":          {"The time is the product of text and pattern.", `value.matches("aaaaaaaaaaaaaaaa")`, long, Limits{}, "matches: the values are too big for this operation"},
		"Quantity":         {"A large exponent needs as many digits.", `string(quantity(value).add(1))`, `"1e1000000000"`, Limits{}, "the exponent of"},
		"QuantityNegative": {"A negative exponent needs as many decimal places.", `string(quantity(value))`, `"1e-1000000000"`, Limits{}, "the exponent of"},
		"Semver":           {"A version number may have a million digits.", `semver(value)== semver(value)`, long, Limits{}, "the text has more than 1024 bytes"},
		"Sets":             {"Each element is compared with each.", `sets.contains(value, value)`, numbers, Limits{}, "the values are too big for this operation"},
		"Loops":            {"Loops are nested.", `value.all(a, value.all(b, value.all(c, a == b || b == c || true)))`, numbers, Limits{}, "it costs more than 1000000 units"},
		"EqualInLoop":      {"The body of a loop is short, but expensive.", `value.all(a, value == value)`, numbers, Limits{}, "it costs more than 1000000 units"},
		"Cost":             {"The limit of the policy applies.", `value.map(a, a + 1)`, `[1,2,3,4,5,6,7,8,9]`, Limits{Cost: 20}, "it costs more than 20 units"},
		"Items":            {"Members and nested elements count.", `{"a": value}`, `{"b":[1,2]}`, Limits{OutputItems: 3}, "the result has more than 3 elements and members"},
		"Base64":           {"Each step makes the text a third longer.", strings.Repeat("base64.encode(bytes(", 60) + "value" + strings.Repeat("))", 60), long, Limits{Cost: 1 << 40}, "base64.encode: the text would have more"},
		"PatternRepeated":  {"A short pattern may be equivalent to a long one.", `value.matches("(x?x?){1000}y")`, `"` + strings.Repeat("x", 10_000) + `"`, Limits{}, "matches: the values are too big for this operation"},
		"PatternCompiled":  {"A pattern may take long to compile.", `"".matches(value)`, `"` + strings.Repeat("x{1000}", 30) + `"`, Limits{}, "matches: the pattern has too many parts"},
		"PatternGroups":    {"Each group multiplies the work of a pattern.", `regex.extractAll("", value)`, `"` + strings.Repeat("(a)", 300) + `"`, Limits{}, "regex.extractAll: the pattern has too many parts"},
		"PatternLong":      {"The size of a pattern is limited.", `"".matches(value)`, long, Limits{}, "matches: the pattern has more than 10000 bytes"},
		"PatternInLoop":    {"The compilation of a pattern costs, even of a constant one.", `lists.range(100000).all(i, "".matches("x{1000}") || true)`, `1`, Limits{}, "it costs more than 1000000 units"},
		"SortTexts":        {"The texts differ only at their ends.", `lists.range(100000).map(i, value[i % 7]).sort().size()`, texts, Limits{}, "it costs more than 1000000 units"},
		"Written":          {"A long literal is used in a loop.", `lists.range(100000).map(i, [` + strings.Repeat("1,", 10_000) + `i]).size()`, `1`, Limits{}, "it costs more than 1000000 units"},
		"Constant":         {"Constant expressions are not computed at compile time.", `lists.range(1000).size()`, `1`, Limits{Cost: 1}, "it costs more than 1 units"},
		"Message":          {"A text of the value is shortened in the message.", `{"a": 1}[value]`, long, Limits{}, strings.Repeat("a", 450) + "…"},
		"DeepResult":       {"The result is nested in an object, and Go decodes only 10,000 levels.", `[[value]]`, strings.Repeat("[", 9_899) + strings.Repeat("]", 9_899), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"DeepMade":         {"Levels from the expression count like levels of the value.", `value.map(x, {"a": x})`, strings.Repeat("[", 9_900) + strings.Repeat("]", 9_900), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"Deep":             {"JSON with too many levels is rejected.", `value`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), Limits{}, "the value is not JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, problems := Compile(tc.expression, nil, nil, tc.limits)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			out, err := p.Convert(nil, []byte(tc.value))
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nConvert() = %d bytes, %v, want an error with %q", tc.reason, len(out), err, tc.want)
			}
			if took > hangs {
				t.Errorf("%s\nConvert() took %v", tc.reason, took)
			}
			const most = 256 << 20
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > most {
				t.Errorf("%s\nConvert() allocated %d bytes", tc.reason, allocated)
			}
			t.Logf("%v, %d KiB", took, (after.TotalAlloc-before.TotalAlloc)>>10)
		})
	}
}

// TestMost checks each limit: a case may reach it, but not exceed it by one.
func TestMost(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	numbers := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	cases := map[string]struct {
		reason, expression, value string
		limits                    Limits
		want                      string // Part of the error; empty for success.
	}{
		"Values":       {"The maximum number of values is accepted.", `value.size()`, numbers(maxValues - 1), Limits{}, ""},
		"OneValueMore": {"One value too many is rejected.", `value.size()`, numbers(maxValues), Limits{}, "the value has more than 1000000 values in it"},
		"Result":       {"A result of the maximum size is returned.", `value`, text(maxText - len(`""`)), Limits{}, ""},
		"LongerResult": {"A result that is one byte too long is rejected.", `value`, text(maxText - len(`""`) + 1), Limits{}, "the result has more than 8388608 bytes"},
		"Text":         {"An intermediate text of the maximum size is accepted.", `(value + "a").size()`, text(maxText - 1), Limits{Cost: 1 << 40}, ""},
		"LongerText":   {"An intermediate text that is one byte too long is rejected.", `(value + "a").size()`, text(maxText), Limits{Cost: 1 << 40}, "+: the text would have more than 8388608 bytes"},
		"Levels":       {"A result of the maximum depth is returned.", `[value]`, nested(maxLevels - 1), Limits{}, ""},
		"OneLevelMore": {"A result that is one level too deep is rejected.", `[value]`, nested(maxLevels), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"Items":        {"A result with the maximum number of elements is returned.", `value`, numbers(defaultOutputItems), Limits{}, ""},
		"OneItemMore":  {"A result with one element too many is rejected.", `value`, numbers(defaultOutputItems + 1), Limits{}, "the result has more than 100000 elements and members: that is the limit"},
		"Range":        {"An intermediate list of the maximum length is accepted.", `lists.range(value).size()`, fmt.Sprint(defaultOutputItems), Limits{}, ""},
		"LongerRange":  {"An intermediate list with one element too many is rejected.", `lists.range(value).size()`, fmt.Sprint(defaultOutputItems + 1), Limits{}, "lists.range: the list would have 100001 elements, more than 100000: that is the limit"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, problems := Compile(tc.expression, nil, nil, tc.limits)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			_, err := p.Convert(nil, []byte(tc.value))
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nConvert(): want an error with %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestMostCost checks the cost limit: an expression may reach it, but not exceed it by one unit.
func TestMostCost(t *testing.T) {
	cost := uint64(1)
	for ; cost < 1000; cost++ {
		p, problems := Compile(`value.map(a, a + 1)`, nil, nil, Limits{Cost: cost})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		_, err := p.Convert(nil, []byte(`[1,2,3]`))
		if err == nil {
			break
		}
		if want := fmt.Sprintf("it costs more than %d units: that is the limit", cost); err.Error() != want {
			t.Fatalf("Convert(): want %q, got %v", want, err)
		}
	}
	if cost < 2 || cost == 1000 {
		t.Errorf("it costs %d, want it to cost more than nothing and not to be refused for ever", cost)
	}
}

// TestMostNesting checks the nesting limit: an expression may reach it, but not exceed it by one level.
func TestMostNesting(t *testing.T) {
	for n, want := range map[int]string{maxNesting: "", maxNesting + 1: "more than 32 lists, maps and optional values inside each other: that is the limit"} {
		_, problems := Compile(strings.Repeat("[", n)+"value"+strings.Repeat("]", n)+".size()", nil, nil, Limits{})
		got := ""
		if len(problems) > 0 {
			got = problems[0].Message
		}
		if got != want {
			t.Errorf("Compile() of %d levels: want %q, got %q", n, want, got)
		}
	}
}

// TestCompileBombs has expressions that would take much time to compile.
func TestCompileBombs(t *testing.T) {
	cases := map[string]struct {
		reason, expression string
		want               string // Part of the problem; empty for success.
	}{
		"Types":    {"Each type contains the previous one twice, 30 times.", share("{%: %}", "x30.size()"), ""},
		"Macros":   {"The macro doubles its target each time.", "value.?a" + strings.Repeat(".optMap(x, x)", 40), "more than 8 times optMap"},
		"Nested":   {"Parentheses are nested.", strings.Repeat("(", 10_000) + "1" + strings.Repeat(")", 10_000), "recursion limit"},
		"Long":     {"The text of the expression is too long.", strings.Repeat("a", 200_000), "exceeds limit"},
		"Name":     {"A type has a long name.", share(`{"a": %}`, "x30 + {1: x30}"), "…"},
		"Deep":     {"A type has 420 levels.", share(strings.Repeat("[", 14)+"%"+strings.Repeat("]", 14), "x30 == x30"), "more than 32 lists, maps and optional values inside each other"},
		"Maps":     {"The type of nested tables is too deep.", share(`{"a": {"b": %}}`, "x30 == x30"), "more than 32 lists, maps and"},
		"Loops":    {"The type of nested loops is too deep.", share("[1].map(i, [%])", "x30 == x30"), "more than 32 lists, maps and"},
		"Optional": {"The type of nested optional values is too deep.", share("optional.of(optional.of(%))", "x30 == x30"), "more than 32 lists, maps and"},
		"Broad":    {"A long expression is allowed if its types are not deep.", "[" + strings.Repeat("[[1]],", 1000) + "[[1]]].flatten()" + strings.Repeat(".reverse()", 100) + ".size()", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			p, problems := Compile(tc.expression, nil, nil, Limits{})
			if took := time.Since(start); took > hangs {
				t.Errorf("%s\nCompile() took %v", tc.reason, took)
			}
			switch {
			case tc.want == "" && p == nil:
				t.Errorf("%s\nCompile() = %v", tc.reason, problems)
			case tc.want != "" && (len(problems) == 0 || !strings.Contains(problems[0].Message, tc.want) || len(problems[0].Message) > 600):
				t.Errorf("%s\nCompile() = %v, want a short problem with %q", tc.reason, problems, tc.want)
			}
		})
	}
}

// share returns an expression with the result result. It defines the variable x00 as value, and each of the variables
// x01 to x30 by step, where % stands for the previous variable.
func share(step, result string) string {
	const n = 30
	names := make([]string, n+1)
	for i := range names {
		names[i] = "x" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "cel.bind(%s, value, ", names[0])
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&text, "cel.bind(%s, %s, ", names[i], strings.ReplaceAll(step, "%", names[i-1]))
	}
	return text.String() + result + strings.Repeat(")", n+1)
}

// TestRangeAllocates checks that a huge lists.range is rejected without much memory.
func TestRangeAllocates(t *testing.T) {
	p, problems := Compile(`lists.range(value).size()`, nil, nil, Limits{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var bytes uint64
	allocations := testing.AllocsPerRun(10, func() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := p.Convert(nil, []byte(`1000000000`)); err == nil {
			t.Error("no error")
		}
		runtime.ReadMemStats(&after)
		bytes = after.TotalAlloc - before.TotalAlloc
	})
	if allocations > 100 || bytes > 64<<10 {
		t.Errorf("%v allocations, %d bytes", allocations, bytes)
	}
}
