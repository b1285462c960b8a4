package expression

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// words are the leaves of random expressions.
var words = []string{
	"value", "value", "value.a", "value.?a", "value.list", "value[0]", "t", "1", "-1", "1.5", "0", "9223372036854775807", `"a"`, `"%s%.3f"`, `""`, "null", "true", "[]", "[1, 2]", "{}",
	`{"a": 1, "b": [2]}`, "optional.none()", "b'x'", "duration('1s')", "type(1)", "2u",
}

// shapesOfExpressions are the templates of random expressions. Another expression replaces each %.
var shapesOfExpressions = []string{
	"% + %", "% == %", "% in %", "% ? % : %", "% < %", "-%", "!%", "% && %", "% || %", "%[%]", "%[?%]", "[%, %]", `{"k": %}`, "{%: %}", "has(value.a) ? % : %",
	"%.map(t, %)", "%.filter(t, %)", "%.all(t, %)", "%.exists_one(t, %)", "%.transformMap(k, t, %)", "%.transformList(k, t, %)", "%.transformMapEntry(k, t, %)", "%.sortBy(t, %)", "cel.bind(t, %, %)",
	"%.count()", "%.count(%, %)", "%.expand()", "%.expand(%, %)", "%.merge(%)", "%.omit(%)", "lists.range(%)", "%.flatten()", "%.flatten(%)", "%.distinct()", "%.sort()", "%.reverse()", "%.slice(%, %)",
	"%.join(%)", "%.split(%)", "%.replace(%, %)", "%.substring(%)", "%.charAt(%)", "%.indexOf(%)", "%.lastIndexOf(%, %)", "%.format(%)", "%.matches(%)", "regex.replace(%, %, %)", "regex.extractAll(%, %)", "strings.quote(%)",
	"size(%)", "string(%)", "int(%)", "double(%)", "dyn(%)", "type(%)", "json.encode(%)", "base64.decode(%)", "quantity(%)", "string(quantity(%))", "semver(%)", "url(%)", "math.greatest(%)", "math.bitShiftLeft(%, %)",
	"sets.contains(%, %)", "sets.equivalent(%, %)", "%.orValue(%)", "optional.of(%)", "[?%]", "{?%: %}", "timestamp(%)", "duration(%)", "%.value()", "%.hasValue()",
}

// expression returns a random expression. The types of its leaves are unknown to the compiler, so almost every
// expression compiles.
func expression(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(5) == 0 {
		return "dyn(" + words[r.IntN(len(words))] + ")"
	}
	var b strings.Builder
	for _, c := range shapesOfExpressions[r.IntN(len(shapesOfExpressions))] {
		if c == '%' {
			b.WriteString(expression(r, depth-1))
			continue
		}
		b.WriteRune(c)
	}
	return "dyn(" + b.String() + ")"
}

// FuzzConvert evaluates random expressions with random values. The evaluation must not panic. It must be deterministic,
// and its result must be JSON.
func FuzzConvert(f *testing.F) {
	values := []string{`null`, `1`, `"a"`, `[1,2.5,"x",null,[true]]`, `{"a":1,"list":[3,1,2],"value":1e400}`, `[{"value":"x","count":3},{"value":1}]`, `{"a":{"a":"1Gi"},"b":-0.0}`, `[`, `{"a":"\ud800","\u0000":18446744073709551616}`}
	for i := range uint64(150) {
		f.Add(i, values[i%uint64(len(values))], "")
	}
	f.Add(uint64(0), `{"a":[1]}`, `value.map(x, value[x].`)
	f.Add(uint64(0), `{"a":[1]}`, "value.a\n.map(x, x)")
	schemas := []*schema.Structural{nil, structural(f, `{type: object, properties: {a: {type: integer}, list: {type: array, items: {type: string}}}}`)}
	f.Fuzz(func(t *testing.T, seed uint64, value, text string) {
		if text == "" {
			text = expression(rand.New(rand.NewPCG(seed, 1)), 4)
		}
		for _, s := range schemas {
			p, problems := Compile(text, s, s, Limits{OutputItems: 50, Cost: 10_000})
			if (p == nil) != (len(problems) > 0) {
				t.Fatalf("%s: a program and problems, or neither: %v", text, problems)
			}
			for _, problem := range problems {
				if problem.Line < 1 || problem.Column < 1 || problem.Message == "" {
					t.Errorf("%s: %+v", text, problem)
				}
			}
			if p == nil {
				continue
			}
			given := []byte(value)
			out, err := p.Convert([]byte("before "), given)
			again, err2 := p.Convert([]byte("before "), given)
			if string(out) != string(again) || fmt.Sprint(err) != fmt.Sprint(err2) {
				t.Errorf("%s of %s: %s, %v, and then %s, %v", text, value, out, err, again, err2)
			}
			if string(given) != value {
				t.Errorf("%s changed %s to %s", text, value, given)
			}
			if err != nil && (strings.Contains(err.Error(), "internal error") || strings.Contains(err.Error(), "evaluating: ")) {
				t.Errorf("%s of %s panicked: %v", text, value, err)
			}
			if rest, ok := strings.CutPrefix(string(out), "before "); err == nil && (!ok || !json.Valid([]byte(rest))) {
				t.Errorf("%s of %s is no JSON: %s", text, value, out)
			}
		}
	})
}
