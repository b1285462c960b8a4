package generate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestShrink(t *testing.T) {
	contains := func(parts ...string) func(map[string]any) bool {
		return func(obj map[string]any) bool {
			raw, err := json.Marshal(obj)
			for _, part := range parts {
				if err != nil || !strings.Contains(string(raw), part) {
					return false
				}
			}
			return true
		}
	}
	cases := map[string]struct {
		reason string
		obj    string
		fails  func(map[string]any) bool
		want   string
	}{
		"MembersGo": {
			reason: "Fields that do not affect the failure are removed.",
			obj:    `{"a":1,"b":{"c":[1,2,{"bad":true,"good":true}],"d":"text"},"e":null}`,
			fails:  contains(`"bad"`),
			want:   `{"b":{"c":[{"bad":null}]}}`,
		},
		"ElementsGo": {
			reason: "Only the relevant elements of a long list stay.",
			obj:    `{"l":["a","b","c","d","e","f","g","h","i"]}`,
			fails:  contains(`"c"`, `"h"`),
			want:   `{"l":["c","h"]}`,
		},
		"TextsGetShorter": {
			reason: "A text is shortened as far as possible.",
			obj:    `{"s":"a long text with a needle in it"}`,
			fails:  contains(`needle`),
			want:   `{"s":"needle"}`,
		},
		"EqualTextsStayEqual": {
			reason: "Two texts that must be equal are shortened together.",
			obj:    `{"a":"needle","l":["other",{"b":"needle"}]}`,
			fails: func(obj map[string]any) bool {
				l, ok := obj["l"].([]any)
				if !ok || len(l) == 0 {
					return false
				}
				m, _ := l[len(l)-1].(map[string]any)
				a, ok := obj["a"].(string)
				return ok && a != "" && a == m["b"]
			},
			want: `{"a":"a","l":[{"b":"a"}]}`,
		},
		"LongListsGetShort": {
			reason: "Two relevant elements of a very long list are found quickly.",
			obj:    `{"l":[` + strings.Repeat(`"hay",`, 2000) + `"c",` + strings.Repeat(`"hay",`, 2000) + `"h"]}`,
			fails:  contains(`"c"`, `"h"`),
			want:   `{"l":["c","h"]}`,
		},
		"ManyElementsGetAlike": {
			reason: "If only the number of elements matters, all elements become the same.",
			obj:    `{"l":["a long text",` + strings.Repeat(`"some","other",`, 20) + `"text"]}`,
			fails: func(obj map[string]any) bool {
				l, ok := obj["l"].([]any)
				for _, v := range l {
					if text, _ := v.(string); text == "" {
						return false
					}
				}
				return ok && len(l) > 17
			},
			want: `{"l":[` + strings.Repeat(`"a",`, 17) + `"a"]}`,
		},
		"NumbersGetSmaller": {
			reason: "The smallest failing number is the easiest to understand.",
			obj:    `{"n":9007199254740993}`,
			fails: func(obj map[string]any) bool {
				n, ok := obj["n"].(int64)
				return ok && n > 100
			},
			want: `{"n":101}`,
		},
		"NegativeNumbers": {
			reason: "Negative numbers come closer to zero, too.",
			obj:    `{"n":-9223372036854775808}`,
			fails: func(obj map[string]any) bool {
				n, ok := obj["n"].(int64)
				return ok && n < -7
			},
			want: `{"n":-8}`,
		},
		"NothingIsLeft": {
			reason: "An object that always fails becomes empty.",
			obj:    `{"a":{"b":[1]}}`,
			fails:  func(map[string]any) bool { return true },
			want:   `{}`,
		},
		"ItDoesNotFail": {
			reason: "An object without a failure is not shrunk.",
			obj:    `{"a":1}`,
			fails:  func(map[string]any) bool { return false },
			want:   `{"a":1}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := parse(t, tc.obj)
			if diff := cmp.Diff(parse(t, tc.want), Shrink(obj, tc.fails, never)); diff != "" {
				t.Errorf("%s\nShrink(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(parse(t, tc.obj), obj); diff != "" {
				t.Errorf("Shrink() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func never() bool { return false }

// TestShrinkStops checks that Shrink tries nothing after the function stop has returned true. Even for a large object,
// it calls the function stop only a few more times.
func TestShrinkStops(t *testing.T) {
	obj := map[string]any{}
	for i := range 2000 {
		obj[fmt.Sprint("k", i)] = map[string]any{"text": "some text", "list": slices.Repeat([]any{"x"}, 40)}
	}
	for _, most := range []int{1, 2, 50} {
		asked, after := 0, 0
		got := Shrink(obj, func(map[string]any) bool {
			asked++
			return true
		}, func() bool {
			if asked >= most {
				after++
			}
			return asked >= most
		})
		if asked != most || after > 10 {
			t.Errorf("Shrink(): it was tried %d times, want %d, and the end was looked at %d times after that", asked, most, after)
		}
		if smaller := weight(got) < weight(obj); smaller != (most > 1) {
			t.Errorf("Shrink(): after %d tries the weight is %d, and was %d", most, weight(got), weight(obj))
		}
	}
}

func TestShrinkFloats(t *testing.T) {
	for _, n := range []float64{1, 0.5, -2.5, 1e300, -1e300, math.MaxInt64, 1e-300} {
		got := Shrink(map[string]any{"n": n}, func(obj map[string]any) bool {
			_, ok := obj["n"].(float64)
			return ok
		}, never)
		if diff := cmp.Diff(map[string]any{"n": 0.0}, got); diff != "" {
			t.Errorf("Shrink(%v): -want, +got:\n%s", n, diff)
		}
	}
}

// weight is a measure of the size of a value. Shrink must not increase it.
func weight(v any) int {
	switch v := v.(type) {
	case map[string]any:
		sum := 1
		for _, inner := range v {
			sum += 1 + weight(inner)
		}
		return sum
	case []any:
		sum := 1
		for _, inner := range v {
			sum += 1 + weight(inner)
		}
		return sum
	case string:
		return len([]rune(v))
	default:
		return 0
	}
}

// FuzzShrink checks Shrink for any object and any function fails. Shrink must have called the function fails for its
// result. The number of calls is limited, and the result is deterministic and never larger than the object.
func FuzzShrink(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed*3)
	}
	f.Fuzz(func(t *testing.T, seed, salt uint64) {
		v := &values{choices: choices{source(seed)}, depth: 5}
		obj := map[string]any{"a": v.anything(), "b": v.anything(), "c": v.anything()}
		before := runtime.DeepCopyJSON(obj)
		calls := 0
		fails := func(o map[string]any) bool {
			calls++
			text := fmt.Sprint(o)
			sum := salt
			for _, r := range text {
				sum = sum*31 + uint64(r)
			}
			return cmp.Equal(o, before) || sum%3 > 0
		}
		got := Shrink(obj, fails, never)
		if calls > patience {
			t.Errorf("Shrink() asked %d times, want %d at most", calls, patience)
		}
		if !fails(got) {
			t.Errorf("Shrink() = %v, which does not fail", got)
		}
		if weight(got) > weight(before) {
			t.Errorf("Shrink() made %v of %v", got, before)
		}
		if diff := cmp.Diff(before, obj); diff != "" {
			t.Errorf("Shrink() changed its input: -before, +after:\n%s", diff)
		}
		if diff := cmp.Diff(got, Shrink(obj, fails, never)); diff != "" {
			t.Errorf("Shrink() twice: -first, +second:\n%s", diff)
		}
	})
}
