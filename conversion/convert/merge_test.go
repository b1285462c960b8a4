package convert

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMerge(t *testing.T) {
	cases := map[string]struct {
		reason                       string
		original, given, made, empty string
		in, out                      string // Examples of the types, with all their fields; empty for a type that has every field.
		nulls                        bool
		want, err                    string
	}{
		"Same":            {reason: "An unchanged value keeps its bytes.", original: `{"a": 1.0, "x":null}`, given: `{"a":1}`, made: `{"a":1}`, want: `{"a": 1.0, "x":null}`},
		"OneOfTwo":        {reason: "Members other than the changed one keep their bytes.", original: `{"a": 1.0,"b":2.0}`, given: `{"a":1,"b":2}`, made: `{"b":3,"a":1}`, want: `{"a":1.0,"b":3}`},
		"Removed":         {reason: "A removed member is removed.", original: `{"a":1,"b":2}`, given: `{"a":1,"b":2}`, made: `{"a":1}`, want: `{"a":1}`},
		"Added":           {reason: "Added members follow the members of the original.", original: `{"a":1}`, given: `{"a":1}`, made: `{"A":{"x":null,"y":[{"z":null},null]},"a":1}`, want: `{"a":1,"A":{"y":[{},null]}}`},
		"AddedNull":       {reason: "An added null is omitted.", original: `{"a":1}`, given: `{"a":1}`, made: `{"a":1,"b":null}`, want: `{"a":1}`},
		"AddedNullMeant":  {reason: "An intended null is added.", original: `{"a":1}`, given: `{"a":1}`, made: `{"a":1,"b":null,"c":{"d":null}}`, nulls: true, want: `{"a":1,"b":null,"c":{"d":null}}`},
		"Empty":           {reason: "Values that the function makes even from an empty object are omitted.", original: `{}`, given: `{"b":0}`, made: `{"c":0,"d":{"e":0,"f":1},"b":0}`, empty: `{"c":0,"d":{"e":0}}`, want: `{"d":{"f":1}}`},
		"Zero":            {reason: "A zero value that the types omit stays.", original: `{"a":0,"b":""}`, given: `{}`, made: `{}`, in: `{"a":0,"b":""}`, out: `{"a":0,"b":""}`, want: `{"a":0,"b":""}`},
		"ZeroOther":       {reason: "A zero value is removed if the other version has no field of the same kind for it.", original: `{"a":0,"b":"","l":[{"a":0}]}`, given: `{"l":[{}]}`, made: `{"l":[{}]}`, in: `{"a":0,"b":"","l":[{"a":0}]}`, out: `{"a":"","l":[{}]}`, want: `{"l":[{}]}`},
		"ZeroReplaced":    {reason: "An omitted zero value can be replaced.", original: `{"a":0}`, given: `{}`, made: `{"a":5}`, in: `{"a":0}`, want: `{"a":5}`},
		"Unknown":         {reason: "An unknown field stays.", original: `{"a":1,"u":{"v":1}}`, given: `{"a":1}`, made: `{"a":2}`, in: "given", want: `{"a":2,"u":{"v":1}}`},
		"UnknownSame":     {reason: "An unknown field stays even if the other version knows it.", original: `{"u":1.0}`, given: `{}`, made: `{"u":1}`, in: "given", want: `{"u":1.0}`},
		"UnknownReplaced": {reason: "A function cannot replace a field that it did not receive.", original: `{"u":1}`, given: `{}`, made: `{"u":2}`, in: "given", err: "u: " + errLost.Error() + ": there is another value"},
		"UnknownInside":   {reason: "An unknown field cannot stay without its object.", original: `{"a":{"b":1,"u":2}}`, given: `{"a":{"b":1}}`, made: `{"c":1}`, in: "given", err: "a.u: " + errLost.Error()},
		"UnknownType":     {reason: "An unknown field cannot stay if its object becomes a string.", original: `{"a":{"b":{"u":2}}}`, given: `{"a":{"b":{}}}`, made: `{"a":"b"}`, in: "given", err: "a.b.u: " + errLost.Error()},
		"UnknownZero":     {reason: "An unknown field with a zero value counts as a value.", original: `{"a":{"u":false}}`, given: `{"a":{}}`, made: `{}`, in: "given", err: "a.u: " + errLost.Error()},
		"KnownZero":       {reason: "A known field with an omitted zero value can be removed.", original: `{"a":{"u":false}}`, given: `{"a":{}}`, made: `{}`, in: `{"a":{"u":false}}`, want: `{}`},
		"Type":            {reason: "A value may change its type.", original: `{"a":1}`, given: `{"a":1}`, made: `{"a":"1"}`, want: `{"a":"1"}`},
		"NumberForm":      {reason: "Another notation of the same number is no change.", original: `{"a":1.00}`, given: `{"a":1}`, made: `{"a":1.0}`, want: `{"a":1.00}`},
		"MadeNull":        {reason: "A value that becomes null is removed, except for empty lists and objects.", original: `{"a":1,"b":[],"c":{}}`, given: `{"a":1,"b":[],"c":{}}`, made: `{"a":null,"b":null,"c":null}`, want: `{"b":[],"c":{}}`},
		"WasNull":         {reason: "A null of the original may stay.", original: `{"a":null,"b":null}`, given: `{"a":0,"b":[1]}`, made: `{"a":null,"b":{"c":null}}`, want: `{"a":null,"b":{}}`},
		"Elements":        {reason: "Unchanged elements keep their bytes at any index.", original: `[{"a":1.0,"u":1},2.0,3.0]`, given: `[{"a":1},2,3]`, made: `[3,7,{"a":1},{"n":null}]`, in: `[{"a":1}]`, want: `[3.0,7,{"a":1.0,"u":1},{}]`},
		"ElementsTwice":   {reason: "Each element of the original is used once.", original: `[1.0,1.00]`, given: `[1,1]`, made: `[1,1,1]`, want: `[1.0,1.00,1]`},
		"ElementsLost":    {reason: "A changed element cannot keep unknown fields.", original: `[{"a":1,"u":1},2]`, given: `[{"a":1},2]`, made: `[2]`, in: `[{"a":1}]`, err: "[0].u: " + errLost.Error()},
		"ElementsDeep":    {reason: "Unknown fields of elements are found at any depth.", original: `{"l":[[{"u":1}]]}`, given: `{"l":[[{}]]}`, made: `{"l":[]}`, in: "given", err: "l[0][0].u: " + errLost.Error()},
		"ElementsFewer":   {reason: "The function may have received other elements than the original has.", original: `[1,2]`, given: `[1]`, made: `[3]`, want: `[3]`},
		"Twice":           {reason: "An object with a duplicate key cannot be merged.", original: `{"a":{"b":1,"b":2}}`, given: `{"a":{"b":2}}`, made: `{"a":{"b":3}}`, err: "a.b: " + errTwice.Error()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.in == "given" {
				tc.in = tc.given
			}
			m := merger{nulls: tc.nulls}
			var empty *tree
			if tc.empty != "" {
				empty = mustTree(t, tc.empty)
			}
			got, err := m.merge(nil, true, mustTree(t, tc.original), mustTree(t, tc.given), mustTree(t, tc.made), empty, knownLike(t, tc.in), knownLike(t, tc.out))
			text := ""
			if err != nil {
				got, text = nil, err.Error()
			}
			if diff := cmp.Diff(tc.err, text); diff != "" {
				t.Fatalf("%s\nmerge() error: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s\nmerge(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWholeEquivalent has conversions of whole objects that lose only values without a meaning.
func TestWholeEquivalent(t *testing.T) {
	failing := errors.New("no")
	cases := map[string]struct {
		reason     string
		conversion Conversion
		spec       string
		kept       bool
		err        string
	}{
		"Typed": {
			reason: "An equivalent value needs no annotation.",
			conversion: Object(toBeta, toAlpha, Equivalent(
				func(a, b alphaPizza) bool { return sameNames(a.Spec.Toppings, b.Spec.Toppings) }, (func(a, b betaPizza) bool)(nil))),
			spec: `{"toppings":["b","a","b"]}`,
		},
		"TypedUnknown": {
			reason: "An unknown field needs an annotation, even if the known fields are equivalent.",
			conversion: Object(toBeta, toAlpha, Equivalent(
				func(_, _ alphaPizza) bool { return true }, (func(a, b betaPizza) bool)(nil))),
			spec: `{"toppings":["b","a","b"],"new":1}`, kept: true,
		},
		"TypedFails": {
			reason:     "Errors of the function are reported for the object.",
			conversion: Object(func(*alphaPizza, *betaPizza) error { return failing }, toAlpha),
			spec:       `{}`, err: "/v1beta1: no",
		},
		"TypedWrong": {reason: "Decoding errors are reported for the object.", conversion: Object(toBeta, toAlpha), spec: `[]`, err: "spec: want an object, got array"},
		"TypedBack": {
			reason:     "If the reverse function fails, the object is kept.",
			conversion: Object(toBeta, func(*betaPizza, *alphaPizza) error { return failing }),
			spec:       `{"toppings":["a"]}`, kept: true,
		},
		"Maps": {
			reason: "Maps are compared by the equivalence, too.",
			conversion: Unstructured(nest, func(o map[string]any) (map[string]any, error) { return o, nil }, Equivalent(
				func(_, _ map[string]any) bool { return true }, (func(a, b map[string]any) bool)(nil))),
			spec: `{"count":1}`,
		},
		"MapsFail": {
			reason:     "Errors can name a place.",
			conversion: Unstructured(func(map[string]any) (map[string]any, error) { return nil, ErrorAt("spec.count", failing) }, flatten),
			spec:       `{}`, err: "/v1beta1: spec.count: no",
		},
		"MapsNil": {
			reason:     "A nil result is an error.",
			conversion: Unstructured(func(map[string]any) (map[string]any, error) { return nil, nil }, flatten), //nolint:nilnil // The case tests it.
			spec:       `{}`, err: errNoObject.Error(),
		},
		"MapsPanic": {
			reason:     "A function may fail for an empty object.",
			conversion: Unstructured(func(o map[string]any) (map[string]any, error) { o["spec"].(map[string]any)["x"] = 1; return o, nil }, flatten),
			spec:       `{"y":1}`, kept: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: []Spoke{{Version: "v1alpha1", Conversions: []Conversion{tc.conversion}}}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := e.Convert(alpha(`{"name":"n"}`, tc.spec), pizzaGroup+"/v1beta1")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s\nConvert() error: %v, want one with %s", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if kept := bytes.Contains(out, []byte(Annotation)); kept != tc.kept {
				t.Errorf("%s\nkept = %t:\n%s", tc.reason, kept, out)
			}
		})
	}
}

func mustTree(t *testing.T, text string) *tree {
	t.Helper()
	tree, err := treeOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// knownLike returns the fields of a type with the fields of an example.
func knownLike(t *testing.T, example string) *known {
	t.Helper()
	if example == "" {
		return nil
	}
	return knownOfTree(mustTree(t, example))
}

func knownOfTree(t *tree) *known {
	k := &known{kind: t.kind, zero: t.kind}
	if t.kind == '{' {
		k.fields = map[string]*known{}
	}
	for i := range t.items {
		inner := knownOfTree(&t.items[i])
		if t.kind == '{' {
			k.fields[t.keys[i]] = inner
			continue
		}
		k.elem = inner
	}
	return k
}
