package admission

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wild generates pizzas with unknown fields at all places. The value of each unknown field is a distinct number that a
// float64 cannot represent.
type wild struct {
	*rand.Rand

	unknown int64
	// apart is true if each layer has a distinct name.
	apart  bool
	layers int
}

func (w *wild) object(fields ...string) string {
	fields = slices.DeleteFunc(fields, func(s string) bool { return s == "" || w.IntN(5) == 0 })
	if w.IntN(2) == 0 {
		w.unknown++
		fields = append(fields, fmt.Sprintf(`"future":%d`, 9007199254740993+2*w.unknown))
	}
	w.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return "{" + strings.Join(fields, ", ") + "}"
}

func (w *wild) field(name, value string) string {
	if w.IntN(8) == 0 {
		value = "null"
	}
	return fmt.Sprintf("%q:%s", name, value)
}

func (w *wild) array(most int, element func() string) string {
	elements := make([]string, w.IntN(most+1))
	for i := range elements {
		elements[i] = element()
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func (w *wild) layer() string {
	if w.IntN(10) == 0 {
		return "null"
	}
	name := w.field("name", fmt.Sprintf(`"l%d"`, w.IntN(4)))
	if w.apart {
		w.layers++
		name = ""
	}
	out := w.object(name, w.field("quantity", fmt.Sprint(w.IntN(3))), w.field("oven", w.oven()),
		w.field("inner", w.object(`"size":"S"`)), w.field("sub", w.array(2, func() string { return w.object(`"name":"s"`) })))
	if w.apart {
		out = fmt.Sprintf(`{"name":"layer%d"%s%s`, w.layers, strings.Repeat(",", min(1, len(out)-2)), out[1:])
	}
	return out
}

func (w *wild) oven() string {
	return w.object(w.field("degrees", fmt.Sprint(w.IntN(3))), w.field("wood", w.object()))
}

func (w *wild) pizza() string {
	topping := func() string { return fmt.Sprintf(`"t%d"`, w.IntN(4)) }
	spec := w.object(
		w.field("toppings", w.array(4, topping)), w.field("layers", w.array(4, w.layer)), w.field("oven", w.oven()), w.field("box", w.object(`"size":"S"`)),
		w.field("extras", fmt.Sprintf(`{"0":%s,"1":null}`, w.object(w.field("box", w.object())))), w.field("notes", `{"n":"1"}`),
		w.field("custom", `{"any":[1.5,null,{}]}`), w.field("grid", w.array(3, func() string { return w.array(2, func() string { return "1" }) })),
	)
	return w.object(`"apiVersion":"v1"`, `"kind":"Pizza"`, w.field("metadata", w.object(`"name":"a"`, `"labels":{"l":"1"}`)), w.field("spec", spec),
		w.field("status", w.object(`"cost":1e0`)))
}

// keeping are changes that remove no part of a pizza.
var keeping = []func(*pizza, int){
	func(p *pizza, i int) { p.Spec.Toppings = append(p.Spec.Toppings, fmt.Sprint("t", i)) },
	func(p *pizza, i int) { p.Spec.Layers = append(p.Spec.Layers, layer{Name: fmt.Sprint("l", i%5)}) },
	func(p *pizza, i int) {
		p.Spec.Layers = append([]layer{{Name: fmt.Sprint("l", i%5), Sub: []layer{{}}}}, p.Spec.Layers...)
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[i%n].Quantity = i
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[0], p.Spec.Layers[i%n] = p.Spec.Layers[i%n], p.Spec.Layers[0]
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[i%n].Oven = &oven{Degrees: int64(i), Wood: &wood{}}
			p.Spec.Layers[i%n].Inner.Size = "L"
		}
	},
	func(p *pizza, i int) {
		if n := len(p.Spec.Layers); n > 0 {
			p.Spec.Layers[i%n].Sub = append(p.Spec.Layers[i%n].Sub, layer{Name: "s"}, layer{Quantity: i})
		}
	},
	func(p *pizza, i int) { p.Spec.Oven = &oven{Degrees: int64(i), Wood: &wood{}} },
	func(p *pizza, i int) { p.Spec.Box.Size = strings.Repeat("x", i%3) },
	func(p *pizza, i int) { p.Spec.Notes = map[string]string{"a/b~c": fmt.Sprint(i)} },
	func(p *pizza, i int) { p.Spec.Custom = map[string]any{"n": nil, "e": map[string]any{}, "i": int64(i)} },
	func(p *pizza, i int) { p.Spec.Grid = append(p.Spec.Grid, []int64{int64(i)}, nil) },
	func(p *pizza, i int) { p.Status.Cost = float64(i) / 2 },
	func(p *pizza, _ int) { p.Labels = nil },
	func(p *pizza, i int) { p.Labels = map[string]string{"l": fmt.Sprint(i)} },
}

var future = regexp.MustCompile(`"future":\d+`)

func futures(object string) []string {
	out := future.FindAllString(object, -1)
	slices.Sort(out)
	return out
}

// TestNothingIsLost tests many pizzas and changes. It verifies that the patched object is the result of the function,
// that a second run changes nothing, and that every unknown field stays unless the change removed its parent.
func TestNothingIsLost(t *testing.T) {
	for seed := range uint64(3_000) {
		lossless := seed%2 == 0
		w := &wild{Rand: rand.New(rand.NewPCG(6, seed)), apart: lossless}
		object := w.pizza()
		choices := changes
		if lossless {
			choices = keeping
		}
		type step struct {
			change func(*pizza, int)
			with   int
		}
		script := make([]step, 1+w.IntN(4))
		for i := range script {
			script[i] = step{choices[w.IntN(len(choices))], w.IntN(12)}
		}
		want, left := "", pizza{}
		patch := patched(t, object, func(p *pizza) {
			for _, s := range script {
				s.change(p, s.with)
			}
			want, left = encodedText(t, p), *p
		})
		result := apply(t, object, patch)
		got, err := decode[pizza]([]byte(result))
		if err != nil {
			t.Fatalf("Seed %d: %s: %v", seed, result, err)
		}
		if got := encodedText(t, got); got != want {
			t.Fatalf("Seed %d: of %s\nthe patch %s\nmakes %s\nwant  %s", seed, object, patch, got, want)
		}
		if again := patched(t, result, func(p *pizza) { *p = left }); again != "" {
			t.Fatalf("Seed %d: of %s\na second run must change nothing: got %s", seed, result, again)
		}
		was, is := futures(object), futures(result)
		if lossless && !slices.Equal(was, is) {
			t.Fatalf("Seed %d: of %s\nthe patch %s\nmakes %s", seed, object, patch, result)
		}
		if slices.ContainsFunc(is, func(s string) bool { return !slices.Contains(was, s) }) || len(slices.Compact(is)) != len(futures(result)) {
			t.Fatalf("Seed %d: of %s\nthe patch %s\nadds an unknown field: %s", seed, object, patch, result)
		}
	}
}
