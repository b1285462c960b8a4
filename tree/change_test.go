package tree

import "testing"

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
