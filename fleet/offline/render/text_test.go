package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

func TestMask(t *testing.T) {
	secret := schema.GroupKind{Kind: "Secret"}
	cases := map[string]struct {
		reason string
		kind   schema.GroupKind
		change tree.Change
		want   tree.Change
	}{
		"OtherKind": {
			reason: "Only Secrets are masked.", kind: schema.GroupKind{Kind: "ConfigMap"},
			change: tree.Change{Path: "/data/a", Op: tree.OpAdd, After: "b"}, want: tree.Change{Path: "/data/a", Op: tree.OpAdd, After: "b"},
		},
		"OtherGroup": {
			reason: "A Secret of another group is another kind.", kind: schema.GroupKind{Group: "example.com", Kind: "Secret"},
			change: tree.Change{Path: "/data/a", Op: tree.OpAdd, After: "b"}, want: tree.Change{Path: "/data/a", Op: tree.OpAdd, After: "b"},
		},
		"Replaced": {
			reason: "The masks show that a value changes.", kind: secret,
			change: tree.Change{Path: "/data/a", Op: tree.OpReplace, Before: "b", After: "c"},
			want:   tree.Change{Path: "/data/a", Op: tree.OpReplace, Before: "*** (before)", After: "*** (after)"},
		},
		"Keys": {
			reason: "Keys and nulls are shown.", kind: secret,
			change: tree.Change{Path: "/stringData", Op: tree.OpRemove, Before: map[string]any{"a": "b", "c": nil}},
			want:   tree.Change{Path: "/stringData", Op: tree.OpRemove, Before: map[string]any{"a": "***", "c": nil}},
		},
		"Misspelt": {
			reason: "Values in a field that Secrets do not have, here a misspelt one, are masked, too.", kind: secret,
			change: tree.Change{Path: "/stringdata/a", Op: tree.OpAdd, After: "b"},
			want:   tree.Change{Path: "/stringdata/a", Op: tree.OpAdd, After: "***"},
		},
		"Type": {
			reason: "The type of a Secret is shown.", kind: secret,
			change: tree.Change{Path: "/type", Op: tree.OpAdd, After: "Opaque"}, want: tree.Change{Path: "/type", Op: tree.OpAdd, After: "Opaque"},
		},
		"Labels": {
			reason: "Labels are shown.", kind: secret,
			change: tree.Change{Path: "/metadata/labels/a", Op: tree.OpAdd, After: "b"}, want: tree.Change{Path: "/metadata/labels/a", Op: tree.OpAdd, After: "b"},
		},
		"Annotations": {
			reason: "Annotations that may contain a copy of the Secret are masked.", kind: secret,
			change: tree.Change{Path: "/metadata/annotations", Op: tree.OpAdd, After: map[string]any{
				"team": "web", "kapp.k14s.io/original": `{"stringData":{"a":"b"}}`, "applied": strings.Repeat("H4sI", 40),
			}},
			want: tree.Change{Path: "/metadata/annotations", Op: tree.OpAdd, After: map[string]any{"team": "web", "kapp.k14s.io/original": "***", "applied": "***"}},
		},
		"Around": {
			reason: "The same applies to a change of the whole object.", kind: secret,
			change: tree.Change{Path: "", Op: tree.OpAdd, After: map[string]any{
				"kind": "Secret", "data": map[string]any{"a": "b"}, "metadata": map[string]any{"name": "n", "annotations": map[string]any{"x": "{}"}},
			}},
			want: tree.Change{Path: "", Op: tree.OpAdd, After: map[string]any{
				"kind": "Secret", "data": map[string]any{"a": "***"}, "metadata": map[string]any{"name": "n", "annotations": map[string]any{"x": "***"}},
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Mask(tc.kind, tc.change)); diff != "" {
				t.Errorf("%s\nMask(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
