package expression

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

func TestZZAttack(t *testing.T) {
	long := `"` + strings.Repeat("a", 1<<20) + `"`
	ones := "[" + strings.Repeat("1,", 99_999) + "1]"
	deep := strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999)
	eight := "[" + strings.Repeat(long+",", 6) + long + "]"
	tbl := map[string]int{}
	for i := range 50000 {
		tbl[fmt.Sprint("k", i)] = i
	}
	tj, _ := json.Marshal(tbl)
	sch := structural(t, `{type: object, properties: {namespace: {type: string}, "a-b": {type: string}, "__x__": {type: string}, n: {type: integer}, f: {type: number}, l: {type: array, items: {type: integer}}, ios: {x-kubernetes-int-or-string: true}}}`)
	obj := `{"namespace":"n","a-b":"x","__x__":"u","n":1}`
	for _, tc := range []struct {
		text, value string
		l           Limits
		in, out     *schema.Structural
	}{
		{text: `"".matches(value)`, value: `"` + strings.Repeat("x{1000}", 3000) + `"`},
		{text: `value.matches("(x?x?){1000}y")`, value: `"` + strings.Repeat("x", 400000) + `"`},
		{text: `"".matches(value)`, value: `"` + strings.Repeat("(a|b)*", 150000) + `"`},
		{text: `lists.range(100000).map(i, value[i % 7]).sort()[0] == ""`, value: eight},
		{text: `lists.range(100000).map(i, [` + strings.Repeat("1,", 10000) + `i]).size()`, value: "1"},
		{text: share(40, "[%, %]", "value[x40]"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn({1:2})[x40]"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn([1])[x40]"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn(value).?a[?x40]"), value: `{"a":{}}`},
		{text: share(40, "[%, %]", "{x40: 1}.size()"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "{'a': x40} == {'a': 1}"), value: `{"a":1}`},
		{text: share(40, "{%: %}", "1"), value: `{"a":1}`},
		{text: share(40, "{%: %}", "x40"), value: `{"a":1}`},
		{text: share(40, "[[%], [%]]", "has(x40.a)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40.a"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn(x40) + 1"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn(x40) < dyn(x40)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "int(dyn(x40))"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "string(dyn(x40))"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "math.greatest(dyn(x40), 1)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn(x40) ? 1 : 2"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "!dyn(x40)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "dyn(x40) && true"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "[[1]].transformMapEntry(k, v, dyn(x40))"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40.join()"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "[x40, x40].sort()"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "optional.ofNonZeroValue(x40)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "optional.of(x40) == optional.of(x40)"), value: `{"a":1}`},
		{text: share(40, "optional.of(%)", "x40"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "[[x40, 1]].transformMapEntry(k, v, {v: v})"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "type(x40)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40 in {'a': 1}"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "math.least([x40])"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "lists.range(dyn(x40))"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40.count(dyn(x40), 'a')"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "[{'n': x40}].expand('k', 'n')"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40.sortBy(x, x)"), value: `{"a":1}`},
		{text: share(40, "[%, %]", "x40.flatten(40).size()"), value: `{"a":1}`},
		{text: share(40, "% + %", "x40.size()"), value: `[1]`},
		{text: share(40, "% + %", "x40.exists(x, x == 2)"), value: `[1]`},
		{text: `[[[[[value]]]]]`, value: deep},
		{text: `value.map(x, [[[[x]]]])`, value: deep},
		{text: `value == value`, value: deep},
		{text: `[value].distinct()`, value: deep},
		{text: `value.flatten(20000)`, value: deep},
		{text: `json.encode(value).size()`, value: deep},
		{text: `{"a":1}[value]`, value: long},
		{text: `int(value)`, value: long},
		{text: `timestamp(value)`, value: long},
		{text: `duration(value)`, value: long},
		{text: `url(value)`, value: `"` + strings.Repeat("%zz", 1<<18) + `"`},
		{text: `"a".matches(value)`, value: `"(` + strings.Repeat("a", 1<<19) + `"`},
		{text: `value.format([])`, value: `"%` + strings.Repeat("a", 1<<19) + `"`},
		{text: `value.transformMap(k, v, v)`, value: string(tj)},
		{text: `value.transformMapEntry(k, v, {k + "x": v})`, value: string(tj)},
		{text: `lists.range(1000).transformMapEntry(k, v, k > 0 ? value : {})`, value: string(tj)},
		{text: `value.map(k, value.transformMap(k2, v, v)).size()`, value: string(tj)},
		{text: `lists.range(300).map(i, value.omit([])).size()`, value: string(tj)},
		{text: `value.map(k, v, k).size()`, value: string(tj)},
		{text: `regex.extractAll(value, "").size()`, value: long},
		{text: `value.split("a", 5).size()`, value: long},
		{text: `lists.range(1000)`, value: "1", l: Limits{Cost: 1}},
		{text: `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + "b"`, value: "1", l: Limits{Cost: 1}},
		{text: `[1,2,3].map(x, x + 1)`, value: "1", l: Limits{Cost: 1}},
		{text: `lists.range(100000).distinct().distinct().distinct().distinct().distinct().distinct().distinct().distinct().distinct().distinct().distinct().size()`, value: "1"},
		{text: `value.?a`, value: `{"a":1e400}`},
		{text: `has(value.a)`, value: `{"a":1e400}`},
		{text: `value.map(x, x)`, value: `[1e400]`},
		{text: `value.all(x, x > 1)`, value: `[1e400, 0]`},
		{text: `value.transformMap(k, v, v)`, value: `{"a":1e400}`},
		{text: `value + [1]`, value: `[1e400]`},
		{text: `value`, value: `-0.0`},
		{text: `value`, value: `-0`},
		{text: `[value]`, value: `{"a":"` + "\xff" + `"}`},
		{text: `value.a`, value: `{"a":"` + "\xff" + `"}`},
		{text: `value`, value: `{"` + "\xff" + `":1,"` + "\xfe" + `":1}`},
		{text: `quantity(value).asInteger()`, value: `"1e999"`},
		{text: `quantity(value).asApproximateFloat()`, value: `"1e999"`},
		{text: `string(quantity(value).add(1))`, value: `"1e-999"`},
		{text: `string(quantity(value))`, value: `"1Ei"`},
		{text: `quantity(value).sign()`, value: `""`},
		{text: `timestamp(value)`, value: `"2020-01-01T00:00:00Z"`},
		{text: `string(timestamp(value))`, value: `"2020-01-01T00:00:00Z"`},
		{text: `duration(value)`, value: `"1h"`},
		{text: `string(duration(value))`, value: `"1h30m"`},
		{text: `dyn(bytes(value))`, value: `"1h"`},
		{text: `bytes(value)`, value: `"1h"`},
		{text: `[bytes(value)]`, value: `"1h"`},
		{text: `type(value)`, value: `"1h"`},
		{text: `{1: 2}`, value: `"1h"`},
		{text: `{dyn(1): 2}`, value: `"1h"`},
		{text: `{null: 2}`, value: `"1h"`},
		{text: `{[1]: 2}`, value: `"1h"`},
		{text: ``, value: `1`},
		{text: `  `, value: `1`},
		{text: `value value`, value: `1`},
		{text: `value ==`, value: `1`},
		{text: `value = 1`, value: `1`},
		{text: `value.a ?? 1`, value: `1`},
		{text: `value.a and true`, value: `1`},
		{text: `'abc`, value: `1`},
		{text: `value.f * 2`, in: sch, value: `{"f":1}`},
		{text: `value.n * 1.5`, in: sch, value: `{"n":1}`},
		{text: `value.n ? 1 : 2`, in: sch, value: `{"n":1}`},
		{text: `[value.n > 1 ? 1 : "a"]`, in: sch, value: `{"n":1}`},
		{text: `[1, "a", value.f]`, in: sch, value: `{"n":1}`},
		{text: `value.l.first() + 1`, in: sch, value: `{"n":1}`},
		{text: `value.?n + 1`, in: sch, value: `{"n":1}`},
		{text: `"a" + value.n`, in: sch, value: `{"n":1}`},
		{text: `value.ios + 1`, in: sch, value: `{"ios":"a"}`},
		{text: `value.namespace`, in: sch, value: obj},
		{text: `value.a-b`, in: sch, value: obj},
		{text: `value.__x__`, in: sch, value: obj},
		{text: `value.__underscores__x__underscores__ + value.__namespace__ + value.a__dash__b`, in: sch, value: obj},
		{text: `value["a-b"]`, in: sch, value: obj},
		{text: `value.l["a"]`, in: sch, value: obj},
		{text: `value.n.x`, in: sch, value: obj},
		{text: `value.map(x, x)`, in: sch, value: obj},
		{text: `size(value)`, in: sch, value: obj},
		{text: `value == {"n": 1}`, in: sch, value: obj},
		{text: `self.n`, in: sch, value: obj},
		{text: `value.N`, in: sch, value: obj},
		{text: `{"n": value.n,}`, in: sch, out: sch, value: obj},
		{text: `{n: value.n}`, in: sch, out: sch, value: obj},
		{text: `{"n": 1, "n": 2}`, in: sch, out: sch, value: obj},
		{text: `value.l.map(i, {"a": i}).merge({})`, in: sch, out: sch, value: obj},
		{text: `Foo{a: 1}`, value: obj},
		{text: `google.protobuf.Struct{}`, value: obj},
		{text: `google.protobuf.Any{}`, value: obj},
		{text: `google.protobuf.Timestamp{seconds: 1}`, value: obj},
		{text: `[google.protobuf.Duration{seconds: 1}]`, value: obj},
		{text: `google.protobuf.Int64Value{value: 1}`, value: obj},
		{text: `dyn(google.protobuf.Struct{fields: {"a": google.protobuf.Value{number_value: 1.0}}})`, value: obj},
		{text: strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300), value: obj},
		{text: strings.Repeat("-", 3000) + "1", value: obj},
		{text: "value" + strings.Repeat(".a", 10000), value: obj},
		{text: "value" + strings.Repeat(" + value", 5000), value: "1"},
		{text: "value" + strings.Repeat(" + value", 200), value: ones},
		{text: "value" + strings.Repeat(".map(x, x)", 300), value: "[1]"},
		{text: strings.Repeat("value.map(x, ", 20) + "1" + strings.Repeat(")", 20), value: "[1]"},
		{text: strings.Repeat("a", 200000), value: "[1]"},
		{text: "1\x00", value: "[1]"},
		{text: "\"\xff\"", value: "[1]"},
		{text: "\xff", value: "[1]"},
		{text: `"\ud800"`, value: "[1]"},
	} {
		text := tc.text
		if len(text) > 90 {
			text = text[:40] + " ... " + text[len(text)-45:]
		}
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("PANIC %q: %v", text, r)
				}
			}()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			p, problems := Compile(tc.text, tc.in, tc.out, tc.l)
			tookc := time.Since(start)
			var out []byte
			var err error
			if p != nil {
				out, err = p.Convert(nil, []byte(tc.value))
			}
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			mb := (after.TotalAlloc - before.TotalAlloc) >> 20
			flag := ""
			if took > 700*time.Millisecond || mb > 200 {
				flag = "!!!!"
			}
			if err == nil && p != nil && !json.Valid(out) {
				flag += "INVALID"
			}
			msg := ""
			if len(problems) > 0 {
				msg = "? " + fmt.Sprint(problems)
			} else if err != nil {
				msg = "! " + err.Error()
			} else {
				msg = "= " + string(out)
			}
			if len(msg) > 1000 {
				flag += fmt.Sprintf("LONG(%d)", len(msg))
			}
			if len(msg) > 260 {
				msg = msg[:260] + "…"
			}
			fmt.Printf("%s %q [%v/%v %dMB]\n      %s\n", flag, text, tookc.Round(time.Millisecond), took.Round(time.Millisecond), mb, msg)
		}()
	}
}
