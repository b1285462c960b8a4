package podtemplate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTemplate(t *testing.T) {
	template := func() map[string]any {
		return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c"}}}}
	}
	spec := func(m map[string]any) map[string]any { return map[string]any{"spec": m} }
	cases := map[string]struct {
		reason string
		kind   schema.GroupKind
		object map[string]any
		at     string
		want   map[string]any
	}{
		"Pod": {
			reason: "A Pod is its own template, whatever its content.",
			kind:   schema.GroupKind{Kind: "Pod"}, object: spec(map[string]any{"template": template()}),
			want: spec(map[string]any{"template": template()}),
		},
		"Workload": {
			reason: "Most kinds have the template in their spec.",
			kind:   schema.GroupKind{Group: "extensions", Kind: "ReplicaSet"}, object: spec(map[string]any{"template": template()}),
			at: "/spec/template", want: template(),
		},
		"CronJob": {
			reason: "A CronJob has the pod template inside a Job template, in every version.",
			kind:   schema.GroupKind{Group: "batch", Kind: "CronJob"},
			object: spec(map[string]any{"jobTemplate": spec(map[string]any{"template": template()})}),
			at:     "/spec/jobTemplate/spec/template", want: template(),
		},
		"PodTemplate": {
			reason: "A PodTemplate has no spec.",
			kind:   schema.GroupKind{Kind: "PodTemplate"}, object: map[string]any{"template": template()},
			at: "/template", want: template(),
		},
		"Custom": {
			reason: "For unknown kinds, the structure decides.",
			kind:   schema.GroupKind{Group: "example.com", Kind: "Rollout"}, object: spec(map[string]any{"template": template()}),
			at: "/spec/template", want: template(),
		},
		"OtherTemplate": {
			reason: "A field named template without containers is no pod template.",
			kind:   schema.GroupKind{Group: "example.com", Kind: "Certificate"},
			object: spec(map[string]any{"template": map[string]any{"spec": map[string]any{"containers": "none"}}}),
		},
		"NoObject": {
			reason: "A value that is no object has no template.",
			kind:   schema.GroupKind{Group: "apps", Kind: "Deployment"}, object: map[string]any{"spec": []any{"template"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			at, got := Template(tc.kind, tc.object)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nTemplate(): -want, +got:\n%s", tc.reason, diff)
			}
			if at.String() != tc.at {
				t.Errorf("%s\nTemplate() is at %q, want %q", tc.reason, at, tc.at)
			}
		})
	}
}

func TestMakesPods(t *testing.T) {
	for kind, want := range map[schema.GroupKind]bool{
		{Kind: "Pod"}:                              true,
		{Kind: "ReplicationController"}:            true,
		{Group: "apps", Kind: "StatefulSet"}:       true,
		{Group: "extensions", Kind: "ReplicaSet"}:  true,
		{Group: "batch", Kind: "CronJob"}:          true,
		{Group: "example.com", Kind: "Deployment"}: false,
		{Group: "apps", Kind: "Pod"}:               false,
		{Kind: "Service"}:                          false,
	} {
		if got := MakesPods(kind); got != want {
			t.Errorf("MakesPods(%v) is %t, want %t", kind, got, want)
		}
	}
}
