package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pizza has the typical fields of Go types of custom resources: structs that are always encoded, slices whose nil is
// encoded as null, pointers, and a free-form field.
type pizza struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   pizzaSpec   `json:"spec"`
	Status pizzaStatus `json:"status"`
}

type pizzaSpec struct {
	Toppings []string          `json:"toppings"`
	Layers   []layer           `json:"layers,omitempty"`
	Oven     *oven             `json:"oven,omitempty"`
	Box      box               `json:"box"`
	Extras   map[string]extra  `json:"extras,omitempty"`
	Notes    map[string]string `json:"notes,omitempty"`
	Custom   map[string]any    `json:"custom,omitempty"`
	Grid     [][]int64         `json:"grid,omitempty"`
}

type layer struct {
	Name     string  `json:"name"`
	Quantity int     `json:"quantity"`
	Oven     *oven   `json:"oven,omitempty"`
	Inner    box     `json:"inner"`
	Sub      []layer `json:"sub"`
}

type oven struct {
	Degrees int64  `json:"degrees,omitempty"`
	Wood    *wood  `json:"wood,omitempty"`
	Name    string `json:"name,omitempty"`
}

// wood has no fields: only its presence has a meaning.
type wood struct{}

type box struct {
	Size string `json:"size,omitempty"`
}

type extra struct {
	Box box `json:"box"`
}

type pizzaStatus struct {
	Cost float64 `json:"cost,omitempty"`
}

// patched returns the patch for the change that f makes to an object.
func patched[T any](tb testing.TB, object string, f func(*T)) string {
	tb.Helper()
	rule := Default("v1", "Pizza", func(_ context.Context, _ *Request, obj *T) error {
		f(obj)
		return nil
	})
	before := strings.Clone(object)
	response, err := rule.answer(tb.Context(), &Request{Operation: Create, Object: []byte(object)})
	if err != nil || response.Err != nil {
		tb.Fatalf("%s: %v, %+v", object, err, response)
	}
	if before != object {
		tb.Fatal("The object was modified.")
	}
	return string(response.Patch)
}

func apply(tb testing.TB, object, patch string) string {
	tb.Helper()
	if patch == "" {
		return object
	}
	p, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		tb.Fatalf("%s: %v", patch, err)
	}
	out, err := p.Apply([]byte(object))
	if err != nil {
		tb.Fatalf("%s: %v\n%s", patch, err, object)
	}
	return string(out)
}

func TestPatch(t *testing.T) {
	toppings := func(names ...string) func(*pizza) {
		return func(p *pizza) { p.Spec.Toppings = names }
	}
	spec := func(f func(*pizzaSpec)) func(*pizza) { return func(p *pizza) { f(&p.Spec) } }
	cases := map[string]struct {
		reason string
		object string
		f      func(*pizza)
		want   string
	}{
		"Nothing": {
			reason: "A different encoding of the same value is no change.",
			object: `{"spec": {"toppings": null, "color": "red"}}`, f: func(*pizza) {},
		},
		"SpecNull": {
			reason: "A missing parent is added together with the field.",
			object: `{"metadata":{"name":"a"},"spec":null}`, f: toppings("tomato", "salami"),
			want: `[{"op":"replace","path":"/spec","value":{"toppings":["tomato","salami"]}}]`,
		},
		"SpecMissing": {
			reason: "A missing parent is added, like a null one.",
			object: `{"metadata":{"name":"a"}}`, f: toppings("tomato"),
			want: `[{"op":"add","path":"/spec","value":{"toppings":["tomato"]}}]`,
		},
		"ToppingsMissing": {
			reason: "An unknown field next to the change stays, and the empty status of the type is not added.",
			object: `{"spec":{"color":"red"}}`, f: toppings("tomato"),
			want: `[{"op":"add","path":"/spec/toppings","value":["tomato"]}]`,
		},
		"ToppingsNull": {
			reason: "A null is replaced.",
			object: `{"spec":{"toppings":null}}`, f: toppings("tomato"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["tomato"]}]`,
		},
		"ToppingsEmpty": {
			reason: "An empty array is replaced.",
			object: `{"spec":{"toppings":[]}}`, f: toppings("tomato", "salami"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["tomato","salami"]}]`,
		},
		"ToppingsNil": {
			reason: "A nil slice is encoded as null, which means the same as a missing field.",
			object: `{"spec":{"toppings":["tomato"],"color":"red"}}`, f: toppings(),
			want: `[{"op":"remove","path":"/spec/toppings"}]`,
		},
		"ToppingsOther": {
			reason: "An array with a change is replaced.",
			object: `{"spec":{"toppings":["a","b"]}}`, f: toppings("c", "d", "e"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["c","d","e"]}]`,
		},
		"ToppingAdded": {
			reason: "An added element is part of the new array.",
			object: `{"spec":{"toppings":["a","b"]}}`, f: toppings("a", "x", "b", "y"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["a","x","b","y"]}]`,
		},
		"ToppingsRemoved": {
			reason: "The new array lacks the removed elements.",
			object: `{"spec":{"toppings":["a","b","c","d"]}}`, f: toppings("b", "d"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["b","d"]}]`,
		},
		"ToppingChanged": {
			reason: "An array with one changed element is replaced as a whole.",
			object: `{"spec":{"toppings":["a","b","c"]}}`, f: toppings("a", "B", "c"),
			want: `[{"op":"replace","path":"/spec/toppings","value":["a","B","c"]}]`,
		},
		"ElementKeepsUnknown": {
			reason: "An unknown field of a changed element stays.",
			object: `{"spec":{"layers":[{"name":"a","quantity":1,"future":9007199254740993},{"name":"b","quantity":1}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers[0].Quantity = 2 }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"future":9007199254740993,"name":"a","quantity":2},{"name":"b","quantity":1}]}]`,
		},
		"ElementRemovedAndChanged": {
			reason: "Elements are matched by their names, so each keeps its own unknown field.",
			object: `{"spec":{"layers":[{"name":"a","future":1},{"name":"b","quantity":1,"future":2}]}}`,
			f: spec(func(s *pizzaSpec) {
				s.Layers = append(s.Layers[1:], layer{Name: "c", Quantity: 3})
				s.Layers[0].Quantity = 5
			}),
			want: `[{"op":"replace","path":"/spec/layers","value":[{"future":2,"name":"b","quantity":5},{"name":"c","quantity":3}]}]`,
		},
		"ElementRenamed": {
			reason: "An element with another name is another element, without the unknown fields of the former one.",
			object: `{"spec":{"layers":[{"name":"Tomato","future":1}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers[0].Name = "tomato" }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"name":"tomato","quantity":0}]}]`,
		},
		"ElementReplaced": {
			reason: "The unknown field of a removed element does not go to an added one.",
			object: `{"spec":{"layers":[{"name":"kept","quantity":1},{"name":"A","secretRef":"topsecret"}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers = append(s.Layers[:1], layer{Name: "B", Quantity: 2}) }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"name":"kept","quantity":1},{"name":"B","quantity":2}]}]`,
		},
		"ElementNamed": {
			reason: "An element that gets its first name is still the same element.",
			object: `{"spec":{"layers":[{"quantity":1,"future":1},{"name":"","quantity":2,"future":2}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers[0].Name, s.Layers[1].Name = "a", "b" }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"future":1,"name":"a","quantity":1},{"future":2,"name":"b","quantity":2}]}]`,
		},
		"ElementUnnamed": {
			reason: "An element that loses its name is another element.",
			object: `{"spec":{"layers":[{"name":"a","quantity":1,"future":1}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers[0].Name = "" }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"name":"","quantity":1}]}]`,
		},
		"ElementsSorted": {
			reason: "A moved element keeps its unknown fields and has its changes.",
			object: `{"spec":{"layers":[{"name":"b","quantity":7,"future":1.0},{"name":"a","quantity":1,"future":2}]}}`,
			f: spec(func(s *pizzaSpec) {
				s.Layers[0], s.Layers[1] = s.Layers[1], s.Layers[0]
				s.Layers[1].Quantity = 8
			}),
			want: `[{"op":"replace","path":"/spec/layers","value":[{"future":2,"name":"a","quantity":1},{"future":1.0,"name":"b","quantity":8}]}]`,
		},
		"ElementNull": {
			reason: "A null element gets a value.",
			object: `{"spec":{"layers":[null,{"name":"b"}]}}`,
			f:      spec(func(s *pizzaSpec) { s.Layers[0].Name = "a" }),
			want:   `[{"op":"replace","path":"/spec/layers","value":[{"name":"a","quantity":0},{"name":"b"}]}]`,
		},
		"ArrayInArray": {
			reason: "A change in a nested array keeps the digits of the other numbers.",
			object: `{"spec":{"grid":[[1,2],[3,9007199254740993]]}}`,
			f:      spec(func(s *pizzaSpec) { s.Grid[1][0] = 4 }),
			want:   `[{"op":"replace","path":"/spec/grid","value":[[1,2],[4,9007199254740993]]}]`,
		},
		"PointerSet": {
			reason: "An empty object behind a pointer has a meaning, so values with such a pointer keep all empty objects.",
			object: `{"spec":{"layers":[{"name":"a"}]}}`,
			f: spec(func(s *pizzaSpec) {
				s.Oven = &oven{Wood: &wood{}}
				s.Extras = map[string]extra{"e": {Box: box{Size: "L"}}}
				s.Layers = append(s.Layers, layer{Name: "b"})
			}),
			want: `[{"op":"add","path":"/spec/extras","value":{"e":{"box":{"size":"L"}}}},{"op":"replace","path":"/spec/layers","value":[{"name":"a"},{"inner":{},"name":"b","quantity":0}]},{"op":"add","path":"/spec/oven","value":{"wood":{}}}]`,
		},
		"EntryOfNothing": {
			reason: "The presence of a map entry has a meaning, so an empty entry is added.",
			object: `{"spec":{}}`,
			f:      spec(func(s *pizzaSpec) { s.Extras = map[string]extra{"e": {}} }),
			want:   `[{"op":"add","path":"/spec/extras","value":{"e":{"box":{}}}}]`,
		},
		"PointerCleared": {
			reason: "A removed object loses its unknown fields.",
			object: `{"spec":{"oven":{"degrees":3,"future":1}}}`,
			f:      spec(func(s *pizzaSpec) { s.Oven = nil }),
			want:   `[{"op":"remove","path":"/spec/oven"}]`,
		},
		"ZeroCleared": {
			reason: "A field that becomes empty is removed; a field that was missing already is not.",
			object: `{"spec":{"box":{"size":"L","future":1}},"status":{"cost":0}}`,
			f:      func(p *pizza) { p.Spec.Box.Size, p.Status.Cost = "", 0 },
			want:   `[{"op":"remove","path":"/spec/box/size"}]`,
		},
		"ZeroSet": {
			reason: "A zero is replaced.",
			object: `{"status":{"cost":0}}`, f: func(p *pizza) { p.Status.Cost = 8.5 },
			want: `[{"op":"replace","path":"/status/cost","value":8.5}]`,
		},
		"Annotation": {
			reason: "The first annotation is added together with the map.",
			object: `{"metadata":{"name":"a"}}`,
			f:      func(p *pizza) { p.Annotations = map[string]string{"x.io/a~b": "1"} },
			want:   `[{"op":"add","path":"/metadata/annotations","value":{"x.io/a~b":"1"}}]`,
		},
		"AnnotationMore": {
			reason: "Keys are escaped in JSON pointers.",
			object: `{"metadata":{"annotations":{"x.io/a":"0","keep":"1"}}}`,
			f: func(p *pizza) {
				p.Annotations["x.io/a~b"] = "<1>"
				delete(p.Annotations, "x.io/a")
			},
			want: `[{"op":"remove","path":"/metadata/annotations/x.io~1a"},{"op":"add","path":"/metadata/annotations/x.io~1a~0b","value":"\u003c1\u003e"}]`,
		},
		"FreeForm": {
			reason: "In a free-form map null has a meaning, and other numbers keep their digits.",
			object: `{"spec":{"custom":{"big":123456789012345678901234567890,"x":{"y":1.0}}}}`,
			f: spec(func(s *pizzaSpec) {
				s.Custom["n"] = nil
				s.Custom["e"] = map[string]any{}
				s.Custom["x"].(map[string]any)["z"] = nil
			}),
			want: `[{"op":"add","path":"/spec/custom/e","value":{}},{"op":"add","path":"/spec/custom/n","value":null},{"op":"add","path":"/spec/custom/x/z","value":null}]`,
		},
		"CaseMatters": {
			reason: "A field whose name differs in case is another field.",
			object: `{"Spec":{"toppings":["x"]}}`, f: toppings("a"),
			want: `[{"op":"add","path":"/spec","value":{"toppings":["a"]}}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patch := patched(t, tc.object, tc.f)
			if diff := cmp.Diff(tc.want, patch); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			want := &pizza{}
			if err := json.Unmarshal([]byte(strings.Replace(tc.object, `"Spec"`, `"other"`, 1)), want); err != nil {
				t.Fatal(err)
			}
			tc.f(want)
			got, err := decode[pizza]([]byte(apply(t, tc.object, patch)))
			if err != nil {
				t.Fatal(err)
			}
			if a, b := encodedText(t, want), encodedText(t, got); a != b {
				t.Errorf("%s\nThe patch gives another object: %s", tc.reason, cmp.Diff(a, b))
			}
		})
	}
}

func encodedText(tb testing.TB, v any) string {
	tb.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(out)
}

// TestPatchOfManyElements reverses a long array.
func TestPatchOfManyElements(t *testing.T) {
	var object strings.Builder
	object.WriteString(`{"spec":{"layers":[`)
	const n = 1000
	for i := range n {
		fmt.Fprintf(&object, `{"name":"l%d","quantity":1,"future":%d},`, i, 9007199254740993+i)
	}
	object.WriteString(`{"name":"last","quantity":1}]}}`)
	reverse := func(p *pizza) {
		for i, j := 0, n-1; i < j; i, j = i+1, j-1 {
			p.Spec.Layers[i], p.Spec.Layers[j] = p.Spec.Layers[j], p.Spec.Layers[i]
		}
		p.Spec.Layers[0].Quantity = 5
	}
	patch := patched(t, object.String(), reverse)
	if ops := strings.Count(patch, `"op"`); ops != 1 {
		t.Errorf("want one operation, got %d", ops)
	}
	got := apply(t, object.String(), patch)
	if !strings.HasPrefix(got, `{"spec":{"layers":[{"future":9007199254741992,"name":"l999","quantity":5},{"future":9007199254741991,"name":"l998","quantity":1}`) {
		t.Errorf("want each element with its unknown field, got %.300s", got)
	}
}

// TestPatchOfManyNames changes the names of all elements.
func TestPatchOfManyNames(t *testing.T) {
	const n = 200
	object := `{"spec":{"layers":[` + strings.Repeat(`{"name":"x","future":1},`, n-1) + `{"name":"x","future":2}]}}`
	patch := patched(t, object, func(p *pizza) {
		for i := range p.Spec.Layers {
			p.Spec.Layers[i].Name = fmt.Sprint("y", i)
		}
	})
	if got := strings.Count(apply(t, object, patch), `"future"`); got != 0 {
		t.Errorf("Renamed elements are new elements without unknown fields: got %d unknown fields", got)
	}
}

// TestPatchOfNamesakes: elements have the same name and different content. After a change, an unchanged element must
// not match another element.
func TestPatchOfNamesakes(t *testing.T) {
	const n = 12
	var text strings.Builder
	text.WriteString(`{"spec":{"layers":[{"name":"x","quantity":1000,"future":1000}`)
	for i := range n {
		fmt.Fprintf(&text, `,{"name":"x","quantity":%d,"future":%d}`, i+1, i+1)
	}
	text.WriteString("]}}")
	object := text.String()
	result := apply(t, object, patched(t, object, func(p *pizza) {
		p.Spec.Layers = append(p.Spec.Layers[1:], p.Spec.Layers[0])
		for i := range n {
			p.Spec.Layers[i].Quantity += 100
		}
	}))
	if !strings.HasPrefix(result, `{"spec":{"layers":[{"future":1,"name":"x","quantity":101},`) ||
		!strings.HasSuffix(result, `{"future":1000,"name":"x","quantity":1000}]}}`) {
		t.Errorf("want each element with its unknown field, got %s", result)
	}
}

// changes are changes that functions of users may make. The fuzzer selects each by a byte.
var changes = []func(*pizza, int){
	func(p *pizza, _ int) { p.Spec.Toppings = nil },
	func(p *pizza, i int) { p.Spec.Toppings = append(p.Spec.Toppings, fmt.Sprint("t", i)) },
	func(p *pizza, _ int) { p.Spec.Toppings = []string{} },
	func(p *pizza, i int) {
		if n := len(p.Spec.Toppings); n > 0 {
			p.Spec.Toppings = append(p.Spec.Toppings[:i%n:i%n], p.Spec.Toppings[i%n+1:]...)
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Toppings); n > 0 {
			p.Spec.Toppings[i%n] = fmt.Sprint("t", i/n)
		}
	},
	func(p *pizza, i int) {
		p.Spec.Layers = append(p.Spec.Layers, layer{Name: fmt.Sprint("l", i%4)})
	},
	func(p *pizza, i int) {
		p.Spec.Layers = append([]layer{{Name: fmt.Sprint("l", i%4), Sub: []layer{{}}}}, p.Spec.Layers...)
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers = append(p.Spec.Layers[:i%n:i%n], p.Spec.Layers[i%n+1:]...)
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[i%n].Quantity = i
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[i%n].Name = fmt.Sprint("l", i%4)
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[0], p.Spec.Layers[i%n] = p.Spec.Layers[i%n], p.Spec.Layers[0]
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			l := &p.Spec.Layers[i%n]
			l.Oven, l.Inner.Size = &oven{Degrees: int64(i), Wood: &wood{}}, "L"
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			l := &p.Spec.Layers[i%n]
			l.Sub = append(l.Sub, layer{Name: "s"}, layer{Quantity: i})
		}
	},
	func(p *pizza, _ int) { p.Spec.Oven = nil },
	func(p *pizza, i int) { p.Spec.Oven = &oven{Degrees: int64(i)} },
	func(p *pizza, i int) { p.Spec.Box.Size = strings.Repeat("x", i%3) },
	func(p *pizza, i int) { p.Spec.Extras = map[string]extra{fmt.Sprint(i % 3): {}} },
	func(p *pizza, i int) { p.Spec.Notes = map[string]string{"a/b~c": fmt.Sprint(i)} },
	func(p *pizza, i int) { p.Spec.Custom = map[string]any{"n": nil, "e": map[string]any{}, "i": int64(i)} },
	func(p *pizza, i int) { p.Spec.Grid = append(p.Spec.Grid, []int64{int64(i)}, nil) },
	func(p *pizza, i int) {
		if n := len(p.Spec.Grid); n > 0 {
			p.Spec.Grid[i%n] = append(p.Spec.Grid[i%n], 7)
		}
	},
	func(p *pizza, i int) { p.Status.Cost = float64(i) / 2 },
	func(p *pizza, _ int) { p.Labels = nil },
	func(p *pizza, i int) { p.Labels = map[string]string{"l": fmt.Sprint(i)} },
}

// FuzzPatch proves three properties for every object and change: the patched object decodes to the function's result,
// the unknown fields stay, and a second run changes nothing.
func FuzzPatch(f *testing.F) {
	f.Add(`{"metadata":{"name":"a"},"spec":null}`, []byte{1, 2})
	f.Add(`{"spec":{"toppings":["a","b","a"],"color":1.0},"unknown":[1e3,-0.0]}`, []byte{3, 0, 4, 5})
	f.Add(`{"spec":{"layers":[{"name":"l1","x":9007199254740993},{"name":"l2","x":1},null,{"name":"l1"}],"oven":{"f":1}}}`, []byte{10, 1, 8, 2, 9, 3, 5, 1})
	f.Add(`{"spec":{"layers":[{"name":"l0","sub":[{"name":"s","x":1}],"inner":null}],"grid":[[1],null],"extras":{"0":null}},"status":{"y":1}}`,
		[]byte{12, 0, 20, 1, 16, 0, 11, 0, 21, 5, 18, 1})
	f.Fuzz(func(t *testing.T, object string, script []byte) {
		start, err := decode[pizza]([]byte(object))
		if err != nil || !plain(object) || len(script) > 16 {
			return
		}
		change := func(p *pizza) {
			for i := 0; i+1 < len(script); i += 2 {
				changes[int(script[i])%len(changes)](p, int(script[i+1]))
			}
		}
		patch := patched(t, object, change)
		result := apply(t, object, patch)
		change(start)
		got, err := decode[pizza]([]byte(result))
		if err != nil {
			t.Fatalf("%s: %v", result, err)
		}
		if want, got := encodedText(t, start), encodedText(t, got); want != got {
			t.Fatalf("The patch %s gives another object:\n%s", patch, cmp.Diff(want, got))
		}
		if again := patched(t, result, func(p *pizza) { *p = *start }); again != "" {
			t.Fatalf("want no second patch, got %s after %s", again, patch)
		}
		if once := patched(t, object, change); once != patch {
			t.Fatalf("want one answer, got %s and %s", patch, once)
		}
		wantAtRoot(t, object, result)
	})
}

// plain reports whether an object has no duplicate keys, like all objects of API servers.
func plain(object string) bool {
	decoder := json.NewDecoder(strings.NewReader(object))
	var tokens func() bool
	tokens = func() bool {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		open, ok := token.(json.Delim)
		if !ok {
			return true
		}
		seen := map[string]bool{}
		for decoder.More() {
			if open == '{' {
				key, err := decoder.Token()
				if err != nil {
					return false
				}
				name, _ := key.(string)
				if seen[name] || strings.ContainsRune(name, '\ufffd') {
					return false
				}
				seen[name] = true
			}
			if !tokens() {
				return false
			}
		}
		_, err = decoder.Token()
		return err == nil
	}
	return tokens() && !strings.ContainsRune(object, '\ufffd')
}

// wantAtRoot fails the test if an unknown member of the object or of its spec has changed, even in one digit of a
// number.
func wantAtRoot(t *testing.T, before, after string) {
	t.Helper()
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if json.Unmarshal([]byte(before), &was) != nil || json.Unmarshal([]byte(after), &is) != nil {
		t.Fatal("The object before or after is no JSON object.")
	}
	known := fieldsOf(reflect.TypeFor[pizza]())
	for key, v := range was {
		if !known[key] && compacted(t, v) != compacted(t, is[key]) {
			t.Fatalf("Unknown field %q: want %s, got %s", key, v, is[key])
		}
	}
	var specWas, specIs map[string]json.RawMessage
	if json.Unmarshal(was["spec"], &specWas) != nil || len(specWas) == 0 || json.Unmarshal(is["spec"], &specIs) != nil {
		return
	}
	known = fieldsOf(reflect.TypeFor[pizzaSpec]())
	for key, v := range specWas {
		if !known[key] && compacted(t, v) != compacted(t, specIs[key]) {
			t.Fatalf("Unknown field spec.%q: want %s, got %s", key, v, specIs[key])
		}
	}
}

func fieldsOf(of reflect.Type) map[string]bool {
	out := map[string]bool{"kind": true, "apiVersion": true}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		out[name] = true
	}
	return out
}

func compacted(t *testing.T, v json.RawMessage) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, v); err != nil {
		t.Fatalf("%q: %v", v, err)
	}
	return out.String()
}

// TestPatchOfManyMembers changes some members of a wide object.
func TestPatchOfManyMembers(t *testing.T) {
	notes := map[string]string{}
	for i := range 100 {
		notes[fmt.Sprintf("n%02d", i)] = "1"
	}
	object := `{"spec":{"notes":` + encodedText(t, notes) + `}}`
	patch := patched(t, object, func(p *pizza) {
		p.Spec.Notes["n15"], p.Spec.Notes["n99"], p.Spec.Notes["x"] = "2", "3", "4"
		delete(p.Spec.Notes, "n50")
	})
	want := `[{"op":"replace","path":"/spec/notes/n15","value":"2"},{"op":"remove","path":"/spec/notes/n50"},` +
		`{"op":"replace","path":"/spec/notes/n99","value":"3"},{"op":"add","path":"/spec/notes/x","value":"4"}]`
	if diff := cmp.Diff(want, patch); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	twice := `{"spec":{"box":{"size":"S"},"box":{"size":"M"}}}`
	if got := patched(t, twice, func(p *pizza) { p.Spec.Box.Size = "L" }); got != `[{"op":"replace","path":"/spec/box/size","value":"L"}]` {
		t.Errorf("want the last of two equal keys to count, got %s", got)
	}
}

// TestPatchOfPointers covers arrays with null elements. A null element is not a missing element.
func TestPatchOfPointers(t *testing.T) {
	type holder struct {
		Ovens []*oven `json:"ovens"`
	}
	const object = `{"ovens":[{"name":"a","future":1},{"name":"b","future":2},null]}`
	got := patched(t, object, func(h *holder) { h.Ovens[0], h.Ovens[2] = nil, &oven{} })
	want := `[{"op":"replace","path":"/ovens","value":[null,{"future":2,"name":"b"},{}]}]`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// picky is a type whose encoding fails for some values, and whose decoding fails without a name.
type picky struct {
	Name string
	oven *oven
}

func (p *picky) MarshalJSON() ([]byte, error) {
	if p.Name == "secret" {
		return nil, errors.New("it is a secret")
	}
	return fmt.Appendf(nil, `{"name":%q,"nothing":null,"oven":%s}`, p.Name, encodedOven(p.oven)), nil
}

func encodedOven(o *oven) string {
	if o == nil {
		return "{}"
	}
	return `{"wood":{}}`
}

func (p *picky) UnmarshalJSON(text []byte) error {
	var read struct {
		Name *string `json:"name"`
	}
	if err := json.Unmarshal(text, &read); err != nil || read.Name == nil {
		return errors.New("it has no name")
	}
	p.Name = *read.Name
	return nil
}

func TestPatchOfPickyTypes(t *testing.T) {
	rule := Default("v1", "Picky", func(_ context.Context, r *Request, p *picky) error {
		p.Name, p.oven = r.Name, &oven{}
		return nil
	})
	cases := map[string]struct{ object, name, patch, denied, err string }{
		"Changed": {
			object: `{"name":"a","future":1}`, name: "b",
			patch: `[{"op":"replace","path":"/name","value":"b"},{"op":"add","path":"/oven","value":{"wood":{}}}]`,
		},
		"NoName":         {object: `{}`, denied: "reading the object: it has no name"},
		"NotEncoded":     {object: `{"name":"secret"}`, err: "encoding the object: json: error calling MarshalJSON for type *admission.picky: it is a secret"},
		"NotEncodedThen": {object: `{"name":"a"}`, name: "secret", err: "encoding the changed object: json: error calling MarshalJSON for type *admission.picky: it is a secret"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			response, err := rule.answer(t.Context(), &Request{Operation: Create, Name: tc.name, Object: []byte(tc.object)})
			if err != nil {
				response = &Response{}
			}
			if diff := cmp.Diff([]string{tc.patch, tc.denied, tc.err}, []string{string(response.Patch), said(response.Err), said(err)}); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
