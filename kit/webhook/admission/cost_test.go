package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// loose is a type whose objects let the user decide the amount of work.
type loose struct {
	L   []*piece          `json:"l,omitempty"`
	M   map[string]*piece `json:"m,omitempty"`
	Any any               `json:"any,omitempty"`
	O   *struct{}         `json:"o,omitempty"`
	G   [][]*piece        `json:"g,omitempty"`
	N   *nested           `json:"n,omitempty"`
}

type piece struct {
	Name string   `json:"name,omitempty"`
	V    int      `json:"v,omitempty"`
	Nul  []string `json:"nul"`
	Sec  *wood    `json:"sec,omitempty"`
}

// nested has any depth, in arrays whose elements move.
type nested struct {
	Name string    `json:"name,omitempty"`
	In   []*nested `json:"in,omitempty"`
}

func repeated(n int, element func(i int) string) string {
	out := make([]string, n)
	for i := range out {
		out[i] = element(i)
	}
	return strings.Join(out, ",")
}

// hostile are objects of about the given size in bytes, each with the change of a harmless function.
var hostile = map[string]struct {
	object func(size int) string
	f      func(*loose)
}{
	"Elements": {
		object: func(size int) string {
			return `{"l":[` + repeated(size/25, func(i int) string { return fmt.Sprintf(`{"name":"n%d","nul":[]}`, i) }) + "]}"
		},
		f: func(o *loose) {
			for _, p := range o.L {
				p.Sec = &wood{}
			}
		},
	},
	"Entries": {
		object: func(size int) string {
			return `{"m":{` + repeated(size/20, func(i int) string { return fmt.Sprintf(`"k%d":{"nul":[]}`, i) }) + "}}"
		},
		f: func(o *loose) {
			for _, p := range o.M {
				p.Sec, p.Nul = &wood{}, nil
			}
		},
	},
	"Deep": {
		object: func(size int) string {
			const depth = 900
			return `{"any":` + strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat("}", depth+1)
		},
		f: func(o *loose) { o.O = &struct{}{} },
	},
	"LongPlace": {
		object: func(size int) string {
			return `{"any":{"` + strings.Repeat("k", size/2) + `":[` + repeated(size/20, func(i int) string { return fmt.Sprintf(`{"name":"%d"}`, i) }) + "]}}"
		},
		f: func(o *loose) {
			for _, v := range o.Any.(map[string]any) {
				for _, element := range v.([]any) {
					element.(map[string]any)["new"] = map[string]any{}
				}
			}
		},
	},
	"DeepPlace": {
		object: func(size int) string {
			const depth = 900
			return `{"any":` + strings.Repeat(`{"a":`, depth) + "[" + repeated(size/20, func(i int) string { return fmt.Sprintf(`{"name":"%d"}`, i) }) +
				"]" + strings.Repeat("}", depth+1)
		},
		f: func(o *loose) {
			in := o.Any
			for {
				deeper, ok := in.(map[string]any)
				if !ok {
					break
				}
				in = deeper["a"]
			}
			for _, element := range in.([]any) {
				element.(map[string]any)["new"] = nil
			}
		},
	},
	"Nameless": {
		object: func(size int) string {
			array := "[" + repeated(127, func(i int) string { return fmt.Sprintf(`{"v":%d,"nul":[]}`, i+1) }) + "]"
			return `{"g":[` + repeated(size/len(array), func(int) string { return array }) + "]}"
		},
		f: func(o *loose) {
			for i, array := range o.G {
				for _, p := range array {
					p.V += 1000 + i
				}
			}
		},
	},
	"Moving": {
		object: func(size int) string {
			const depth = 300
			room := size / depth
			return `{"n":` + strings.Repeat(fmt.Sprintf(`{"in":[{"name":"%s"},{"name":"moves"},`, strings.Repeat("x", room)), depth) + "null" +
				strings.Repeat("]}", depth) + "}"
		},
		f: func(o *loose) {
			for n := o.N; n != nil; {
				next := n.In[2]
				n.In[0], n.In[1], n.In[2] = n.In[2], n.In[0], n.In[1]
				if n = next; n != nil {
					n.Name = "deep"
				}
			}
		},
	},
	"Nulls": {
		object: func(size int) string {
			return `{"l":[` + repeated(size/20, func(i int) string { return fmt.Sprintf(`{"v":%d,"future":1}`, i+1) }) + "]}"
		},
		f: func(o *loose) {
			for i, p := range o.L {
				if p.V += 1000; i%2 == 0 {
					o.L[i] = nil
				}
			}
		},
	},
}

// patchAndWork returns the patch of an object, and the work without the bounded comparison of pairs.
func patchAndWork(ctx context.Context, t *testing.T, object string, f func(*loose)) (patch []byte, work int) {
	t.Helper()
	obj, err := decode[loose]([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	before := encodedText(t, obj)
	f(obj)
	after := encodedText(t, obj)
	d := newDiffer(again[loose], ctx.Err)
	patch, err = d.difference([]byte(object), []byte(before), []byte(after))
	if err != nil {
		t.Fatal(err)
	}
	if d.compared > mostCompared {
		t.Errorf("want at most %d pairs compared, got %d", mostCompared, d.compared)
	}
	if most := 3*len(object) + 3*len(after); len(patch) > most {
		t.Errorf("want a patch of at most %d bytes, got %d", most, len(patch))
	}
	return patch, d.work - d.compared
}

// TestCost covers objects that keep the webhook busy on purpose. An object of ten times the size takes ten times the
// work. Quadratic work would exceed the time limit, which is ample even for a slow machine.
func TestCost(t *testing.T) {
	for name, tc := range hostile {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			last := 0
			sizes := []int{20_000, 200_000}
			if name == "Elements" || name == "Deep" {
				sizes = append(sizes, 1_000_000) // BenchmarkHostile covers this size for all objects.
			}
			for _, size := range sizes {
				object := tc.object(size)
				patch, work := patchAndWork(ctx, t, object, tc.f)
				if most := 2*len(object) + 20_000; work > most {
					t.Errorf("Of %d bytes: want at most %d values looked at, got %d", len(object), most, work)
				}
				if last > 0 && work > 12*last {
					t.Errorf("Of %d bytes: %d values were looked at, and %d before", len(object), work, last)
				}
				last = work
				if size > 20_000 {
					continue // The library that applies the patch has limits of depth and width.
				}
				want, err := decode[loose]([]byte(object))
				if err != nil {
					t.Fatal(err)
				}
				tc.f(want)
				got, err := decode[loose]([]byte(apply(t, object, string(patch))))
				if err != nil {
					t.Fatal(err)
				}
				if encodedText(t, want) != encodedText(t, got) {
					t.Errorf("The patch of %d bytes gives another object.", len(object))
				}
			}
		})
	}
}

// TestCostOfNames: no pairs are compared if every element has a name.
func TestCostOfNames(t *testing.T) {
	object := `{"l":[` + repeated(100, func(i int) string { return fmt.Sprintf(`{"name":"n%d","nul":[]}`, i) }) + "]}"
	d := newDiffer(again[loose], t.Context().Err)
	if _, err := d.difference([]byte(object), []byte(object), []byte(strings.ReplaceAll(object, "[]", "[7]"))); err != nil || d.compared > 0 {
		t.Errorf("got %d pairs: %v", d.compared, err)
	}
}

// TestNobodyWaits: the patch is abandoned when the API server stops waiting.
func TestNobodyWaits(t *testing.T) {
	gone := errors.New("gone")
	for name, tc := range hostile {
		if name == "Deep" {
			continue // This object has too few values for a second call of ended.
		}
		t.Run(name, func(t *testing.T) {
			obj, err := decode[loose]([]byte(tc.object(40_000)))
			if err != nil {
				t.Fatal(err)
			}
			before := encodedText(t, obj)
			tc.f(obj)
			after := encodedText(t, obj)
			for leaves := 1; ; leaves++ {
				asked := 0
				d := newDiffer(again[loose], func() error {
					if asked++; asked == leaves {
						return gone
					}
					return nil
				})
				patch, err := d.difference([]byte(before), []byte(before), []byte(after))
				if asked < leaves {
					break
				}
				if !errors.Is(err, gone) || patch != nil || asked > leaves {
					t.Fatalf("Asked %d times: got %.100s and %v", asked, patch, err)
				}
			}
		})
	}
}

// TestEndedContext is the same through a rule, which returns an error and no answer.
func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rule := Default("v1", "Loose", func(_ context.Context, _ *Request, o *loose) error {
		hostile["Elements"].f(o)
		cancel()
		return nil
	})
	object := hostile["Elements"].object(200_000)
	if response, err := rule.answer(ctx, &Request{Operation: Create, Object: []byte(object)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v and %v", response, err)
	}
}

// TestLongLists has too many elements for the comparison of all pairs. The patched object is the function's result, and
// no unknown field is invented or duplicated.
func TestLongLists(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(7, seed))
		names := 1 + random.IntN(400)
		element := func(i int) string {
			switch random.IntN(8) {
			case 0:
				return "null"
			case 1:
				return fmt.Sprintf(`{"v":%d,"future":%d}`, random.IntN(5), i)
			default:
				return fmt.Sprintf(`{"name":"n%d","v":%d,"nul":null,"future":%d}`, random.IntN(names), random.IntN(5), i)
			}
		}
		object := `{"l":[` + repeated(120+random.IntN(60), element) + "]}"
		f := func(o *loose) {
			random := rand.New(rand.NewPCG(8, seed))
			for range 1 + random.IntN(200) {
				i, j := random.IntN(len(o.L)), random.IntN(len(o.L))
				switch random.IntN(6) {
				case 0:
					o.L[i] = nil
				case 1:
					o.L[i], o.L[j] = o.L[j], o.L[i]
				case 2:
					o.L = slices.Delete(o.L, i, i+1)
				case 3:
					o.L = slices.Insert(o.L, i, &piece{Name: fmt.Sprint("n", random.IntN(names)), Sec: &wood{}})
				default:
					if o.L[i] != nil {
						o.L[i].V += 1000
					}
				}
			}
		}
		want := ""
		patch := patched(t, object, func(o *loose) {
			f(o)
			want = encodedText(t, o)
		})
		result := apply(t, object, patch)
		got, err := decode[loose]([]byte(result))
		if err != nil {
			t.Fatal(err)
		}
		if got := encodedText(t, got); got != want {
			t.Fatalf("Seed %d: of %s\nthe patch %s\nmakes %s\nwant  %s", seed, object, patch, got, want)
		}
		was, is := futures(object), futures(result)
		if slices.ContainsFunc(is, func(s string) bool { return !slices.Contains(was, s) }) || len(slices.Compact(is)) != len(futures(result)) {
			t.Fatalf("Seed %d: of %s\nthe patch %s\nmakes up an unknown field: %s", seed, object, patch, result)
		}
	}
}

// TestManyAndNull sets an element to null, together with so many other changes that the patch replaces the whole array.
func TestManyAndNull(t *testing.T) {
	for _, n := range []int{128, 129, 400} {
		object := `{"l":[` + repeated(n, func(i int) string { return fmt.Sprintf(`{"v":%d,"future":%d}`, i+1, i) }) + "]}"
		result := apply(t, object, patched(t, object, func(o *loose) {
			for _, p := range o.L {
				p.V += 1000
			}
			slices.Reverse(o.L)
			o.L[0] = nil
		}))
		if !json.Valid([]byte(result)) || !strings.HasPrefix(result, `{"l":[null,`) {
			t.Errorf("%d elements: got %.100s", n, result)
		}
	}
}

// BenchmarkHostile measures the cost of a hostile object of 1 MB.
func BenchmarkHostile(b *testing.B) {
	for name, tc := range hostile {
		object := []byte(tc.object(1_000_000))
		rule := Default("v1", "Loose", func(_ context.Context, _ *Request, o *loose) error {
			tc.f(o)
			return nil
		})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(object)))
			for b.Loop() {
				if _, err := rule.answer(b.Context(), &Request{Operation: Create, Object: object}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
