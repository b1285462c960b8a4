package v1beta1

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"refract.dev/tree/raw"
)

func TestToppings(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   Toppings
		err    error
	}{
		"Null":     {reason: "null is none.", text: `null`},
		"Empty":    {reason: "Empty is not null.", text: ` [ ] `, want: Toppings{}},
		"Some":     {reason: "Members come in any order.", text: `[{"name":"a","quantity":2}, {"quantity":3,"name":"b","more":{"name":"c"}}]`, want: Toppings{{"a", 2}, {"b", 3}}},
		"Absent":   {reason: "A quantity that is not there is 1.", text: `[{"name":"a"},{"name":"b","quantity":null}]`, want: Toppings{{"a", 1}, {"b", 1}}},
		"Numbers":  {reason: "An integer may be written in other ways.", text: `[{"name":"a","quantity":2.0},{"name":"b","quantity":1e3},{"name":"c","quantity":-0}]`, want: Toppings{{"a", 2}, {"b", 1000}, {"c", 0}}},
		"Largest":  {reason: "An int64 is exact.", text: `[{"name":"a","quantity":9223372036854775807}]`, want: Toppings{{"a", 9223372036854775807}}},
		"Escapes":  {reason: "Names are text.", text: `[{"name":"\u0061\"\\"}]`, want: Toppings{{`a"\`, 1}}},
		"Fraction": {reason: "Half a topping is none.", text: `[{"name":"a","quantity":0.5}]`, err: raw.ErrSyntax},
		"Huge":     {reason: "Nothing is rounded.", text: `[{"name":"a","quantity":9007199254740993.0}]`, err: raw.ErrSyntax},
		"Text":     {reason: "A number is no text.", text: `[{"name":"a","quantity":"1"}]`, err: raw.ErrSyntax},
		"Name":     {reason: "A name is text.", text: `[{"name":1}]`, err: raw.ErrSyntax},
		"Object":   {reason: "A list is a list.", text: `{}`, err: raw.ErrSyntax},
		"Broken":   {reason: "All of it must be JSON.", text: `[{"name":"a"}`, err: raw.ErrSyntax},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got Toppings
			err := got.UnmarshalJSON([]byte(tc.text))
			if diff := cmp.Diff(tc.err, err, cmpopts.EquateErrors()); diff != "" {
				t.Fatalf("%s\nUnmarshalJSON() error: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nUnmarshalJSON(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzToppings compares with encoding/json, which reads fewer spellings of integers.
func FuzzToppings(f *testing.F) {
	f.Add([]byte(`[{"name":"a","quantity":2},{"name":"b\u0020"}]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got Toppings
		if err := got.UnmarshalJSON(text); err != nil {
			if !errors.Is(err, raw.ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		encoded, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again Toppings
		if err := json.Unmarshal(encoded, &again); err != nil {
			t.Fatalf("%v in %s", err, encoded)
		}
		var plain []PizzaTopping
		if err := json.Unmarshal(encoded, &plain); err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return
		}
		if diff := cmp.Diff(plain, []PizzaTopping(again)); diff != "" {
			t.Errorf("-encoding/json, +ours:\n%s", diff)
		}
	})
}
