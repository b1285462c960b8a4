package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// TestHoldForgetsClusters verifies that a cluster loses its place in the rollout if it leaves the object while no
// revision can be stored. Otherwise, it would get the change of a halted rollout when it returns.
func TestHoldForgetsClusters(t *testing.T) {
	was := &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutHalted, Target: revision(1), LastGood: revision(0),
		Current: []refractv1alpha1.ReleasedCluster{{Name: "c1"}, {Name: "c2"}}, Done: []string{"c3", "c4"},
		Failed:     []refractv1alpha1.FailedCluster{{Name: "c5"}},
		Superseded: new(revision(2)), OnSuperseded: []string{"c6"}, Reverting: []string{"c7"},
	}
	want := was.DeepCopy()
	want.Current, want.Done, want.Failed, want.Superseded, want.OnSuperseded, want.Reverting = want.Current[:1], want.Done[:1], want.Failed[:0], nil, nil, want.Reverting[:0]
	want.Message = "no room"
	got := Hold(was, revision(1), []Cluster{{Cluster: match.Cluster{Name: "c1"}}, {Cluster: match.Cluster{Name: "c3"}}}, "no room")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Hold(): -want, +got:\n%s", diff)
	}
}

// TestEditsOfAnOfflineCluster verifies that a revert includes an offline cluster with the content of an earlier edit.
// The RolloutStatus has no room for that revision, so the cluster is assigned the last good one.
func TestEditsOfAnOfflineCluster(t *testing.T) {
	policy := ownPolicy(t, "own", "u")
	now := start
	status := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: revision(0), LastGood: revision(0), Policies: references(policy)}
	next := func(target int, change func(a, b *Cluster)) {
		t.Helper()
		for range 3 {
			now = now.Add(time.Second)
			a := Cluster{Cluster: match.Cluster{Name: "a"}, Holds: true, Ready: true, ReadySince: start, Changes: true, Differs: true}
			b := a
			b.Name = "b"
			change(&a, &b)
			status, _ = Next(status, &Input{Policy: policy, Target: revision(target), Clusters: []Cluster{a, b}, Now: now, Nonce: "n"})
		}
	}
	next(1, func(_, b *Cluster) { b.Ready = false })                                  // Both get the first edit.
	next(2, func(a, b *Cluster) { b.Offline, a.Ready, b.Ready = true, false, false }) // Only a gets the second one, and b keeps the first.
	next(3, func(a, b *Cluster) { b.Offline, a.Ready, b.Ready = true, false, false })
	if diff := cmp.Diff([]string{"b"}, status.Reverting); diff != "" || Assigned(status, "b").Name != "rev0" {
		t.Errorf("after the third edit: want b assigned rev0 and still to be reverted, got %s, %s", Assigned(status, "b").Name, diff)
	}
}
