package propagation

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
)

// A Job terminates, and a cluster may remove it then. It runs once on each cluster for each UID
// on the hub. The field run in the row of the cluster records this; it outlives the copy and the
// controllers. docs/design/other-writers.md lists the cases.

// runOf returns the run of an existing copy of a Job.
func runOf(source types.UID, ended member.Ended) *refractv1alpha1.RunStatus {
	run := &refractv1alpha1.RunStatus{Source: source, Outcome: refractv1alpha1.RunOutcome(ended.Outcome())}
	if ended != 0 {
		at := metav1.NewTime(ended.Time())
		run.Time = &at
	}
	return run
}

// expires reports whether a cluster removes an object by itself.
func expires(obj *unstructured.Unstructured) bool {
	if obj.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: member.Jobs.Group, Kind: "Job"}) {
		return false
	}
	ttl, found, err := unstructured.NestedFieldNoCopy(obj.Object, "spec", "ttlSecondsAfterFinished")
	return err == nil && found && ttl != nil
}

// lastRun returns the last run of a Job without a copy, given the recorded run and the last state of the
// copy. It is nil if the Job is to run: because it has not run yet, or because its copy was deleted before the
// Job ended. It is pure.
func lastRun(before *refractv1alpha1.RunStatus, source types.UID, last member.Vanished, known, expires bool) *refractv1alpha1.RunStatus {
	unknown := &refractv1alpha1.RunStatus{Source: source, Outcome: refractv1alpha1.OutcomeUnknown}
	switch {
	case known && last.Ended != 0:
		return runOf(source, last.Ended)
	case known && last.Seen:
		return nil
	case before == nil || before.Source != source:
		if known && expires {
			return unknown
		}
		return nil
	case before.Outcome != "":
		return before
	case expires:
		return unknown
	default:
		return nil
	}
}

// hasRun reports whether a Job without a copy on the cluster must not run there again, and records the
// reason.
func (a *applier) hasRun(key Key, p *desiredState, t *target, r *clusterStatus) bool {
	if key.GroupResource != member.Jobs {
		return false
	}
	last, known := a.member.Copies.Vanished(key)
	known = known && last.Source == a.sourceOf(key, p)
	r.run = lastRun(r.run, p.uid, last, known, t.variant.expires)
	return r.run != nil
}

const unknownOutcome = "the Job is no longer on the cluster, and Refract did not see how it ended. It has ttlSecondsAfterFinished, " +
	"so the cluster has probably removed it after it finished. Refract does not run it again. To run it again, delete the Job on the hub and create it again"

// ran records that a Job is not to run any more on the cluster.
func (a *applier) ran(key Key, r clusterStatus, t *target) (reconcile.Result, error) {
	r.owned, r.fields, r.uid = member.Ownership{}, "", ""
	r.generation, r.hash = t.generation, t.variant.hash
	r.state, r.reason, r.message = refractv1alpha1.StateSynced, "", ""
	if r.run.Outcome == refractv1alpha1.OutcomeUnknown {
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonOutcomeUnknown, unknownOutcome
	}
	result, err := a.done(key, r, 0)
	if r.run.Outcome != refractv1alpha1.OutcomeUnknown {
		a.member.Copies.ForgetVanished(key)
	}
	return result, err
}

// isRunBefore reports whether a copy belongs to an earlier Job of the same name, which was deleted on the hub.
func (a *applier) isRunBefore(key Key, p *desiredState, have member.Copy) bool {
	return key.GroupResource == member.Jobs && !have.Deleting && !have.Native && a.ours(key, have) && have.Source != a.sourceOf(key, p)
}

// rerun deletes the copy of an earlier Job, so that the new Job of this name runs: a change would not make
// an existing Job run again. A user requested the deletion by deleting the Job on the hub. The deletion would be
// wrong if
//   - a user of the cluster had changed the annotation that names the source: this harms that cluster alone;
//   - the earlier Job had the annotation orphan, or was adopted: then the copy stays;
//   - the copy holds data, and the earlier Job was deleted with its namespace or by a restore of the hub: Refract no
//     longer knows why it was deleted, so such a copy always waits for an approval;
//   - every deletion needs an approval: then the guard decides, as for the earlier Job;
//   - another object had replaced the copy: the UID is a precondition.
func (a *applier) rerun(ctx context.Context, key Key, p *desiredState, have member.Copy) (reconcile.Result, error) {
	r := a.statusFor(key, p)
	r.state, r.reason = refractv1alpha1.StatePending, reasonBeingDeleted
	r.message = "the Job that was deleted on the hub is still on the cluster; it is deleted there, and then the new one runs"
	if r.stays(have, true) {
		r.state, r.reason = refractv1alpha1.StateFailed, reasonAlreadyExists
		r.message = "the cluster keeps the Job of this name that was deleted on the hub, as that Job requested; " +
			"the new Job runs when it is deleted on the cluster"
		return a.done(key, r, lastRetry)
	}
	going := removal{Key: key, uid: have.UID, cause: causeDeleted}
	holds := holdingOf(key.GroupResource, have.Keep || p.keeping.Keep, a.keptKinds)
	if holds != holdsNothing {
		going.cause, going.needsApproval = causeMissing, true
	}
	if a.guard.all || going.needsApproval {
		copies := func() map[string]int { return a.state.holds(a.member.Name) }
		switch answer, left := a.guard.ask(going, copies, a.cluster.Approved(a.member.Name)); answer {
		case notYet:
			return a.done(key, r, left)
		case deny:
			r.reason, r.message = reasonAwaitingApproval, a.guard.says(going, a.member.Name)
			if going.needsApproval {
				r.message = holds.saysOfRun(a.member.Name)
			}
			return a.done(key, r, lastRetry)
		case allow:
		}
	}
	return a.deleteThen(ctx, key, r, have, func(gone bool) (reconcile.Result, error) {
		if gone {
			return reconcile.Result{RequeueAfter: a.soon(key)}, nil
		}
		return a.done(key, r, 0) // The deletion of the copy causes an event, which leads to a new attempt.
	})
}

// sayRun fills in the outcome of the run of a Job. If the copy no longer exists, it also sets the readiness from this
// outcome.
func sayRun(s *refractv1alpha1.ClusterStatus, source types.UID, copies *member.Copies, key Key) {
	switch {
	case s.Run == nil:
		return
	case s.Run.Source != source:
		s.Run = nil
		return
	}
	have, found := copies.Get(key)
	if found == member.Absent && s.Run.Outcome == "" { // The copy was deleted a moment ago.
		if last, known := copies.Vanished(key); known && strings.Contains(last.Source, "/"+string(source)+"/") {
			have.Ended = last.Ended
		}
	}
	if have.Ended != 0 {
		s.Run = runOf(source, have.Ended)
	}
	if found != member.Absent || s.Run.Time == nil {
		return
	}
	switch text := string(s.Run.Outcome) + " at " + s.Run.Time.UTC().Format(time.RFC3339) + ", and removed from the cluster"; s.Run.Outcome {
	case refractv1alpha1.OutcomeComplete:
		s.Readiness, s.ReadinessMessage = refractv1alpha1.ReadinessReady, text
	case refractv1alpha1.OutcomeFailed:
		s.Readiness, s.ReadinessMessage = refractv1alpha1.ReadinessFailed, text
	case refractv1alpha1.OutcomeUnknown:
	}
}

// completed reports whether this is the status of a completed Job.
func (r *clusterStatus) completed() bool {
	return r.run != nil && r.run.Outcome == refractv1alpha1.OutcomeComplete
}
