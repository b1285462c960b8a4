package propagation

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/member"
)

func TestCheckNamespaceLabel(t *testing.T) {
	cases := map[string]struct{ reason, pattern, want string }{
		"Key":         {"A label is named by its key.", "team", ""},
		"Prefixed":    {"The same with a prefix.", "example.com/team", ""},
		"All":         {"All labels of a prefix.", "example.com/*", ""},
		"Everything":  {"Labels from Kubernetes and other clients are not meant for members.", "*", "neither the key of a label nor PREFIX/*"},
		"PartOfAName": {"A part of a name is no pattern.", "example.com/te*", "neither the key of a label nor PREFIX/*"},
		"Ours":        {"A namespace with the label of a copy would count as a copy.", "kubeadmiral.io/managed", "do not travel"},
		"AllOurs":     {"The same.", "kubeadmiral.io/*", "do not travel"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckNamespaceLabel(tc.pattern)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nCheckNamespaceLabel(%q): want %q, got %v", tc.reason, tc.pattern, tc.want, err)
			}
		})
	}
}

func TestNamespaceLabelChanges(t *testing.T) {
	const enforce, version = "pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/enforce-version"
	type labels = map[string]string
	cases := map[string]struct {
		reason    string
		own, have labels // The labels that Refract set, and those that others set.
		hub       labels
		want      map[string]any
	}{
		"Missing":         {reason: "A restriction of the hub applies to the member.", hub: labels{enforce: "restricted"}, want: map[string]any{enforce: "restricted"}},
		"Same":            {reason: "Correct labels are not written.", own: labels{enforce: "restricted"}, hub: labels{enforce: "restricted"}, want: map[string]any{}},
		"Changed":         {reason: "Changes on the hub are applied.", own: labels{enforce: "baseline"}, hub: labels{enforce: "restricted"}, want: map[string]any{enforce: "restricted"}},
		"Removed":         {reason: "Removals are applied, too.", own: labels{enforce: "baseline"}, hub: labels{}, want: map[string]any{enforce: nil}},
		"Theirs":          {reason: "A label that the member's administrator has set may be stricter.", have: labels{enforce: "restricted"}, hub: labels{enforce: "baseline"}, want: map[string]any{}},
		"TheirsRemains":   {reason: "A label that others have set is not removed.", have: labels{enforce: "restricted"}, hub: labels{}, want: map[string]any{}},
		"RemovedOfTheirs": {reason: "The other label of its pair is not removed either.", own: labels{enforce: "restricted"}, have: labels{version: "latest"}, hub: labels{}, want: map[string]any{}},
		"TheirVersion":    {reason: "With an older version, the administrator's standard would permit more.", have: labels{enforce: "restricted"}, hub: labels{enforce: "baseline", version: "v1.20"}, want: map[string]any{}},
		"OfTheirs":        {reason: "A version that the administrator has set belongs to the standard beside it.", own: labels{enforce: "restricted"}, have: labels{version: "latest"}, hub: labels{enforce: "baseline"}, want: map[string]any{}},
		"Listed":          {reason: "Only configured labels are copied.", own: labels{"old": "1", "example.com/b": "1"}, hub: labels{"team": "a", "example.com/a": "1", "x": "y"}, want: map[string]any{"team": "a", "example.com/a": "1", "example.com/b": nil}},
		"OtherMode":       {reason: "Warnings are independent of enforcement.", have: labels{enforce: "restricted"}, hub: labels{"pod-security.kubernetes.io/warn": "baseline"}, want: map[string]any{"pod-security.kubernetes.io/warn": "baseline"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			carried := namespaceLabels{"team", "example.com/*"}
			ns := &member.Namespace{Labels: labels{}, Own: map[string]bool{}}
			maps.Copy(ns.Labels, tc.have)
			for key, value := range tc.own {
				ns.Labels[key], ns.Own[key] = value, true
			}
			if diff := cmp.Diff(tc.want, carried.changes(ns, carried.of(tc.hub))); diff != "" {
				t.Errorf("%s\nchanges(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
