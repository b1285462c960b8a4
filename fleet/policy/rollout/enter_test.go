package rollout

import (
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestPlacedNowhere verifies that a rollout is not complete while the object is placed on no cluster and no cluster has
// had the change.
func TestPlacedNowhere(t *testing.T) {
	const waiting, progressing, complete = refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutComplete
	joins := func(c *Cluster) { c.Joining, c.Changes, c.Differs = true, true, true }
	t.Run("without a RolloutStatus", func(t *testing.T) {
		f := newFoundFleet(t, "")
		all := f.in.Clusters
		f.in.Clusters = nil
		f.want(waiting, "")
		f.in.Clusters = all
		f.each("abc", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff")
	})
	t.Run("without a RolloutStatus, new object", func(t *testing.T) {
		f := newFoundFleet(t, "")
		all := f.in.Clusters
		f.in.Clusters = nil
		f.want(waiting, "")
		f.in.Clusters = all
		f.want(complete, "ttt")
	})
	t.Run("at the edit", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.want(complete, "ttt")
		all := f.in.Clusters
		f.in.Clusters, f.in.Target = nil, revision(2)
		f.want(waiting, "")
		f.want(waiting, "")
		f.in.Clusters = all
		f.each("abc", joins)
		f.want(progressing, "tgg")
	})
	t.Run("while the canary tries the change", func(t *testing.T) {
		f := newFoundFleet(t, "")
		f.want(complete, "ttt")
		f.in.Target = revision(2)
		f.want(progressing, "tgg")
		all := f.in.Clusters
		f.in.Clusters = nil
		f.want(waiting, "")
		f.in.Clusters = all
		f.each("abc", joins)
		f.want(progressing, "tgg")
	})
}

// TestEnters verifies that a cluster which joins with other content than its assigned one keeps that content until its
// wave.
func TestEnters(t *testing.T) {
	const waiting, progressing, complete = refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutComplete
	// narrowed is a fleet in which only b got the last edit. The other clusters left before the edit, and returned with
	// their former content.
	narrowed := func(t *testing.T) *foundFleet {
		t.Helper()
		f := newFoundFleet(t, "")
		f.want(complete, "ttt")
		all := f.in.Clusters
		f.in.Clusters, f.in.Target = all[1:2], revision(2)
		f.want(progressing, "t")
		f.each("b", holds)
		f.want(complete, "t")
		f.in.Clusters = all
		return f
	}
	// edited is a fleet whose canary tries an edit.
	edited := func(t *testing.T, action refractv1alpha1.FailureAction) *foundFleet {
		t.Helper()
		f := newFoundFleet(t, action)
		f.want(complete, "ttt")
		f.in.Target = revision(2)
		f.want(progressing, "tgg")
		return f
	}
	t.Run("an edit of one cluster is complete", func(t *testing.T) {
		f := narrowed(t)
		f.each("ac", keeps)
		f.want(complete, "ftf")
		f.each("ac", keeps)
		f.want(progressing, "fff")
		f.want(progressing, "tff") // The canary must stay ready for a while.
	})
	t.Run("the copy was removed", func(t *testing.T) {
		f := narrowed(t)
		f.each("ac", func(c *Cluster) { c.Joining = true })
		f.want(complete, "ttt")
	})
	t.Run("nobody has looked", func(t *testing.T) {
		f := narrowed(t)
		f.each("ac", unseen)
		f.want(complete, "ttt") // A replica reads the content before it writes.
		f.each("ac", keeps)
		f.want(complete, "ftf")
	})
	t.Run("a rollout is under way", func(t *testing.T) {
		f := edited(t, "")
		f.each("c", keeps)
		f.want(progressing, "tgf")
		f.want(progressing, "tgf")
	})
	t.Run("the wave of a cluster is open, and its copy is found late", func(t *testing.T) {
		f := edited(t, "")
		f.each("a", keeps)
		f.want(progressing, "fgg")
		f.want(progressing, "tgg") // The cluster changes in the open wave, and the others wait for it.
	})
	t.Run("another cluster has the superseded target", func(t *testing.T) {
		f := edited(t, "")
		f.in.Target = revision(3)
		f.each("a", offline)
		f.want(waiting, "ggg")
		f.each("c", keeps)
		f.want(waiting, "fgf") // At most three revisions are kept.
	})
	t.Run("the rollout is reverted, and there is a newer edit", func(t *testing.T) {
		f := edited(t, refractv1alpha1.ActionRevert)
		f.each("c", keeps)
		f.want(progressing, "tgf")
		f.each("c", keeps)
		f.each("a", func(c *Cluster) { holds(c); c.Refused = "no such image" })
		f.want(refractv1alpha1.RolloutReverting, "ggf")
		f.each("c", keeps)
		f.each("a", func(c *Cluster) { c.Refused = "" })
		f.want(refractv1alpha1.RolloutReverted, "ggf")
		f.in.Target = revision(3)
		f.each("c", keeps)
		f.want(progressing, "tgf")
	})
}
