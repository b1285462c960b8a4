package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func zzObj(version, ann, spec string) []byte {
	meta := `{"name":"n"}`
	if ann != "" {
		q, _ := json.Marshal(ann)
		meta = `{"name":"n","annotations":{"refract.dev/complement":` + string(q) + `}}`
	}
	return []byte(`{"apiVersion":"` + pizzaGroup + `/` + version + `","kind":"Pizza","metadata":` + meta + `,"spec":` + spec + `}`)
}

func TestZZNonObject(t *testing.T) {
	never := func(dst, v []byte) ([]byte, error) { return append(dst, "null"...), nil }
	one := func(dst, v []byte) ([]byte, error) { return append(dst, `1`...), nil }
	for name, c := range map[string]Conversion{
		"items":  Items("spec.a", "spec.a", []Conversion{RawField("cut", "sliced", never, one)}),
		"values": Values("spec.a", "spec.a", []Conversion{RawField("cut", "sliced", never, one)}),
	} {
		e := engineOf(t, c)
		for _, spec := range []string{`{"a":[null]}`, `{"a":["x"]}`, `{"a":[[]]}`, `{"a":{"k":null}}`, `{"a":{"k":7}}`} {
			for _, ann := range []string{
				`{"v1alpha1":{"spec.a":{"items":[{"at":0,"size":1,"of":"0000000000000000","kept":{"cut":{"value":1,"of":"74234e98afe7498f"}}}]}}}`,
				`{"v1alpha1":{"spec.a":{"members":{"k":{"cut":{"value":1,"of":"74234e98afe7498f"}}}}}}`,
			} {
				out, err := e.Convert(zzObj("v1beta1", ann, spec), pizzaGroup+"/v1alpha1")
				if err != nil || !json.Valid(out) {
					t.Errorf("%s %s: %v %s", name, spec, err, out)
				}
			}
		}
	}
	// Without forging.
	e := engineOf(t, Items("spec.a", "spec.a", []Conversion{RawField("cut", "sliced", never, one)}))
	there := mustConvert(t, e, zzObj("v1alpha1", "", `{"a":[{"cut":1},{}]}`), "v1beta1")
	edited := strings.Replace(string(there), `"a":[{}`, `"a":[null`, 1)
	t.Log(edited)
	out, err := e.Convert([]byte(edited), pizzaGroup+"/v1alpha1")
	if err != nil || !json.Valid(out) {
		t.Errorf("legit: %v %s", err, out)
	}
}

func TestZZQuadratic(t *testing.T) {
	e := engineOf(t, Items("spec.a", "spec.a", []Conversion{SpokeOnly("note")}))
	items := strings.TrimSuffix(strings.Repeat(`{"at":0},`, 20000), ",")
	for _, n := range []int{20000,100000} {
		spec := `{"a":[` + strings.TrimSuffix(strings.Repeat(`{},`, n), ",") + `]}`
		start := time.Now()
		_, err := e.Convert(zzObj("v1beta1", `{"v1alpha1":{"spec.a":{"items":[`+items+`]}}}`, spec), pizzaGroup+"/v1alpha1")
		t.Log(n, err, time.Since(start))
	}
}

func TestZZDepth(t *testing.T) {
	e := engineOf(t, SpokeOnly("spec.note"))
	deep := strings.Repeat("[", 9990) + strings.Repeat("]", 9990)
	_, err := e.Convert(zzObj("v1beta1", `{"v1alpha1":{"spec.note":{"value":`+deep+`,"of":"74234e98afe7498f"}}}`, `{}`), pizzaGroup+"/v1alpha1")
	t.Log(err)
	for d := 9985; d < 10001; d++ {
		deep := strings.Repeat("[", d) + strings.Repeat("]", d)
		out, err := e.Convert(zzObj("v1beta1", `{"v1alpha1":{"spec.note":{"value":`+deep+`,"of":"74234e98afe7498f"}}}`, `{}`), pizzaGroup+"/v1alpha1")
		var x any
		t.Log(d, err, json.Unmarshal(out, &x), strings.Contains(string(out), "note"))
	}
}

func TestZZBig(t *testing.T) {
	e := engineOf(t, Items("spec.a", "spec.b", []Conversion{Move("x", "y"), Items("l", "m", []Conversion{Move("p", "q.r"), SpokeOnly("note"), HubOnly("o", Default([]byte("1")))}), SpokeOnly("note"), HubOnly("o")}, Keys([]string{"x"}, []string{"y"})))
	for _, n := range []int{10000, 100000} {
		var l []string
		for i := range n {
			l = append(l, fmt.Sprintf(`{"x":%d,"l":[{"p":1},{"p":2}]}`, i))
		}
		l[n/2] = `{"x":"s","l":[{"p":1,"note":1},{"p":2}]}`
		start := time.Now()
		o := zzObj("v1alpha1", "", `{"a":[`+strings.Join(l, ",")+`]}`)
		there := mustConvert(t, e, o, "v1beta1")
		t1 := time.Since(start)
		back := mustConvert(t, e, there, "v1alpha1")
		t.Log(n, len(o), t1, time.Since(start)-t1, canonicalOf(o) == canonicalOf(back))
	}
}

func TestZZParse(t *testing.T) {
	for _, text := range []string{"", "a", "a.b", "a..b", ".a", "a.", `["`, `["a`, `["a"]`, `["a"].b`, `["a"]b`, `"a"`, `a."b"`, "{", "{a", "{a,", "{a}", "{a}.b", "{,}", "a[0]", "a[*]", "[*]", "[", "]", `a["\u0000"]`, `a["\ud800"]`, "a{b}", `a.["b"]`, `a[""]`, "a b", "ä"} {
		p, err := parsePlace(text)
		t.Logf("%q %q %q %v", text, p.keys, p.members, err)
	}
}
