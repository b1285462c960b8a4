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
		"Workload":        {"It is what placement is for.", schema.GroupKind{Group: "apps", Kind: "Deployment"}, true},
		"Core":            {"So are the objects that workloads need.", schema.GroupKind{Kind: "Secret"}, true},
		"Event":           {"A cluster says it about itself.", schema.GroupKind{Kind: "Event"}, false},
		"Lease":           {"A cluster's programs talk among themselves by it.", schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, false},
		"Placing":         {"What places objects is the hub's.", schema.GroupKind{Group: "core.kubeadmiral.io", Kind: "PropagationPolicy"}, false},
		"Report":          {"A report is about all clusters.", schema.GroupKind{Group: "refract.dev", Kind: "Propagation"}, false},
		"InjectionPolicy": {"It is about the pods of the cluster that it is on.", schema.GroupKind{Group: "refract.dev", Kind: "ServiceInjectionPolicy"}, true},
		"OtherGroup":      {"A kind is not ours for its name.", schema.GroupKind{Group: "example.com", Kind: "Propagation"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := placement.Travels(tc.kind); got != tc.want {
				t.Errorf("%s: Travels(%s): want %t, got %t", tc.reason, tc.kind, tc.want, got)
			}
		})
	}
}
