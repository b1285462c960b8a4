package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNewElements checks the invalid uses of elements, groups and values of one version, and the error texts.
func TestNewElements(t *testing.T) {
	keep := func(spoke, hub string) Conversion { return RawField(spoke, hub, keepRaw, keepRaw) }
	cases := map[string]struct {
		reason      string
		conversions []Conversion
		err         string
	}{
		"Metadata":          {reason: "In elements it is a field like others.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{Move("metadata.name", "name")})}},
		"SamePlace":         {reason: "Each version has its own value.", conversions: []Conversion{SpokeOnly("spec.a"), HubOnly("spec.a")}},
		"SideAndTarget":     {reason: "Another value moves to where one is taken away.", conversions: []Conversion{SpokeOnly("spec.a"), Move("spec.b", "spec.a")}},
		"Itself":            {reason: "An element may be a value.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", "")})}},
		"Quoted":            {reason: "A key with a dot is quoted.", conversions: []Conversion{Move(`spec["a.b"].c`, `spec.a.b.c`)}},
		"Group":             {reason: "Several fields are one value.", conversions: []Conversion{keep(`spec.{a, "b.c"}`, `["x.y"].{a,"b.c"}`)}},
		"Parent":            {reason: "Others are in it.", conversions: []Conversion{HubParent("spec.a"), Move("spec.b", "spec.a.b"), HubParent("spec.a.c"), HubOnly("spec.a.c.d")}},
		"ParentTwice":       {reason: "It is no value itself.", conversions: []Conversion{HubParent("spec.a"), Move("spec.b", "spec.a")}, err: "spec.b and spec.a: two conversions of the same place"},
		"ParentInside":      {reason: "It goes with the value that it is in.", conversions: []Conversion{HubParent("spec.a.b"), HubOnly("spec.a")}, err: "spec.a and spec.a.b: one of the places is inside the other; convert spec.a as one value"},
		"SideTwice":         {reason: "A version has one value at a place.", conversions: []Conversion{SpokeOnly("spec.a"), Move("spec.a", "spec.b")}, err: "spec.a and spec.b: two conversions of the same place"},
		"SideTwiceInHub":    {reason: "The hub, too.", conversions: []Conversion{HubOnly("spec.a"), Move("spec.b", "spec.a")}, err: "spec.b and spec.a: two conversions of the same place"},
		"SideInside":        {reason: "A value is taken away once.", conversions: []Conversion{SpokeOnly("spec.a"), SpokeOnly("spec.a.b")}, err: "spec.a and spec.a.b: one of the places is inside the other; convert spec.a as one value"},
		"GroupTwice":        {reason: "The fields of a group are places.", conversions: []Conversion{keep("spec.{a,b}", "spec.x"), Move("spec.b", "spec.y")}, err: "spec.b and spec.y: two conversions of the same place"},
		"GroupInside":       {reason: "The fields of a group are places.", conversions: []Conversion{keep("spec.{a,b}", "spec.x"), Move("spec.b.c", "spec.y")}, err: "spec.b and spec.b.c: one of the places is inside the other; convert spec.b as one value"},
		"GroupMember":       {reason: "A field is in a group once.", conversions: []Conversion{keep("spec.{a,a}", "spec.x")}, err: `place "spec.{a,a}": duplicate key a`},
		"GroupEmpty":        {reason: "A group has fields.", conversions: []Conversion{keep("spec.{}", "spec.x")}, err: `place "spec.{}": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"GroupOpen":         {reason: "A group ends.", conversions: []Conversion{keep("spec.{a", "spec.x")}, err: `place "spec.{a": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"GroupMetadata":     {reason: "Metadata is the same in all versions.", conversions: []Conversion{keep("{metadata,spec}", "spec")}, err: `place "{metadata,spec}": metadata is the same in all versions`},
		"GroupMoves":        {reason: "There is nothing to make of a group without a function.", conversions: []Conversion{Move("spec.{a,b}", "spec.x")}, err: `place "spec.{a,b}": only Field and RawField convert several fields as one value`},
		"Bracket":           {reason: "A key in brackets is quoted.", conversions: []Conversion{Move("spec[a]", "spec.x")}, err: `place "spec[a]": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"BracketOpen":       {reason: "A bracket ends.", conversions: []Conversion{Move(`spec["a"`, "spec.x")}, err: `place "spec[\"a\"": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"Star":              {reason: "A list has its own conversion.", conversions: []Conversion{Move("spec.a[*].b", "spec.x")}, err: `place "spec.a[*].b": the elements of a list are converted with Items, those of a table with Values`},
		"DotLast":           {reason: "A place ends with a key.", conversions: []Conversion{Move("spec.a.", "spec.x")}, err: `place "spec.a.": want keys with dots between them`},
		"ItselfAndMore":     {reason: "An element is converted as a whole or in parts.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", ""), Move("b", "c")})}, err: "spec.a[*]: place \"\": the element itself is converted by another conversion already"},
		"ItselfMoves":       {reason: "An element has no other place.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", "b")})}, err: `spec.a[*]: place "": an element itself stays where it is`},
		"ItselfOneSided":    {reason: "Both versions have the element.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{SpokeOnly("")})}, err: `spec.a[*]: place "": want keys with dots between them`},
		"Whole":             {reason: "An element is not a whole object.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{Unstructured(nest, flatten)})}, err: "spec.a[*]: a conversion of whole objects must be the only one"},
		"ElementsTwice":     {reason: "Places in elements are checked, too.", conversions: []Conversion{Values("spec.a", "spec.b", []Conversion{Move("x", "y"), Move("x", "z")})}, err: "spec.a[*]: x and z: two conversions of the same place"},
		"Default":           {reason: "A default is JSON.", conversions: []Conversion{HubOnly("spec.a", Default([]byte("thin")))}, err: "spec.a: the default is not JSON"},
		"DefaultOfList":     {reason: "A list has no default.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Default([]byte("[]")))}, err: "spec.a: only SpokeOnly and HubOnly have a default"},
		"DefaultOfField":    {reason: "A conversion decides itself.", conversions: []Conversion{RawField("spec.a", "spec.a", keepRaw, keepRaw, Default([]byte("1")))}, err: "spec.a: only SpokeOnly and HubOnly have a default"},
		"KeysOfTable":       {reason: "A table has keys.", conversions: []Conversion{Values("spec.a", "spec.a", nil, Keys([]string{"a"}, nil))}, err: "spec.a: only Field, RawField and Items have keys"},
		"KeysOfSide":        {reason: "Nothing is told apart.", conversions: []Conversion{HubOnly("spec.a", Keys([]string{"a"}, nil))}, err: "spec.a: only Field, RawField and Items have keys"},
		"EquivalenceOfSide": {reason: "Nothing is compared.", conversions: []Conversion{HubOnly("spec.a", Equivalent[[]byte, []byte](nil, func(_, _ []byte) bool { return true }))}, err: "spec.a: only conversions with functions have an equivalence"},
		"KeyGroup":          {reason: "A key is a field.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Keys([]string{"{a,b}"}, nil))}, err: `spec.a: key "{a,b}": want the place of one field of an element`},
		"Equivalence":       {reason: "There is no value that is converted.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Equivalent[[]byte, []byte](nil, func(_, _ []byte) bool { return true }))}, err: "spec.a: only conversions with functions have an equivalence"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(Resource{Group: "g.example", Kind: "K", Hub: "v2", Spokes: []Spoke{{Version: "v1", Conversions: tc.conversions}}})
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), "resource K.g.example: version v1: ")
			}
			if diff := cmp.Diff(tc.err, got); diff != "" {
				t.Errorf("%s\nNew() error: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
