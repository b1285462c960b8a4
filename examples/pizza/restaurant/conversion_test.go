package restaurant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/convert"
	"refract.dev/examples/pizza/v1alpha1"
	"refract.dev/examples/pizza/v1beta1"
)

const (
	alpha = "restaurant.programming-kubernetes.info/v1alpha1"
	beta  = "restaurant.programming-kubernetes.info/v1beta1"
)

func engine(tb testing.TB) *convert.Engine {
	tb.Helper()
	e, err := convert.New(Resource())
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// pizza returns the JSON of a pizza with this spec.
func pizza(version, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p","namespace":"n"},"spec":%s}`, version, spec)
}

func TestConversion(t *testing.T) {
	cases := map[string]struct {
		reason     string
		from, spec string
		to, want   string
	}{
		"Margherita":   {"The pizza of the book is converted.", alpha, `{"toppings":["mozzarella","tomato"]}`, beta, `{"toppings":[{"name":"mozzarella","quantity":1},{"name":"tomato","quantity":1}]}`},
		"AndBack":      {"The pizza of the book is converted back.", beta, `{"toppings":[{"name":"mozzarella","quantity":1},{"name":"tomato","quantity":1}]}`, alpha, `{"toppings":["mozzarella","tomato"]}`},
		"ExtraCheese":  {"A repeated topping has a quantity.", alpha, `{"toppings":["a","b","a"]}`, beta, `{"toppings":[{"name":"a","quantity":2},{"name":"b","quantity":1}]}`},
		"Expanded":     {"A quantity repeats the name.", beta, `{"toppings":[{"name":"a","quantity":2},{"name":"b","quantity":1}]}`, alpha, `{"toppings":["a","a","b"]}`},
		"SameTwice":    {"Several entries of one topping are added.", beta, `{"toppings":[{"name":"t","quantity":1},{"name":"t","quantity":2}]}`, alpha, `{"toppings":["t","t","t"]}`},
		"NoQuantity":   {"An absent quantity is one, which the book's conversion lost.", beta, `{"toppings":[{"name":"tomato"}]}`, alpha, `{"toppings":["tomato"]}`},
		"NullQuantity": {"A null quantity is one.", beta, `{"toppings":[{"name":"tomato","quantity":null}]}`, alpha, `{"toppings":["tomato"]}`},
		"ZeroQuantity": {"A quantity of 0 is one, which the book's conversion lost. The schema rejects it.", beta, `{"toppings":[{"name":"tomato","quantity":0}]}`, alpha, `{"toppings":["tomato"]}`},
		"Empty":        {"An empty list stays empty; the book's conversion made it null.", alpha, `{"toppings":[]}`, beta, `{"toppings":[]}`},
		"EmptyBack":    {"An empty list stays empty in the other direction, too.", beta, `{"toppings":[]}`, alpha, `{"toppings":[]}`},
		"Null":         {"A null stays null.", alpha, `{"toppings":null}`, beta, `{"toppings":null}`},
		"Absent":       {"An absent list stays absent.", alpha, `{}`, beta, `{}`},
		"Escapes":      {"Names may have escapes.", alpha, `{"toppings":["j\u0061lape\u00f1o","\"<&>"]}`, beta, `{"toppings":[{"name":"jalapeño","quantity":1},{"name":"\"\u003c\u0026\u003e","quantity":1}]}`},
		"Unknown":      {"Unknown fields stay; the book's conversion lost them.", alpha, `{"later":9007199254740993,"toppings":["a"],"float":1.0}`, beta, `{"later":9007199254740993,"toppings":[{"name":"a","quantity":1}],"float":1.0}`},
		"SameVersion":  {"An object in the target version stays unchanged; the book's conversion rejected it.", beta, `{"toppings":[{"name":"tomato"}]}`, beta, `{"toppings":[{"name":"tomato"}]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := pizza(tc.from, tc.spec)
			before := bytes.Clone(in)
			got, err := engine(t).Convert(in, tc.to)
			if err != nil {
				t.Fatalf("%s\nConvert(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(string(pizza(tc.to, tc.want)), string(got)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(string(before), string(in)); diff != "" {
				t.Errorf("%s\nConvert() changed its input: -before, +after:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestConversionRefused verifies that an invalid pizza is rejected at once, with a reason.
func TestConversionRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		from   string
		spec   string
		want   string
	}{
		"Bomb":         {"The large quantity of the book is rejected.", beta, `{"toppings":[{"name":"a","quantity":1000000000}]}`, "spec.toppings[0].quantity: 1000000000 exceeds 1000"},
		"Largest":      {"The sum of the quantities does not overflow.", beta, `{"toppings":[{"name":"a","quantity":1000},{"name":"b","quantity":9223372036854775807}]}`, "spec.toppings[1].quantity: 9223372036854775807 exceeds 1000"},
		"InAll":        {"All toppings count together.", beta, `{"toppings":[{"name":"a","quantity":600},{"name":"b","quantity":401}]}`, "spec.toppings[1].quantity: 401 more toppings than the 600 before exceed 1000"},
		"Negative":     {"A negative quantity is rejected, as by the schema.", beta, `{"toppings":[{"name":"a","quantity":-1}]}`, "spec.toppings[0].quantity: want 1 or more, got -1"},
		"NoInteger":    {"A quantity with a fraction is rejected, as by the schema.", beta, `{"toppings":[{"name":"a","quantity":1.5}]}`, "number 1.5"},
		"TooLarge":     {"A quantity beyond int64 is rejected.", beta, `{"toppings":[{"name":"a","quantity":1e300}]}`, "number 1e300"},
		"NamesNotText": {"The names in v1alpha1 must be strings.", alpha, `{"toppings":[1]}`, "spec.toppings: want a string, got number"},
		"NoArray":      {"The toppings must be a list.", alpha, `{"toppings":{}}`, "spec.toppings: want an array, got object"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			to := alpha
			if tc.from == alpha {
				to = beta
			}
			got, err := engine(t).Convert(pizza(tc.from, tc.spec), to)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nConvert() = %s, %v, want an error with %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// TestRoundTrip verifies that nothing is lost. Because the order has no meaning, no annotation is necessary for it.
func TestRoundTrip(t *testing.T) {
	many := make([]string, 0, 3*few)
	for i := range 3 * few {
		many = append(many, fmt.Sprintf(`"t%d"`, i%(2*few)))
	}
	for _, spec := range []string{`["a","b","a"]`, `["a","a","b"]`, `[]`, `["x"]`, "[" + strings.Join(many, ",") + "]"} {
		e := engine(t)
		first := pizza(alpha, `{"toppings":`+spec+`}`)
		there, err := e.Convert(first, beta)
		if err != nil {
			t.Fatal(err)
		}
		back, err := e.Convert(there, alpha)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(there, []byte("annotations")) || bytes.Contains(back, []byte("annotations")) {
			t.Errorf("%s: there is a complement in %s or %s", spec, there, back)
		}
		if diff := cmp.Diff(toppingsOf(t, first), toppingsOf(t, back)); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", spec, diff)
		}
	}
}

// TestRoundTripOfMore verifies that fields which only v1beta1 has are kept while the pizza is v1alpha1.
func TestRoundTripOfMore(t *testing.T) {
	e := engine(t)
	first := pizza(beta, `{"toppings":[{"name":"a","quantity":2,"crispy":true},{"name":"b","quantity":1}]}`)
	there, err := e.Convert(first, alpha)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(there, []byte(`"toppings":["a","a","b"]`)) {
		t.Errorf("in v1alpha1 it is %s", there)
	}
	back, err := e.Convert(there, beta)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(back)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// toppingsOf returns the toppings of a v1alpha1 pizza, sorted by name.
func toppingsOf(t *testing.T, object []byte) []string {
	t.Helper()
	p := &v1alpha1.Pizza{}
	if err := json.Unmarshal(object, p); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(slices.Values(p.Spec.Toppings))
}

// FuzzConversion verifies that any toppings are the same after a conversion in both directions, and that the functions
// for equivalence agree.
func FuzzConversion(f *testing.F) {
	f.Add("a,b,a")
	f.Add("")
	f.Add(strings.Repeat("x,", few) + strings.Repeat("y,z,", few))
	f.Fuzz(func(t *testing.T, text string) {
		names := strings.Split(text, ",")
		if len(names) > MaxToppings {
			return
		}
		before := slices.Clone(names)
		toppings, err := count(names)
		if err != nil {
			t.Fatal(err)
		}
		back, err := expand(toppings)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, names); diff != "" {
			t.Errorf("count() changed its input: -before, +after:\n%s", diff)
		}
		if !sameNames(names, back) || len(names) != len(back) {
			t.Errorf("%q came back as %q", names, back)
		}
		if more := append(slices.Clone(back), "one more"); sameNames(names, more) {
			t.Errorf("%q and %q are not the same", names, more)
		}
		split := []v1beta1.PizzaTopping{}
		for _, name := range names {
			split = append(split, v1beta1.PizzaTopping{Name: name, Quantity: 1})
		}
		if !sameToppings(toppings, split) {
			t.Errorf("%v and %v are the same", toppings, split)
		}
	})
}

// BenchmarkConversion converts one pizza of about 10 KB.
func BenchmarkConversion(b *testing.B) {
	notes := strings.Repeat(`"`+strings.Repeat("lorem ipsum dolor ", 10)+`",`, 53)
	in := pizza(alpha, `{"toppings":["mozzarella","tomato","mozzarella","salami"],"notes":[`+strings.TrimSuffix(notes, ",")+`]}`)
	e := engine(b)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Convert(in, beta); err != nil {
			b.Fatal(err)
		}
	}
}
