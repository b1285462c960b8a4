package ui

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/status"
)

// TestStoppedChanges: if the change of an object waits or was halted or reverted, its copies are never shown as right,
// even if they are ready. Each of these states has its own symbol. The summary counts it, and a filter selects it.
func TestStoppedChanges(t *testing.T) {
	synced := func(name string) refractv1alpha1.ClusterStatus {
		return refractv1alpha1.ClusterStatus{Name: name, State: refractv1alpha1.StateSynced, Hash: "aa", Readiness: refractv1alpha1.ReadinessReady}
	}
	rollout := func(phase refractv1alpha1.RolloutPhase) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{
			Phase: phase, Target: refractv1alpha1.Revision{Name: "new"}, LastGood: refractv1alpha1.Revision{Name: "old"}, Done: []string{"a"},
		}
	}
	cases := map[string]struct {
		reason string
		status refractv1alpha1.PropagationStatus
		want   map[string]int // By state.
	}{
		"None":        {"Without a rollout, the copies are right.", refractv1alpha1.PropagationStatus{}, map[string]int{"right": 2}},
		"Complete":    {"The change has reached all clusters.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutComplete)}, map[string]int{"right": 2}},
		"Progressing": {"One cluster has the change, and the other gets it later.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutProgressing)}, map[string]int{"right": 1, "later": 1}},
		"Waiting":     {"The rollout waits for a user.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutWaiting)}, map[string]int{"held": 2}},
		"Halted":      {"The contents of the hub and of the clusters differ.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutHalted)}, map[string]int{"halted": 2}},
		"Stalled":     {"Clusters keep the failed change.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutStalled)}, map[string]int{"halted": 2}},
		"Reverting":   {"The change is being reverted.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutReverting)}, map[string]int{"reverted": 2}},
		"Reverted":    {"The change was reverted.", refractv1alpha1.PropagationStatus{Rollout: rollout(refractv1alpha1.RolloutReverted)}, map[string]int{"reverted": 2}},
		"Placement":   {"A change of the placement waits, too.", refractv1alpha1.PropagationStatus{Held: &refractv1alpha1.HeldPlacement{}}, map[string]int{"held": 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.status.Clusters = []refractv1alpha1.ClusterStatus{synced("a"), synced("b")}
			o := &status.Object{Object: render.Object{Kind: "Deployment", Namespace: "shop", Name: "web"}, Status: &tc.status}
			m := (&matrix{clusters: []string{"a", "b"}, labels: make([]labels.Set, 2), index: map[string]int{"a": 0, "b": 1}}).with([]*status.Object{o}, true)
			got := map[string]int{}
			for _, c := range m.page(filterOf(nil)).Counts {
				got[c.State.Name()] = c.Count
				if found := m.page(filterOf(map[string][]string{"state": {c.State.Name()}})); found.Objects != 1 {
					t.Errorf("%s\nthe state %s finds %d objects, want 1", tc.reason, c.State.Name(), found.Objects)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nwhat is counted: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
