package expression

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hangs is the time after which a case counts as hanging, even on a slow machine with the race detector. On an idle
// machine, each case takes less than 100 ms.
const hangs = time.Minute

// TestBombs has expressions and values that would create large results or take much time. Each must be rejected
// quickly, before the result is created.
func TestBombs(t *testing.T) {
	long := `"` + strings.Repeat("a", 1<<20) + `"`
	texts := "[" + strings.Repeat(long+",", 6) + long + "]"
	numbers := "[" + strings.Repeat("1,", 200_000) + "1]"
	// Nested lists with shared content: 2^30 elements in 30 lists.
	shared := share("[%, %]", "x30 == x30 && x30 in [x30]")
	cases := map[string]struct {
		reason            string
		expression, value string
		limits            Limits
		want              string // Part of the error.
	}{
		"Range":            {"The seed's bomb, before anything is allocated.", `lists.range(1000000000)`, `1`, Limits{}, "lists.range: the list would have 1000000000 elements, more than 100000: that is the limit"},
		"RangeOfValue":     {"The number is not trusted.", `lists.range(value).size()`, `9223372036854775807`, Limits{}, "lists.range: "},
		"RangeOfRange":     {"Many that are each short enough.", `lists.range(100000).map(i, lists.range(100000)).flatten()`, `1`, Limits{}, "it costs more than 1000000 units: that is the limit"},
		"Expand":           {"The sum counts, before anything is allocated.", `value.expand("k", "n")`, `[{"k":1,"n":50000},{"k":1,"n":50001}]`, Limits{}, `"n" of element 1 is 50001: the list would have more than 100000 elements`},
		"ExpandOverflow":   {"The sum does not wrap around.", `value.expand("k", "n")`, `[{"k":1,"n":1},{"k":1,"n":9223372036854775807}]`, Limits{}, "more than 100000 elements"},
		"Flatten":          {"What is made on the way counts.", `[lists.range(60), lists.range(60)].flatten().size()`, `1`, Limits{OutputItems: 100}, "flatten: the list would have more than 100 elements"},
		"Doubling":         {"a + a of lists takes no memory, and what goes through it does.", share("% + %", "x30.reverse()"), `[1]`, Limits{}, "+: the list would have more than 100000 elements"},
		"DoublingText":     {"a + a of texts.", share("% + %", "x30"), `"aaaa"`, Limits{Cost: 1 << 40}, "+: the text would have more than 8388608 bytes"},
		"Shared":           {"Comparing what is shared goes through it again and again.", shared, `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedResult":     {"So does writing it.", share("[%, %]", "x30"), `[1]`, Limits{}, "the result has more than 100000 elements and members: that is the limit"},
		"SharedTables":     {"So does telling them from each other.", share(`{"a": %, "b": %}`, "[x30, x30].distinct()"), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedJSON":       {"And encoding.", share("[%, %]", "json.encode(x30)"), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedFormat":     {"And formatting.", share("[%, %]", `"%s".format([x30])`), `[1]`, Limits{}, "the values are too big for this operation"},
		"SharedText":       {"A long text, often.", `lists.range(1000).map(i, value)`, long, Limits{}, "the result has more than 8388608 bytes"},
		"Replace":          {"The product of two texts.", `value.replace("", value)`, long, Limits{}, "replace: the text would have more than 8388608 bytes"},
		"RegexReplace":     {"The same with a pattern.", `regex.replace(value, "a", value)`, `"` + strings.Repeat("a", 5000) + `"`, Limits{}, "regex.replace: the text would have more than 8388608 bytes"},
		"Join":             {"A long separator.", `lists.range(100).map(i, "").join(value)`, long, Limits{}, "join: the text would have more than 8388608 bytes"},
		"Split":            {"Each character.", `value.split("").size()`, long, Limits{}, "split: the list would have more than 100000 elements"},
		"Format":           {"Digits without end.", `("%." + string(value) + "f").format([1.0])`, `1000000000`, Limits{}, "format: want at most 99 digits"},
		"FormatOften":      {"A long argument, often.", `"%s%s%s%s%s%s%s%s%s".format(lists.range(9).map(i, value))`, long, Limits{}, "format: the text would have more"},
		"IndexOf":          {"Text in text, character by character.", `value.indexOf(value.substring(500000) + "b")`, long, Limits{}, "indexOf: the values are too big for this operation"},
		"Pattern":          {"Text times pattern.", `value.matches("aaaaaaaaaaaaaaaa")`, long, Limits{}, "matches: the values are too big for this operation"},
		"Quantity":         {"As many digits as the exponent says.", `string(quantity(value).add(1))`, `"1e1000000000"`, Limits{}, "the exponent of"},
		"QuantityNegative": {"Or as many behind the point.", `string(quantity(value))`, `"1e-1000000000"`, Limits{}, "the exponent of"},
		"Semver":           {"A number of a million digits.", `semver(value)== semver(value)`, long, Limits{}, "the text has more than 1024 bytes"},
		"Sets":             {"Each with each.", `sets.contains(value, value)`, numbers, Limits{}, "the values are too big for this operation"},
		"Loops":            {"Loops in loops.", `value.all(a, value.all(b, value.all(c, a == b || b == c || true)))`, numbers, Limits{}, "it costs more than 1000000 units"},
		"EqualInLoop":      {"A loop with little in it that works much.", `value.all(a, value == value)`, numbers, Limits{}, "it costs more than 1000000 units"},
		"Cost":             {"The limit is the policy's.", `value.map(a, a + 1)`, `[1,2,3,4,5,6,7,8,9]`, Limits{Cost: 20}, "it costs more than 20 units"},
		"Items":            {"Members and all that is inside count.", `{"a": value}`, `{"b":[1,2]}`, Limits{OutputItems: 3}, "the result has more than 3 elements and members"},
		"Base64":           {"A third longer each time.", strings.Repeat("base64.encode(bytes(", 60) + "value" + strings.Repeat("))", 60), long, Limits{Cost: 1 << 40}, "base64.encode: the text would have more"},
		"PatternRepeated":  {"A short pattern that is a long one.", `value.matches("(x?x?){1000}y")`, `"` + strings.Repeat("x", 10_000) + `"`, Limits{}, "matches: the values are too big for this operation"},
		"PatternCompiled":  {"One that takes long to compile.", `"".matches(value)`, `"` + strings.Repeat("x{1000}", 30) + `"`, Limits{}, "matches: the pattern has too many parts"},
		"PatternGroups":    {"Groups take as much as there are steps, each.", `regex.extractAll("", value)`, `"` + strings.Repeat("(a)", 300) + `"`, Limits{}, "regex.extractAll: the pattern has too many parts"},
		"PatternLong":      {"One of a mebibyte.", `"".matches(value)`, long, Limits{}, "matches: the pattern has more than 10000 bytes"},
		"PatternInLoop":    {"To compile it costs something too, and a constant one is no exception.", `lists.range(100000).all(i, "".matches("x{1000}") || true)`, `1`, Limits{}, "it costs more than 1000000 units"},
		"SortTexts":        {"Texts that differ at their end.", `lists.range(100000).map(i, value[i % 7]).sort().size()`, texts, Limits{}, "it costs more than 1000000 units"},
		"Written":          {"A long list that is written out, in a loop.", `lists.range(100000).map(i, [` + strings.Repeat("1,", 10_000) + `i]).size()`, `1`, Limits{}, "it costs more than 1000000 units"},
		"Constant":         {"What no value is in is not computed when compiling.", `lists.range(1000).size()`, `1`, Limits{Cost: 1}, "it costs more than 1 units"},
		"Message":          {"A text of the value is not all in the message.", `{"a": 1}[value]`, long, Limits{}, strings.Repeat("a", 450) + "…"},
		"DeepResult":       {"A result is inside of an object, of which Go reads 10,000 levels.", `[[value]]`, strings.Repeat("[", 9_899) + strings.Repeat("]", 9_899), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"DeepMade":         {"It does not matter who made the levels.", `value.map(x, {"a": x})`, strings.Repeat("[", 9_900) + strings.Repeat("]", 9_900), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"Deep":             {"More levels than JSON may have.", `value`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), Limits{}, "the value is not JSON"},
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

// TestMost checks that each limit can be reached, but not exceeded by one.
func TestMost(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	numbers := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	text := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	cases := map[string]struct {
		reason, expression, value string
		limits                    Limits
		want                      string // Part of the error; empty for none.
	}{
		"Values":       {"A value may have as many in it.", `value.size()`, numbers(maxValues - 1), Limits{}, ""},
		"OneValueMore": {"One more is not read.", `value.size()`, numbers(maxValues), Limits{}, "the value has more than 1000000 values in it"},
		"Result":       {"A result may have as many bytes.", `value`, text(maxText - len(`""`)), Limits{}, ""},
		"LongerResult": {"One more is not written.", `value`, text(maxText - len(`""`) + 1), Limits{}, "the result has more than 8388608 bytes"},
		"Text":         {"A text that is made on the way may have as many.", `(value + "a").size()`, text(maxText - 1), Limits{Cost: 1 << 40}, ""},
		"LongerText":   {"One more is not made.", `(value + "a").size()`, text(maxText), Limits{Cost: 1 << 40}, "+: the text would have more than 8388608 bytes"},
		"Levels":       {"A result may be as deep.", `[value]`, nested(maxLevels - 1), Limits{}, ""},
		"OneLevelMore": {"A level more is not written.", `[value]`, nested(maxLevels), Limits{}, "the result has more than 9900 lists and objects inside each other"},
		"Items":        {"A result may have as many elements.", `value`, numbers(defaultOutputItems), Limits{}, ""},
		"OneItemMore":  {"One more is not written.", `value`, numbers(defaultOutputItems + 1), Limits{}, "the result has more than 100000 elements and members: that is the limit"},
		"Range":        {"A list that is made on the way may have as many.", `lists.range(value).size()`, fmt.Sprint(defaultOutputItems), Limits{}, ""},
		"LongerRange":  {"One more is not made.", `lists.range(value).size()`, fmt.Sprint(defaultOutputItems + 1), Limits{}, "lists.range: the list would have 100001 elements, more than 100000: that is the limit"},
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

// TestMostCost checks that the cost limit can be reached, but not exceeded by one unit.
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

// TestMostNesting checks that the nesting limit can be reached, but not exceeded by one level.
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
		want               string // Part of the problem; "" for none.
	}{
		"Types":    {"A type that has the one before twice, 30 times.", share("{%: %}", "x30.size()"), ""},
		"Macros":   {"A macro that doubles what it is called on.", "value.?a" + strings.Repeat(".optMap(x, x)", 40), "more than 8 times optMap"},
		"Nested":   {"Parentheses in parentheses.", strings.Repeat("(", 10_000) + "1" + strings.Repeat(")", 10_000), "recursion limit"},
		"Long":     {"More text than there may be.", strings.Repeat("a", 200_000), "exceeds limit"},
		"Name":     {"A type with a long name.", share(`{"a": %}`, "x30 + {1: x30}"), "…"},
		"Deep":     {"A type of 420 levels.", share(strings.Repeat("[", 14)+"%"+strings.Repeat("]", 14), "x30 == x30"), "more than 32 lists, maps and optional values inside each other"},
		"Maps":     {"One of tables.", share(`{"a": {"b": %}}`, "x30 == x30"), "more than 32 lists, maps and"},
		"Loops":    {"One that loops make.", share("[1].map(i, [%])", "x30 == x30"), "more than 32 lists, maps and"},
		"Optional": {"One of values that may be absent.", share("optional.of(optional.of(%))", "x30 == x30"), "more than 32 lists, maps and"},
		"Broad":    {"Long, and not deep.", "[" + strings.Repeat("[[1]],", 1000) + "[[1]]].flatten()" + strings.Repeat(".reverse()", 100) + ".size()", ""},
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

// share returns an expression that defines x00 as value, and each of x01 to x30 by step, with the previous variable for
// %. Its result is the expression result.
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

// TestRangeAllocates checks that a huge lists.range allocates next to nothing.
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
