package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNewElements checks the errors for invalid conversions of elements, groups and values of one version.
func TestNewElements(t *testing.T) {
	keep := func(spoke, hub string) Conversion { return RawField(spoke, hub, keepRaw, keepRaw) }
	cases := map[string]struct {
		reason      string
		conversions []Conversion
		err         string
	}{
		"Metadata":          {reason: "Inside elements, metadata is an ordinary field.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{Move("metadata.name", "name")})}},
		"SamePlace":         {reason: "Each version may have its own value at the same place.", conversions: []Conversion{SpokeOnly("spec.a"), HubOnly("spec.a")}},
		"SideAndTarget":     {reason: "A value may move to a place where another value is removed.", conversions: []Conversion{SpokeOnly("spec.a"), Move("spec.b", "spec.a")}},
		"Itself":            {reason: "An element itself can be converted as a value.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", "")})}},
		"Quoted":            {reason: "A key with a dot is quoted.", conversions: []Conversion{Move(`spec["a.b"].c`, `spec.a.b.c`)}},
		"Group":             {reason: "Several fields can be converted as one value.", conversions: []Conversion{keep(`spec.{a, "b.c"}`, `["x.y"].{a,"b.c"}`)}},
		"Parent":            {reason: "A parent contains the places of other conversions.", conversions: []Conversion{HubParent("spec.a"), Move("spec.b", "spec.a.b"), HubParent("spec.a.c"), HubOnly("spec.a.c.d")}},
		"ParentTwice":       {reason: "A parent cannot also be the target of a value.", conversions: []Conversion{HubParent("spec.a"), Move("spec.b", "spec.a")}, err: "spec.b and spec.a: two conversions of the same place"},
		"ParentInside":      {reason: "A parent inside a one-sided value is removed together with it.", conversions: []Conversion{HubParent("spec.a.b"), HubOnly("spec.a")}, err: "spec.a and spec.a.b: one of the places is inside the other; convert spec.a as one value"},
		"SideTwice":         {reason: "A spoke can have only one conversion for a place.", conversions: []Conversion{SpokeOnly("spec.a"), Move("spec.a", "spec.b")}, err: "spec.a and spec.b: two conversions of the same place"},
		"SideTwiceInHub":    {reason: "The hub can have only one conversion for a place.", conversions: []Conversion{HubOnly("spec.a"), Move("spec.b", "spec.a")}, err: "spec.b and spec.a: two conversions of the same place"},
		"SideInside":        {reason: "A value inside a removed value cannot be removed again.", conversions: []Conversion{SpokeOnly("spec.a"), SpokeOnly("spec.a.b")}, err: "spec.a and spec.a.b: one of the places is inside the other; convert spec.a as one value"},
		"GroupTwice":        {reason: "The fields of a group count as places.", conversions: []Conversion{keep("spec.{a,b}", "spec.x"), Move("spec.b", "spec.y")}, err: "spec.b and spec.y: two conversions of the same place"},
		"GroupInside":       {reason: "Places inside the fields of a group conflict with the group.", conversions: []Conversion{keep("spec.{a,b}", "spec.x"), Move("spec.b.c", "spec.y")}, err: "spec.b and spec.b.c: one of the places is inside the other; convert spec.b as one value"},
		"GroupMember":       {reason: "A group can have each field only once.", conversions: []Conversion{keep("spec.{a,a}", "spec.x")}, err: `place "spec.{a,a}": duplicate key a`},
		"GroupEmpty":        {reason: "A group needs at least one field.", conversions: []Conversion{keep("spec.{}", "spec.x")}, err: `place "spec.{}": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"GroupOpen":         {reason: "A group needs a closing brace.", conversions: []Conversion{keep("spec.{a", "spec.x")}, err: `place "spec.{a": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"GroupMetadata":     {reason: "Metadata is the same in all versions.", conversions: []Conversion{keep("{metadata,spec}", "spec")}, err: `place "{metadata,spec}": metadata is the same in all versions`},
		"GroupMoves":        {reason: "A group needs a function, so it cannot be moved.", conversions: []Conversion{Move("spec.{a,b}", "spec.x")}, err: `place "spec.{a,b}": only Field and RawField convert several fields as one value`},
		"Bracket":           {reason: "A key in brackets must be quoted.", conversions: []Conversion{Move("spec[a]", "spec.x")}, err: `place "spec[a]": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"BracketOpen":       {reason: "A bracket must be closed.", conversions: []Conversion{Move(`spec["a"`, "spec.x")}, err: `place "spec[\"a\"": want keys with dots between them, ["KEY"] for those with other characters, and {KEY,KEY} only at the end`},
		"Star":              {reason: "Places inside lists need Items or Values.", conversions: []Conversion{Move("spec.a[*].b", "spec.x")}, err: `place "spec.a[*].b": the elements of a list are converted with Items, those of a table with Values`},
		"DotLast":           {reason: "A place must end with a key.", conversions: []Conversion{Move("spec.a.", "spec.x")}, err: `place "spec.a.": want keys with dots between them`},
		"ItselfAndMore":     {reason: "An element can be converted as a whole or in parts, not both.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", ""), Move("b", "c")})}, err: "spec.a[*]: place \"\": the element itself is converted by another conversion already"},
		"ItselfMoves":       {reason: "An element itself cannot move.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{keep("", "b")})}, err: `spec.a[*]: place "": an element itself stays where it is`},
		"ItselfOneSided":    {reason: "Both versions have the element, so it cannot be one-sided.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{SpokeOnly("")})}, err: `spec.a[*]: place "": want keys with dots between them`},
		"Whole":             {reason: "A conversion of whole objects cannot be used for elements.", conversions: []Conversion{Items("spec.a", "spec.a", []Conversion{Unstructured(nest, flatten)})}, err: "spec.a[*]: a conversion of whole objects must be the only one"},
		"ElementsTwice":     {reason: "Places inside elements are checked, too.", conversions: []Conversion{Values("spec.a", "spec.b", []Conversion{Move("x", "y"), Move("x", "z")})}, err: "spec.a[*]: x and z: two conversions of the same place"},
		"Default":           {reason: "A default must be JSON.", conversions: []Conversion{HubOnly("spec.a", Default([]byte("thin")))}, err: "spec.a: the default is not JSON"},
		"DefaultOfList":     {reason: "A list cannot have a default.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Default([]byte("[]")))}, err: "spec.a: only SpokeOnly and HubOnly have a default"},
		"DefaultOfField":    {reason: "The function of a conversion decides about defaults.", conversions: []Conversion{RawField("spec.a", "spec.a", keepRaw, keepRaw, Default([]byte("1")))}, err: "spec.a: only SpokeOnly and HubOnly have a default"},
		"KeysOfTable":       {reason: "A table already has keys, so it cannot declare others.", conversions: []Conversion{Values("spec.a", "spec.a", nil, Keys([]string{"a"}, nil))}, err: "spec.a: only Field, RawField and Items have keys"},
		"KeysOfSide":        {reason: "One-sided values have no elements to match, so keys have no effect.", conversions: []Conversion{HubOnly("spec.a", Keys([]string{"a"}, nil))}, err: "spec.a: only Field, RawField and Items have keys"},
		"EquivalenceOfSide": {reason: "One-sided values are not compared, so an equivalence has no effect.", conversions: []Conversion{HubOnly("spec.a", Equivalent[[]byte, []byte](nil, func(_, _ []byte) bool { return true }))}, err: "spec.a: only conversions with functions have an equivalence"},
		"KeyGroup":          {reason: "A key of an element must be a single field.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Keys([]string{"{a,b}"}, nil))}, err: `spec.a: key "{a,b}": want the place of one field of an element`},
		"Equivalence":       {reason: "A list converted element by element has no value to compare.", conversions: []Conversion{Items("spec.a", "spec.a", nil, Equivalent[[]byte, []byte](nil, func(_, _ []byte) bool { return true }))}, err: "spec.a: only conversions with functions have an equivalence"},
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
