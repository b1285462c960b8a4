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
		spec   string // Empty for a kind without a pod template.
	}{
		"Pod":                   {"A pod is its own template.", schema.GroupKind{Kind: "Pod"}, "/spec"},
		"Deployment":            {"Workloads have the template in spec.template.", schema.GroupKind{Group: "apps", Kind: "Deployment"}, "/spec/template/spec"},
		"StatefulSet":           {"A StatefulSet has the same place.", schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "/spec/template/spec"},
		"DaemonSet":             {"A DaemonSet has the same place.", schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, "/spec/template/spec"},
		"Job":                   {"A Job has the same place.", schema.GroupKind{Group: "batch", Kind: "Job"}, "/spec/template/spec"},
		"CronJob":               {"A CronJob has the pod template inside a Job template.", schema.GroupKind{Group: "batch", Kind: "CronJob"}, "/spec/jobTemplate/spec/template/spec"},
		"ReplicaSet":            {"A ReplicaSet is not one of the six supported kinds.", schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, ""},
		"ReplicationController": {"A ReplicationController is not one of the six supported kinds.", schema.GroupKind{Kind: "ReplicationController"}, ""},
		"OtherGroup":            {"A kind of another group has no known template.", schema.GroupKind{Group: "example.com", Kind: "Deployment"}, ""},
		"PodOfAGroup":           {"A Pod of another group has no known template.", schema.GroupKind{Group: "metrics.k8s.io", Kind: "Pod"}, ""},
		"JobWithoutGroup":       {"A Job without a group has no known template.", schema.GroupKind{Kind: "Job"}, ""},
		"None":                  {"An empty kind has no template.", schema.GroupKind{}, ""},
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
