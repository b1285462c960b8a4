package expression_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/conversion/expression"
)

func of(kind string) schema.Structural {
	return schema.Structural{Generic: schema.Generic{Type: kind}}
}

func listOf(s schema.Structural) *schema.Structural {
	return &schema.Structural{Generic: schema.Generic{Type: "array"}, Items: &s}
}

// The toppings of a pizza in two versions, and the expressions that convert them.
var (
	names    = listOf(of("string"))
	toppings = listOf(schema.Structural{
		Generic:    schema.Generic{Type: "object"},
		Properties: map[string]schema.Structural{"name": of("string"), "quantity": of("integer")},
	})
)

const (
	toHub   = `value.distinct().map(n, {"name":n, "quantity":value.filter(t, t == n).size()})`
	toSpoke = `value.map(t, lists.range(int(t.?quantity.orValue(1))).map(i, t.name)).flatten()`
)

func Example() {
	hub, problems := expression.Compile(toHub, names, toppings, expression.Limits{})
	if hub == nil {
		fmt.Println(problems)
		return
	}
	out, err := hub.Convert(nil, []byte(`["mozzarella","tomato","mozzarella"]`))
	fmt.Println(string(out), err)

	spoke, problems := expression.Compile(toSpoke, toppings, names, expression.Limits{OutputItems: 1000})
	if spoke == nil {
		fmt.Println(problems)
		return
	}
	out, err = spoke.Convert(nil, out)
	fmt.Println(string(out), err)
	_, err = spoke.Convert(nil, []byte(`[{"name":"mozzarella","quantity":1000000000}]`))
	fmt.Println(err)

	_, problems = expression.Compile(`value.map(t, t.nme)`, toppings, names, expression.Limits{})
	fmt.Println(problems)
	// Output:
	// [{"name":"mozzarella","quantity":2},{"name":"tomato","quantity":1}] <nil>
	// ["mozzarella","mozzarella","tomato"] <nil>
	// column 25: lists.range: the list would have 1000000000 elements, more than 1000: that is the limit
	// [column 15: undefined field 'nme']
}

// If the result may be absent, it is an optional value or null.
func Example_absent() {
	quantity := &schema.Structural{Generic: schema.Generic{Type: "integer"}}
	for _, text := range []string{`value.filter(t, t.name == "salami").map(t, t.quantity).first()`, `value.size() > 0 ? value[0].quantity : null`} {
		p, problems := expression.Compile(text, toppings, quantity, expression.Limits{})
		if p == nil {
			fmt.Println(problems)
			return
		}
		for _, value := range []string{`[{"name":"salami","quantity":2}]`, `[]`} {
			out, err := p.Convert(nil, []byte(value))
			fmt.Println(string(out), err)
		}
	}
	// Output:
	// 2 <nil>
	// null <nil>
	// 2 <nil>
	// null <nil>
}

func compile(tb testing.TB, text string, in, out *schema.Structural) *expression.Program {
	tb.Helper()
	p, problems := expression.Compile(text, in, out, expression.Limits{})
	if len(problems) > 0 {
		tb.Fatal(problems)
	}
	return p
}

// TestConcurrent has more concurrent callers than unused evaluations. Some evaluations fail. Each caller must get its
// own result.
func TestConcurrent(t *testing.T) {
	p := compile(t, `value.map(x, 100 / x)`, nil, nil)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for range 50 {
				value := "[" + strings.Repeat(fmt.Sprintf("%d,", i), i) + fmt.Sprint(i) + "]"
				out, err := p.Convert(nil, []byte(value))
				if (err != nil) != (i == 0) {
					t.Errorf("%s: %v", value, err)
				}
				if want := fmt.Sprintf("%d]", 100/max(i, 1)); i > 0 && !strings.HasSuffix(string(out), want) {
					t.Errorf("%s became %s", value, out)
				}
			}
		})
	}
	all.Wait()
}

// TestAppends checks that the result is appended to dst, and that the value is not modified.
func TestAppends(t *testing.T) {
	p := compile(t, `{"b": value, "a": 1}`, nil, nil)
	value := []byte(` {"x":[ 1.0 ]} `)
	before := string(value)
	out, err := p.Convert([]byte("["), value)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"a":1,"b":{"x":[ 1.0 ]}}`; string(out) != want {
		t.Errorf("Convert() = %s, want %s", out, want)
	}
	if string(value) != before {
		t.Errorf("Convert() changed the value to %s", value)
	}
}

// BenchmarkPizza converts four toppings to the other version and back. It compares the expressions of the book with
// those that use count and expand.
func BenchmarkPizza(b *testing.B) {
	spoke := []byte(`["mozzarella","tomato","mozzarella","salami"]`)
	hub := []byte(`[{"name":"mozzarella","quantity":2},{"name":"tomato","quantity":1},{"name":"salami","quantity":1}]`)
	for _, c := range []struct {
		name, text string
		in, out    *schema.Structural
		value      []byte
	}{
		{"to-hub", toHub, names, toppings, spoke},
		{"to-spoke", toSpoke, toppings, names, hub},
		{"to-hub-count", `value.count("name", "quantity")`, names, toppings, spoke},
		{"to-spoke-expand", `value.expand("name", "quantity")`, toppings, names, hub},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := compile(b, c.text, c.in, c.out)
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if out, err = p.Convert(out[:0], c.value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile compiles one of the expressions of the book.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, toHub, names, toppings)
	}
}
