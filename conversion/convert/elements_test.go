package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// engineOf returns an engine with the conversions of one spoke.
func engineOf(tb testing.TB, conversions ...Conversion) *Engine {
	tb.Helper()
	e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: []Spoke{{Version: "v1alpha1", Conversions: conversions}}})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// keptOf returns the complement annotation of an object, or "".
func keptOf(t *testing.T, object []byte) string {
	t.Helper()
	return annotationOf(t, object, Annotation)
}

// annotationOf returns an annotation of an object, or "".
func annotationOf(t *testing.T, object []byte, name string) string {
	t.Helper()
	var o struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		t.Fatal(err)
	}
	return o.Metadata.Annotations[name]
}

// TestElementErrors checks that an error names the place of the value inside nested lists and tables.
func TestElementErrors(t *testing.T) {
	fails := func(_, _ []byte) ([]byte, error) { return nil, errors.New("out of tomatoes") }
	makes := func(text string) func(dst, value []byte) ([]byte, error) {
		return func(dst, _ []byte) ([]byte, error) { return append(dst, text...), nil }
	}
	cases := map[string]struct {
		reason     string
		conversion Conversion
		spec       string
		err        string
	}{
		"Item": {
			reason: "Elements are counted from 0.", spec: `{"a":[{},{"x":1}]}`, err: "spec.a[1].x: out of tomatoes",
			conversion: Items("spec.a", "spec.b", []Conversion{RawField("x", "y", fails, keepRaw)}),
		},
		"Deep": {
			reason: "Keys of tables are quoted if necessary.", spec: `{"a":{"x.y":[[1]]}}`, err: `spec.a["x.y"][0][0]: out of tomatoes`,
			conversion: Values("spec.a", "spec.a", []Conversion{Items("", "", []Conversion{Items("", "", []Conversion{RawField("", "", fails, keepRaw)})})}),
		},
		"Twice": {
			reason: "A duplicate key is an error, because only one of the two values could be converted.", spec: `{"a":[{"x":1,"x":2}]}`, err: "spec.a[0].x: duplicate key",
			conversion: Items("spec.a", "spec.a", []Conversion{Move("x", "y")}),
		},
		"Occupied": {
			reason: "Only one value can be at a place.", spec: `{"a":[{"x":1,"y":2}]}`, err: "spec.a[0].y: in v1beta1, the place of x of v1alpha1 already has a value",
			conversion: Items("spec.a", "spec.a", []Conversion{Move("x", "y")}),
		},
		"NoElement": {
			reason: "A list cannot have gaps.", spec: `{"a":[1]}`, err: "spec.a[0]: an element cannot be removed: convert the list as one value",
			conversion: Items("spec.a", "spec.a", []Conversion{RawField("", "", none, keepRaw)}),
		},
		"TableTwice": {
			reason: "A duplicate key in a table is an error, because a kept value could belong to either.", spec: `{"a":{"k":{"x":1},"k":{"x":2}}}`, err: "spec.a.k: duplicate key",
			conversion: Values("spec.a", "spec.a", []Conversion{SpokeOnly("x")}),
		},
		"GroupValue": {
			reason: "The value of a group must be an object.", spec: `{"a":1}`, err: "spec.a: want an object with the fields of spec.{x,y}, the conversion returned a number",
			conversion: RawField("spec.a", "spec.{x,y}", makes(" 1"), keepRaw),
		},
		"GroupField": {
			reason: "A field outside the group would be lost.", spec: `{"a":1}`, err: `spec.a: the conversion returned a field "z", which is not part of spec.{x,y}`,
			conversion: RawField("spec.a", "spec.{x,y}", makes(`{"x":1,"z":1}`), keepRaw),
		},
		"GroupTwice": {
			reason: "A duplicate key in a result is an error, because one of the two values would be lost.", spec: `{"a":1}`, err: "spec.a.x: duplicate key",
			conversion: RawField("spec.a", "spec.{x,y}", makes(`{"x":1,"x":2}`), keepRaw),
		},
		"GroupOccupied": {
			reason: "Only one value can be at a place.", spec: `{"a":1,"y":1}`, err: "spec.y: in v1beta1, the place of spec.a of v1alpha1 already has a value",
			conversion: RawField("spec.a", "spec.{x,y}", makes(`{}`), keepRaw),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := engineOf(t, tc.conversion).Convert(alpha(`{"name":"n"}`, tc.spec), pizzaGroup+"/v1beta1")
			var at *ObjectError
			if !errors.As(err, &at) {
				t.Fatalf("%s\nConvert() error %v, want an ObjectError", tc.reason, err)
			}
			if diff := cmp.Diff(tc.err, at.Err.Error()); diff != "" {
				t.Errorf("%s\nConvert() error: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestGroups checks conversions between groups of fields, also if both groups have a field in common.
func TestGroups(t *testing.T) {
	swap := func(from, to string) func(dst, value []byte) ([]byte, error) {
		return func(dst, value []byte) ([]byte, error) {
			return append(dst, strings.Replace(string(value), from, to, 1)...), nil
		}
	}
	drop := func(dst, _ []byte) ([]byte, error) { return append(dst, "{}"...), nil }
	empty := func(dst, _ []byte) ([]byte, error) { return append(dst, `""`...), nil }
	cases := map[string]struct {
		reason     string
		conversion Conversion
		spec, want string
	}{
		"Common":  {reason: "A field in both groups stays at its place.", conversion: RawField("spec.{a,b}", "spec.{a,c}", swap("b", "c"), swap("c", "b")), spec: `{"a":1,"z":0,"b":2}`, want: `{"a":1,"z":0,"c":2}`},
		"Part":    {reason: "A group with only one of its fields is converted, too.", conversion: RawField("spec.{a,b}", "spec.{a,c}", swap("b", "c"), swap("c", "b")), spec: `{"b":null}`, want: `{"c":null}`},
		"Gone":    {reason: "A field that the result lacks is absent.", conversion: RawField("spec.{a,b}", "spec.{a,b}", drop, drop), spec: `{"a":1,"b":2,"z":0}`, want: `{"z":0}`},
		"Nothing": {reason: "If the result has no fields, the value is kept only in the annotation, even if the reverse function would make it from an object without fields.", conversion: RawField("spec.text", "spec.{a,b}", drop, empty), spec: `{"text":""}`, want: `{}`},
		"Members": {reason: "Names of fields may contain any characters.", conversion: RawField(`spec.{"a.b",c}`, `top["x.y"]`, keepRaw, keepRaw), spec: `{"c":1,"a.b":2,"z":0}`, want: `{"z":0}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := engineOf(t, tc.conversion)
			object := alpha(`{"name":"n"}`, tc.spec)
			there := mustConvert(t, e, object, "v1beta1")
			if diff := cmp.Diff(tc.want, string(memberOf(t, there, "spec"))); diff != "" {
				t.Errorf("%s\nConvert(): -want, +got:\n%s", tc.reason, diff)
			}
			sameObjects(t, tc.reason, object, mustConvert(t, e, there, "v1alpha1"))
		})
	}
}

// TestEntriesOfElements checks that only an annotation in the format of the engine has an effect.
func TestEntriesOfElements(t *testing.T) {
	e := testEngine(t, "list")
	const live = `{"toppings":[{"id":{"name":"a"},"origin":"here"}]}`
	const entry = `{"note":{"value":1,"of":"74234e98afe7498f"}}`
	cases := map[string]struct {
		reason, content string
		restored        bool
	}{
		"Ours":        {reason: "The format of the engine is accepted.", content: `{"items":[{"key":["a"],"kept":` + entry + `}]}`, restored: true},
		"White":       {reason: "Any JSON notation of the format is accepted.", content: ` { "items" : [ { "kept" : ` + entry + `, "key" : [ "\u0061" ] } ] } `, restored: true},
		"OtherKey":    {reason: "An entry of another element is not applied.", content: `{"items":[{"key":["b"],"kept":` + entry + `}]}`},
		"NoKey":       {reason: "An entry that was written before the list had keys is matched by fingerprint.", content: `{"items":[{"at":0,"size":1,"of":"74234e98afe7498f","kept":` + entry + `}]}`, restored: true},
		"NoKeyNow":    {reason: "An entry for one of two equal elements does not match a list of one.", content: `{"items":[{"at":0,"size":2,"of":"74234e98afe7498f","kept":` + entry + `}]}`},
		"Table":       {reason: "An entry for a table does not match a list.", content: `{"members":{"a":` + entry + `}}`},
		"Negative":    {reason: "An index must not be negative.", content: `{"items":[{"key":["a"],"at":-1,"size":1,"of":"74234e98afe7498f","kept":` + entry + `}]}`},
		"Huge":        {reason: "A huge index does not allocate memory.", content: `{"items":[{"key":["a"],"at":1000000000000,"size":1,"of":"74234e98afe7498f","kept":` + entry + `}]}`},
		"Items":       {reason: "The items must be a list.", content: `{"items":{"key":["a"],"kept":` + entry + `}}`},
		"Item":        {reason: "Each item must be an object.", content: `{"items":[[]]}`},
		"Kept":        {reason: "The kept values of an item must be entries.", content: `{"items":[{"key":["a"],"kept":{"note":1}}]}`},
		"Value":       {reason: "The kept value of a list must be in its items.", content: `{"value":[],"of":"74234e98afe7498f"}`},
		"Both":        {reason: "An entry is either for a list or for a table.", content: `{"items":[{"key":["a"],"kept":` + entry + `}],"members":{}}`},
		"NotAbsent":   {reason: "A value without a counterpart needs the fingerprint of null.", content: `{"items":[{"key":["a"],"kept":{"note":{"value":1,"of":"0000000000000000"}}}]}`},
		"Fingerprint": {reason: "A fingerprint must be a string.", content: `{"items":[{"key":["a"],"of":7,"kept":` + entry + `}]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(map[string]string{Annotation: `{"v1alpha1":{"spec.toppings":` + tc.content + `}}`})
			if err != nil {
				t.Fatal(err)
			}
			object := fmt.Appendf(nil, `{"apiVersion":"%s/v1beta1","kind":"Pizza","metadata":{"name":"n","annotations":%s},"spec":%s}`, pizzaGroup, text, live)
			want := `{"toppings":[{"name":"a"}]}`
			if tc.restored {
				want = `{"toppings":[{"name":"a","note":1}]}`
			}
			if got := memberOf(t, mustConvert(t, e, object, "v1alpha1"), "spec"); canonicalOf(got) != want {
				t.Errorf("%s\nConvert() = %s, want %s", tc.reason, got, want)
			}
		})
	}
}

// none is a conversion function whose result is absent.
func none(dst, _ []byte) ([]byte, error) { return append(dst, "null"...), nil }

// TestElementChangedItsType checks that the kept values of an element are dropped if the element is no longer an
// object.
func TestElementChangedItsType(t *testing.T) {
	inner := []Conversion{RawField("cut", "sliced", none, keepRaw), RawField("{host,port}", "address", none, keepRaw), SpokeOnly("note")}
	e := engineOf(t, Items("spec.list", "spec.list", inner), Values("spec.table", "spec.table", inner))
	object := alpha(`{"name":"n"}`, `{"list":[{"cut":1,"host":1,"note":1,"x":1}],"table":{"k":{"cut":1,"host":1,"note":1,"x":1}}}`)
	there := mustConvert(t, e, object, "v1beta1")
	sameObjects(t, "round trip", object, mustConvert(t, e, there, "v1alpha1"))
	for _, element := range []string{`null`, `"text"`, `[]`, `7`} {
		edited := bytes.ReplaceAll(there, []byte(`{"x":1}`), []byte(element))
		want := `{"list":[` + element + `],"table":{"k":` + element + `}}`
		if got := memberOf(t, mustConvert(t, e, edited, "v1alpha1"), "spec"); string(got) != want {
			t.Errorf("Convert() = %s, want %s", got, want)
		}
	}
}

// TestAbsentInMovedParent checks that a value comes back that is absent in the other version. Neither the other content
// of its parent nor the order of the conversions may matter.
func TestAbsentInMovedParent(t *testing.T) {
	away, moved := RawField("spec.a.n", "spec.b.n", none, keepRaw), Move("spec.a.x", "spec.b.x")
	for _, conversions := range [][]Conversion{{away, moved}, {moved, away}, {away}} {
		e := engineOf(t, conversions...)
		for _, spec := range []string{`{"a":{"x":1,"n":2}}`, `{"a":{"n":2}}`, `{"a":{"n":2,"z":1}}`} {
			object := alpha(`{"name":"n"}`, spec)
			there := mustConvert(t, e, object, "v1beta1")
			sameObjects(t, "round trip", object, mustConvert(t, e, there, "v1alpha1"))
			pruned := bytes.Replace(there, []byte(`"a":{},`), nil, 1) // The hub may have no place for this object.
			sameObjects(t, "round trip of what the schema knows", object, mustConvert(t, e, pruned, "v1alpha1"))
		}
	}
	object := alpha(`{}`, `{"a":{"n":2}}`)
	if got := memberOf(t, mustConvert(t, engineOf(t, away, moved), object, "v1beta1"), "spec"); string(got) != `{}` {
		t.Errorf("partial object: Convert() = %s, want no parent for what does not come back", got)
	}
}

// TestMostAnnotations checks the limit of the annotations: kept values may fill them up to the limit, but not a byte
// more.
func TestMostAnnotations(t *testing.T) {
	e := engineOf(t, SpokeOnly("spec.a"))
	object := func(n int) []byte {
		return alpha(`{"name":"n","annotations":{"x":"y"}}`, `{"a":"`+strings.Repeat("a", n)+`"}`)
	}
	var annotations map[string]string
	if err := json.Unmarshal(memberOf(t, memberOf(t, mustConvert(t, e, object(0), "v1beta1"), "metadata"), "annotations"), &annotations); err != nil {
		t.Fatal(err)
	}
	least := 0
	for key, value := range annotations {
		least += len(key) + len(value)
	}
	mustConvert(t, e, object(maxAnnotations-least), "v1beta1")
	_, err := e.Convert(object(maxAnnotations-least+1), pizzaGroup+"/v1beta1")
	if want := "with which the annotations have 262145, more than 262144"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Convert() of a byte more: error %v, want one with %q", err, want)
	}
}

// TestTooLargeNames checks that the failure names the place of the largest kept value.
func TestTooLargeNames(t *testing.T) {
	e := engineOf(t, SpokeOnly("spec.a"), SpokeOnly("spec.b"), SpokeOnly("spec.c"))
	_, err := e.Convert(alpha(`{"name":"n"}`, `{"a":1,"b":"`+strings.Repeat("b", maxAnnotations)+`","c":1}`), pizzaGroup+"/v1beta1")
	if err == nil || !strings.Contains(err.Error(), ": spec.b: v1beta1 cannot hold this value: ") {
		t.Errorf("Convert() error %v, want one about spec.b", err)
	}
}

// TestKeysAdded checks that values come back that were kept before the conversion declared keys.
func TestKeysAdded(t *testing.T) {
	list := func(o ...Option) *Engine {
		return engineOf(t, Items("spec.list", "spec.list", []Conversion{SpokeOnly("note")}, o...))
	}
	keyed := list(Keys([]string{"name"}, []string{"name"}))
	object := alpha(`{"name":"n"}`, `{"list":[{"name":"a","note":1},{"name":"b"},{"name":"c","note":3}]}`)
	there := mustConvert(t, list(), object, "v1beta1")
	sameObjects(t, "round trip", object, mustConvert(t, keyed, there, "v1alpha1"))
	shorter := bytes.Replace(there, []byte(`{"name":"a"},`), nil, 1)
	const want = `{"list":[{"name":"b"},{"name":"c","note":3}]}`
	if got := memberOf(t, mustConvert(t, keyed, shorter, "v1alpha1"), "spec"); string(got) != want {
		t.Errorf("Convert() = %s, want %s", got, want)
	}
}

// TestForgedItems checks that the time for many items with one name is linear.
func TestForgedItems(t *testing.T) {
	e := testEngine(t, "unnamed")
	const items, elements, most = 20_000, 100_000, 20 * time.Second // Quadratic time would be minutes.
	text, err := json.Marshal(map[string]string{
		Annotation: `{"v1alpha1":{"spec.toppings":{"items":[` + strings.TrimSuffix(strings.Repeat(`{"at":0},`, items), ",") + `]}}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	object := fmt.Appendf(nil, `{"apiVersion":"%s/v1beta1","kind":"Pizza","metadata":{"name":"n","annotations":%s},"spec":{"toppings":[%s]}}`,
		pizzaGroup, text, strings.TrimSuffix(strings.Repeat("{},", elements), ","))
	start := time.Now()
	if _, err := e.Convert(object, pizzaGroup+"/v1alpha1"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > most {
		t.Errorf("%d items and %d elements took %v, want no more than %v", items, elements, took, most)
	}
}

// TestForgedEmptyGroup checks that an entry with an empty object cannot remove a value of the object.
func TestForgedEmptyGroup(t *testing.T) {
	e := engineOf(t, RawField("spec.text", "spec.{a,b}", func(dst, _ []byte) ([]byte, error) { return append(dst, `{"a":1}`...), nil },
		func(dst, _ []byte) ([]byte, error) { return append(dst, `""`...), nil }))
	of := new(comparer).fingerprint([]byte(`""`))
	text, err := json.Marshal(map[string]string{Annotation: `{"v1beta1":{"spec.{a,b}":{"value":{},"of":"` + string(of[:]) + `"}}}`})
	if err != nil {
		t.Fatal(err)
	}
	there := mustConvert(t, e, alpha(`{"name":"n","annotations":`+string(text)+`}`, `{"text":""}`), "v1beta1")
	if got, want := string(memberOf(t, there, "spec")), `{"a":1}`; got != want {
		t.Errorf("Convert() = %s, want %s", got, want)
	}
}

// TestForgedGroup checks that an entry with a field outside the group has no effect, even if the conversion ignores
// that field.
func TestForgedGroup(t *testing.T) {
	first := func(dst, value []byte) ([]byte, error) { return append(dst, lookUpRaw(value, []string{"a"})...), nil }
	group := func(dst, value []byte) ([]byte, error) {
		return append(append(append(dst, `{"a":`...), value...), '}'), nil
	}
	e := engineOf(t, RawField("spec.{a,b}", "spec.x", first, group))
	for value, want := range map[string]string{`{"a":1,"b":2}`: `{"a":1,"b":2}`, `{"a":1,"z":2}`: `{"a":1}`, `{"a":1,"a":1}`: `{"a":1}`} {
		text, err := json.Marshal(map[string]string{Annotation: `{"v1alpha1":{"spec.{a,b}":{"value":` + value + `,"of":"6b86b273ff34fce1"}}}`})
		if err != nil {
			t.Fatal(err)
		}
		object := fmt.Appendf(nil, `{"apiVersion":"%s/v1beta1","kind":"Pizza","metadata":{"name":"n","annotations":%s},"spec":{"x":1}}`, pizzaGroup, text)
		out, err := e.Convert(object, pizzaGroup+"/v1alpha1")
		if err != nil || string(memberOf(t, out, "spec")) != want {
			t.Errorf("%s is kept: Convert() = %s, %v, want spec %s", value, out, err, want)
		}
	}
}

// FuzzElements converts any spec with any annotation, with the engines for lists, groups and parents. The conversion
// must not panic or modify its input. It must be deterministic and return valid JSON.
func FuzzElements(f *testing.F) {
	names := []string{"laws", "list", "unnamed", "deep", "table", "matrix", "group", "parents", "onesided", "merged", "passing"}
	for i := range names {
		for _, spec := range []string{
			`{"toppings":[{"name":"a","note":1},{"name":"a","id":{}},null],"stock":{"a":{"note":null}},"address":"a:1"}`,
			`{"tables":[{"number":1,"pizzas":[{"id":{"name":"a"},"diameter":31}]}],"rows":[[30]],"host":"h","oven":{"wood":1,"door":null}}`,
		} {
			f.Add(uint8(i), false, ``, spec)
			f.Add(uint8(i), true, `{"v1alpha1":{"spec.toppings":{"items":[{"key":["a"],"at":0,"size":2,"of":"74234e98afe7498f","kept":{"note":{"value":1,"of":"74234e98afe7498f"}}}]}}}`, spec)
			f.Add(uint8(i), true, `{"v1alpha1":{"spec.stock":{"members":{"a":{"note":{"value":1,"of":"74234e98afe7498f"}}}},"spec.note":{"value":null,"of":"74234e98afe7498f"}}}`, spec)
			f.Add(uint8(i), false, `{"v1beta1":{"spec.oven":{"value":{},"of":"74234e98afe7498f"},"spec.oven.wood":{"value":{},"of":"74234e98afe7498f"}}}`, spec)
		}
	}
	engines := map[string]*Engine{}
	for _, name := range names {
		engines[name] = testEngine(f, name)
	}
	f.Fuzz(func(t *testing.T, n uint8, hub bool, annotation, spec string) {
		from, to := "v1alpha1", "v1beta1"
		if hub {
			from, to = to, from
		}
		text, err := json.Marshal(map[string]string{Annotation: annotation})
		if err != nil {
			t.Fatal(err)
		}
		object, ok := fuzzObject(from, `{"name":"n","annotations":`+string(text)+`}`, spec)
		if !ok {
			return
		}
		e := engines[names[int(n)%len(names)]]
		if _, err := e.Convert(object, pizzaGroup+"/"+to); err != nil && strings.Contains(err.Error(), "panic") {
			t.Fatalf("%s: %v", object, err)
		}
		there := mustConvert(t, e, object, to)
		if there == nil {
			return
		}
		if _, err := e.Convert(there, pizzaGroup+"/"+from); err != nil {
			t.Fatalf("%s\n%s\ndoes not come back: %v", object, there, err)
		}
	})
}

// TestSparse checks that the annotation has only those elements of a long list that would lose a value.
func TestSparse(t *testing.T) {
	e := testEngine(t, "list")
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf(`{"name":"topping-%d","size":"small","text":"%s"}`, i, strings.Repeat("x", 100)))
	}
	list[500] = `{"name":"topping-500","note":"special"}`
	object := alpha(`{"name":"n"}`, `{"toppings":[`+strings.Join(list, ",")+`]}`)
	there := mustConvert(t, e, object, "v1beta1")
	const want = `{"v1alpha1":{"spec.toppings":{"items":[{"key":["topping-500"],"kept":{"note":{"value":"special","of":"74234e98afe7498f"}}}]}}}`
	if diff := cmp.Diff(want, keptOf(t, there)); diff != "" {
		t.Errorf("annotation: -want, +got:\n%s", diff)
	}
	sameObjects(t, "round trip", object, mustConvert(t, e, there, "v1alpha1"))
}

// TestManyElements checks that the time is linear for long lists without keys and large annotations about them.
func TestManyElements(t *testing.T) {
	e := testEngine(t, "unnamed")
	const n = 2000
	object := alpha(`{"name":"n"}`, `{"toppings":[`+strings.TrimSuffix(strings.Repeat(`{"note":1},`, n), ",")+`]}`)
	there := mustConvert(t, e, object, "v1beta1")
	if there == nil || canonicalOf(object) != canonicalOf(mustConvert(t, e, there, "v1alpha1")) {
		t.Fatal("the list does not come back")
	}
	longer := bytes.Replace(there, []byte(`"toppings":[`), []byte(`"toppings":[`+strings.Repeat(`{"origin":"here"},`, 10*n)), 1)
	back := mustConvert(t, e, longer, "v1alpha1")
	if got := bytes.Count(back, []byte(`"note":1`)); got != n {
		t.Errorf("%d elements have a note, want %d", got, n)
	}
}

// TestMoveAllocates checks that a move allocates only the memory for the new text.
func TestMoveAllocates(t *testing.T) {
	object := alpha(`{"name":"n"}`, `{"a":[1,2,3],"list":[{"x":1},{"x":2}]}`)
	allocations := func(c ...Conversion) float64 {
		w := engineOf(t, c...).newConverter()
		return testing.AllocsPerRun(100, func() {
			w.outer.Reset(object)
			if _, err := w.object(&w.outer, pizzaGroup+"/v1beta1", nil, func([]byte, int, int) {}); err != nil {
				t.Fatal(err)
			}
			w.release()
		})
	}
	none, moved := allocations(), allocations(Move("spec.a", "spec.b"))
	elements := allocations(Items("spec.list", "spec.list", []Conversion{Move("x", "y")}))
	const anew = 1 // The memory for small texts.
	if moved > none+anew || elements > none+anew {
		t.Errorf("%g allocations without a conversion, %g with a move, %g with a move in a list", none, moved, elements)
	}
}

// TestMergeByKeys checks that lists with keys are merged element by element.
func TestMergeByKeys(t *testing.T) {
	name := [][]string{{"n"}}
	cases := map[string]struct {
		reason           string
		keys             [][]string
		base, live, kept string
		want             string
	}{
		"Nothing":   {reason: "Without edits, the kept list is restored.", keys: name, base: `[{"n":1},{"n":2}]`, live: `[{"n":1},{"n":2}]`, kept: `[{"n":2,"x":1},{"n":1}]`, want: `[{"n":2,"x":1},{"n":1}]`},
		"Hidden":    {reason: "A kept element that the other version does not have stays at its index.", keys: name, base: `[{"n":1},{"n":2}]`, live: `[{"n":1,"y":1},{"n":2}]`, kept: `[{"n":1},{"n":3},{"n":2}]`, want: `[{"n":1,"y":1},{"n":3},{"n":2}]`},
		"Removed":   {reason: "An element that was removed in the other version stays removed.", keys: name, base: `[{"n":1},{"n":2}]`, live: `[{"n":2}]`, kept: `[{"n":1,"x":1},{"n":2,"x":2}]`, want: `[{"n":2,"x":2}]`},
		"Added":     {reason: "An element that was added in the other version is taken unchanged.", keys: name, base: `[{"n":1}]`, live: `[{"n":3},{"n":1}]`, kept: `[{"n":1,"x":1},{"n":2}]`, want: `[{"n":3},{"n":1,"x":1},{"n":2}]`},
		"Order":     {reason: "If the order was changed, the live order is used.", keys: name, base: `[{"n":1},{"n":2}]`, live: `[{"n":2},{"n":1}]`, kept: `[{"n":1,"x":1},{"n":2,"x":2}]`, want: `[{"n":2,"x":2},{"n":1,"x":1}]`},
		"Member":    {reason: "A member that was removed in the other version stays removed.", keys: name, base: `[{"n":1,"a":1}]`, live: `[{"n":1}]`, kept: `[{"n":1,"a":1,"x":1}]`, want: `[{"n":1,"x":1}]`},
		"Invented":  {reason: "An element that exists only after a round trip is not restored.", keys: name, base: `[{"n":1},{"n":2}]`, live: `[{"n":1,"y":1},{"n":2}]`, kept: `[{"n":1}]`, want: `[{"n":1,"y":1}]`},
		"TwoKeys":   {reason: "All keys together identify an element, and one of them may be missing.", keys: [][]string{{"n"}, {"m", "k"}}, base: `[{"n":1,"m":{"k":1}},{"n":1}]`, live: `[{"n":1},{"n":1,"m":{"k":1}}]`, kept: `[{"n":1,"m":{"k":1},"x":1},{"n":1,"x":2}]`, want: `[{"n":1,"x":2},{"n":1,"m":{"k":1},"x":1}]`},
		"Twice":     {reason: "Elements with duplicate names cannot be matched.", keys: name, base: `[{"n":1},{"n":1}]`, live: `[{"n":1}]`, kept: `[{"n":1,"x":1},{"n":1}]`, want: `[{"n":1}]`},
		"NoList":    {reason: "Keys have no effect on values other than lists.", keys: name, base: `{"a":1,"b":1}`, live: `{"a":2,"b":1}`, kept: `{"a":1,"b":1,"c":1}`, want: `{"a":2,"b":1,"c":1}`},
		"NoKeys":    {reason: "Without keys, a list is merged as one value.", base: `[{"n":1}]`, live: `[{"n":1,"y":1}]`, kept: `[{"n":1,"x":1}]`, want: `[{"n":1,"y":1}]`},
		"NoObjects": {reason: "Elements that are not objects have no keys.", keys: name, base: `[1,2]`, live: `[2]`, kept: `[1,2,3]`, want: `[2]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := threeWay([]byte(tc.base), []byte(tc.live), []byte(tc.kept), tc.keys)
			if err != nil || string(got) != tc.want {
				t.Errorf("%s\nthreeWay() = %s, %v, want %s", tc.reason, got, err, tc.want)
			}
		})
	}
}
