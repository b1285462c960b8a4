package tree

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatternPlaces(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"pv.kubernetes.io/bound": "yes", "pv.kubernetes.io/a": "b", "note": "x"}},
		"spec": map[string]any{
			"replicas": int64(3),
			"ports":    []any{map[string]any{"nodePort": int64(1)}, map[string]any{"port": int64(2)}, map[string]any{"nodePort": int64(3)}},
		},
	}
	cases := map[string]struct {
		reason  string
		pattern string
		want    []string
	}{
		"Field":   {reason: "A pattern without * has at most one place.", pattern: "/spec/replicas", want: []string{"/spec/replicas"}},
		"Missing": {reason: "Only places that exist are returned.", pattern: "/spec/template", want: nil},
		"Elements": {
			reason:  "The last element comes first, because its removal moves no other element.",
			pattern: "/spec/ports/*/nodePort", want: []string{"/spec/ports/2/nodePort", "/spec/ports/0/nodePort"},
		},
		"Index": {reason: "An index names one element.", pattern: "/spec/ports/2/nodePort", want: []string{"/spec/ports/2/nodePort"}},
		"Prefix": {
			reason: "A segment that ends with * stands for keys with this prefix.", pattern: "/metadata/annotations/pv.kubernetes.io~1*",
			want: []string{"/metadata/annotations/pv.kubernetes.io~1a", "/metadata/annotations/pv.kubernetes.io~1bound"},
		},
		"Inside": {reason: "A number contains no places.", pattern: "/spec/replicas/*", want: nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range MustParsePattern(tc.pattern).Places(object) {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nPlaces(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPatternCovers(t *testing.T) {
	cases := map[string]struct {
		reason  string
		pattern string
		keys    []string
		want    bool
	}{
		"Same":   {reason: "A place covers itself.", pattern: "/spec/replicas", keys: []string{"spec", "replicas"}, want: true},
		"Inside": {reason: "A place covers the places inside it.", pattern: "/spec", keys: []string{"spec", "replicas"}, want: true},
		"Around": {reason: "A place does not cover its parent.", pattern: "/spec/replicas", keys: []string{"spec"}, want: false},
		"Element": {
			reason:  "* covers an element with an unknown index.",
			pattern: "/webhooks/*/clientConfig/caBundle", keys: []string{"webhooks", "*", "clientConfig", "caBundle"}, want: true,
		},
		"Index": {
			reason:  "An index does not cover an element with an unknown index.",
			pattern: "/webhooks/0/name", keys: []string{"webhooks", "*", "name"}, want: false,
		},
		"Other": {reason: "Another field is not covered.", pattern: "/spec/replicas", keys: []string{"spec", "paused"}, want: false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := MustParsePattern(tc.pattern).Covers(tc.keys); got != tc.want {
				t.Errorf("%s\nCovers(%q) is %t", tc.reason, tc.keys, got)
			}
		})
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for _, text := range []string{"", "spec", "/spec/~2"} {
		if _, err := ParsePattern(text); !errors.Is(err, ErrPointer) {
			t.Errorf("ParsePattern(%q) returns %v, want an error that wraps ErrPointer", text, err)
		}
	}
}
