package podtemplate

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   schema.GroupKind
		spec   string // Empty without a place.
	}{
		"Pod":                   {"A pod is its own template.", schema.GroupKind{Kind: "Pod"}, "/spec"},
		"Deployment":            {"Workloads keep it in spec.template.", schema.GroupKind{Group: "apps", Kind: "Deployment"}, "/spec/template/spec"},
		"StatefulSet":           {"As above.", schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "/spec/template/spec"},
		"DaemonSet":             {"As above.", schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, "/spec/template/spec"},
		"Job":                   {"As above.", schema.GroupKind{Group: "batch", Kind: "Job"}, "/spec/template/spec"},
		"CronJob":               {"A CronJob has a Job's template around it.", schema.GroupKind{Group: "batch", Kind: "CronJob"}, "/spec/jobTemplate/spec/template/spec"},
		"ReplicaSet":            {"The source document lists six kinds.", schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, ""},
		"ReplicationController": {"As above.", schema.GroupKind{Kind: "ReplicationController"}, ""},
		"OtherGroup":            {"A kind is a kind of its group.", schema.GroupKind{Group: "example.com", Kind: "Deployment"}, ""},
		"PodOfAGroup":           {"As above.", schema.GroupKind{Group: "metrics.k8s.io", Kind: "Pod"}, ""},
		"JobWithoutGroup":       {"As above.", schema.GroupKind{Kind: "Job"}, ""},
		"None":                  {"No kind at all.", schema.GroupKind{}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := Of(tc.kind)
			if p == nil || tc.spec == "" {
				if p != nil || tc.spec != "" {
					t.Fatalf("%s\nOf(%s): want %q, got %v", tc.reason, tc.kind, tc.spec, p)
				}
				return
			}
			got := fmt.Sprint(p.Spec, p.InitContainers, p.Containers, p.Lists())
			want := strings.ReplaceAll("SPEC SPEC/initContainers SPEC/containers [SPEC/initContainers SPEC/containers]", "SPEC", tc.spec)
			if got != want {
				t.Errorf("%s\nOf(%s): want %s, got %s", tc.reason, tc.kind, want, got)
			}
			if !strings.Contains(Kinds, tc.kind.Kind) {
				t.Errorf("Kinds does not name %s", tc.kind.Kind)
			}
		})
	}
}

// TestPart: precomputed and other places follow the same scheme.
func TestPart(t *testing.T) {
	p := Of(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	for list, key := range ListKeys {
		for _, index := range []int{0, 1, few - 1, few, 100} {
			for part, name := range map[Part]string{Image: "image", Command: "command", Args: "args", Env: "env"} {
				want := fmt.Sprintf("/spec/template/spec/%s/%d/%s", key, index, name)
				if got := p.Part(list, index, part).String(); got != want {
					t.Errorf("Part(%d, %d, %s): want %s, got %s", list, index, part, want, got)
				}
			}
		}
	}
}
