package placement_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/placement"
)

func TestTravels(t *testing.T) {
	cases := map[string]struct {
		reason string
		kind   schema.GroupKind
		want   bool
	}{
		"Workload":        {"Workloads are placed.", schema.GroupKind{Group: "apps", Kind: "Deployment"}, true},
		"Core":            {"Objects that workloads need are placed.", schema.GroupKind{Kind: "Secret"}, true},
		"Event":           {"An Event describes its own cluster.", schema.GroupKind{Kind: "Event"}, false},
		"Lease":           {"Programs of one cluster coordinate themselves with Leases.", schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, false},
		"Placing":         {"Policies that control placement stay on the hub.", schema.GroupKind{Group: "core.kubeadmiral.io", Kind: "PropagationPolicy"}, false},
		"Report":          {"A Propagation describes all clusters.", schema.GroupKind{Group: "refract.dev", Kind: "Propagation"}, false},
		"InjectionPolicy": {"An injection policy concerns the pods of its cluster.", schema.GroupKind{Group: "refract.dev", Kind: "ServiceInjectionPolicy"}, true},
		"OtherGroup":      {"A kind of another group may have the same name.", schema.GroupKind{Group: "example.com", Kind: "Propagation"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := placement.Travels(tc.kind); got != tc.want {
				t.Errorf("%s: Travels(%s): want %t, got %t", tc.reason, tc.kind, tc.want, got)
			}
		})
	}
}
