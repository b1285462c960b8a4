package tree

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAuthorString(t *testing.T) {
	policy := Policy{Kind: "OverridePolicy", Namespace: "default", Name: "web", Generation: 3}
	cases := map[string]Author{
		"OverridePolicy default/web rule 0 jsonpatch[2]": {Policy: policy, Overrider: "jsonpatch", Item: 2},
		"OverridePolicy default/web rule 1":              {Policy: policy, Rule: 1},
		"ClusterOverridePolicy all rule 0 image[0]":      {Policy: Policy{Kind: "ClusterOverridePolicy", Name: "all"}, Overrider: "image"},
	}
	for want, author := range cases {
		if got := author.String(); got != want {
			t.Errorf("want %s, got %s", want, got)
		}
	}
}

func TestRecordShadows(t *testing.T) {
	type edit struct {
		verb, path string
		value      any
	}
	const doc = "{m: {a: 1}, l: [{v: 1}, {v: 2}, {v: 3}]}"
	cases := map[string]struct {
		reason string
		edits  []edit
		want   [][]int // Shadows of each change.
	}{
		"SamePlace": {
			"A later change of the same place hides the earlier ones.",
			[]edit{{"set", "/m/a", 2}, {"set", "/m/a", 3}, {"set", "/m/a", 4}},
			[][]int{nil, {0}, {0, 1}},
		},
		"Around": {
			"A change of what is around hides what was done inside.",
			[]edit{{"set", "/m/a", 2}, {"add", "/m/b", 2}, {"set", "/m", map[string]any{}}},
			[][]int{nil, nil, {0, 1}},
		},
		"Inside": {
			"A change inside does not hide what was done around it.",
			[]edit{{"set", "/m", map[string]any{"a": 1, "ab": 2}}, {"set", "/m/a", 2}, {"set", "/m/ab", 2}},
			[][]int{nil, nil, nil},
		},
		"RemovedAndAdded": {
			"What is added where something was removed hides the removal.",
			[]edit{{"remove", "/m/a", nil}, {"add", "/m/a", 5}},
			[][]int{nil, {0}},
		},
		"InsertHidesNothing": {
			"What was at the index has moved up.",
			[]edit{{"set", "/l/0/v", 9}, {"add", "/l/0", "x"}},
			[][]int{nil, nil},
		},
		"MovedUp": {
			"The element with that index is another one now; the old one is one further.",
			[]edit{{"set", "/l/0/v", 9}, {"add", "/l/0", map[string]any{"v": 0}}, {"set", "/l/0/v", 8}, {"set", "/l/1/v", 7}},
			[][]int{nil, nil, nil, {0}},
		},
		"MovedDown": {
			"After a removal the element with that index is the one that was behind.",
			[]edit{{"set", "/l/0/v", 9}, {"set", "/l/1/v", 8}, {"remove", "/l/0", nil}, {"set", "/l/0/v", 7}},
			[][]int{nil, nil, {0}, {1}},
		},
		"RemovalAtTheSameIndex": {
			"To remove the next element does not hide that one was removed before it.",
			[]edit{{"remove", "/l/0", nil}, {"remove", "/l/0", nil}},
			[][]int{nil, nil},
		},
		"WholeArray": {
			"To replace an array hides every insertion into it and removal from it.",
			[]edit{{"add", "/l/-", 1}, {"remove", "/l/0", nil}, {"set", "/l", []any{}}},
			[][]int{nil, nil, {0, 1}},
		},
		"InsertedAndRemoved": {
			"To remove what was inserted hides the insertion and all since, but nothing before.",
			[]edit{{"set", "/l/1", "a"}, {"add", "/l/1", "b"}, {"set", "/l/1", "c"}, {"remove", "/l/1", nil}, {"set", "/l/1", "d"}},
			[][]int{nil, nil, {1}, {1, 2}, {0}},
		},
		"KeysLikeIndexes": {
			"Members with a number as key do not move.",
			[]edit{{"set", "/m", map[string]any{"0": 0, "1": 1}}, {"set", "/m/1", 2}, {"remove", "/m/0", nil}, {"set", "/m/1", 3}},
			[][]int{nil, nil, nil, {1}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := Edit(parse(t, doc))
			var changes []Change
			for _, e := range tc.edits {
				changes = Record(changes, mustDo(t, d, e.verb, e.path, e.value))
			}
			var got [][]int
			for _, c := range changes {
				got = append(got, c.Shadows)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nShadows: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEqual(t *testing.T) {
	cases := map[string]struct {
		a, b any
		want bool
	}{
		"Null":          {nil, nil, true},
		"NullAndFalse":  {nil, false, false},
		"Strings":       {"a", "a", true},
		"OtherStrings":  {"a", "b", false},
		"Booleans":      {true, true, true},
		"StringAndBool": {"true", true, false},
		"Integers":      {int64(1), int64(1), true},
		"SameNumber":    {int64(1), float64(1), true},
		"SameNumber2":   {float64(1), int64(1), true},
		"OtherNumber":   {int64(1), 1.5, false},
		"BeyondFloat":   {int64(1<<53 + 1), float64(1 << 53), false},
		"BeyondInt":     {int64(1<<63 - 1), float64(1 << 63), false},
		"NumberAndText": {int64(1), "1", false},
		"Arrays":        {[]any{int64(1), "a"}, []any{1.0, "a"}, true},
		"ArrayOrder":    {[]any{"a", "b"}, []any{"b", "a"}, false},
		"ArrayLength":   {[]any{"a"}, []any{"a", "a"}, false},
		"EmptyAndNil":   {[]any{}, []any(nil), true},
		"Objects":       {map[string]any{"a": int64(1), "b": nil}, map[string]any{"b": nil, "a": 1.0}, true},
		"NullMember":    {map[string]any{"a": nil}, map[string]any{"b": nil}, false},
		"MoreMembers":   {map[string]any{"a": nil}, map[string]any{"a": nil, "b": nil}, false},
		"ObjectOrArray": {map[string]any{}, []any{}, false},
		"OtherTypes":    {int32(1), int32(1), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Equal(tc.a, tc.b); got != tc.want {
				t.Errorf("Equal(%#v, %#v): want %t, got %t", tc.a, tc.b, tc.want, got)
			}
			if got := Equal(tc.b, tc.a); got != tc.want {
				t.Errorf("Equal(%#v, %#v): want %t, got %t", tc.b, tc.a, tc.want, got)
			}
		})
	}
}

func TestTypeName(t *testing.T) {
	for want, v := range map[string]any{
		"an object": map[string]any{}, "an array": []any{}, "a string": "", "a boolean": false, "null": nil, "a number": 1.5,
	} {
		if got := TypeName(v); got != want {
			t.Errorf("TypeName(%#v): want %s, got %s", v, want, got)
		}
	}
}
