package rollout

import (
	"cmp"
	"fmt"
	"slices"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// rule decides on a group, or leaves it to the next.
type rule func(*assessment) bool

func (a *assessment) is(phase groupPhase, reason, format string, args ...any) bool {
	a.phase, a.reason, a.message = phase, reason, fmt.Sprintf(format, args...)
	return true
}

// nothing is for a group all of whose pods are as they should be. What is remembered
// of evictions was about others.
func nothing(a *assessment) bool {
	if len(a.wanted)+len(a.attributed) > 0 {
		return false
	}
	m := &a.next
	*m = workloadState{ref: m.ref, hash: m.hash, generation: m.generation, begun: m.begun, changed: m.changed, reverts: m.reverts}
	return true
}

func bare(a *assessment) bool {
	return a.class == classNone && a.is(manual, reasonManual, "no controller would recreate the pod: delete it and create it again")
}

func job(a *assessment) bool {
	switch a.class {
	case classJob:
		return a.is(manual, reasonManual, "pods of a Job run to their end: delete the Job and create it again if they need it")
	case classCronJob:
		return a.is(nextRun, reasonNextRun, "pods of the next run get it")
	default:
		return false
	}
}

// leaving is for what has no pods soon.
func leaving(a *assessment) bool {
	return a.workload != nil && (a.workload.deleting || a.workload.replicas == 0)
}

// owners leaves alone what its owner recreates. Not even the annotation is written:
// new pods get what they should whenever they come.
func owners(a *assessment) bool {
	w := a.workload
	if len(a.wanted) == 0 {
		return false
	}
	switch {
	case a.optedOut || (w != nil && w.optedOut):
		return a.is(manual, reasonOwner, `its annotation %s is "false": its owner recreates its pods`, refractv1beta1.RolloutAnnotation)
	case w == nil:
		return false
	case w.paused:
		return a.is(manual, reasonOwner, "it is paused: its pods get it when its owner resumes it and they are recreated")
	case w.onDelete:
		return a.is(manual, reasonOwner, "its update strategy is OnDelete: its pods get it when its owner deletes them")
	case w.partitioned:
		return a.is(manual, reasonOwner, "its update strategy has a partition: its pods get it when its owner recreates them")
	default:
		return false
	}
}

// endless leaves alone pods of unknown controllers that run to an end: their end is
// what the controller waits for.
func endless(a *assessment) bool {
	if a.class != classOther {
		return a.workload == nil && a.is(waiting, reasonBusy, "its controller has not been seen yet")
	}
	if !slices.ContainsFunc(a.pods, func(p placed) bool { return !p.endless }) {
		return false
	}
	return a.is(manual, reasonManual, "its pods run to their end, and its kind is not known: its owner has to recreate them")
}

// unselected is for pods that their template does not make so.
func unselected(a *assessment) bool {
	if len(a.wanted) == 0 || len(a.fixable) > 0 || (!a.complete && len(a.current) > 0) {
		return false
	}
	if a.prospect.problem != "" {
		return a.is(waiting, reasonBlocked, "a pod of its template could not be: %s", a.prospect.problem)
	}
	return a.is(manual, reasonOwner, "pods of its template do not get it: the labels or the content of its pods are others")
}

func (j *judge) reverted(a *assessment) bool {
	m := &a.next
	if m.reason != reasonReverts || !j.now.Before(m.notBefore) || len(a.wanted) == 0 {
		return false
	}
	j.plan.due(j.now, m.notBefore)
	return a.is(manual, m.reason, "%s", m.message)
}

// untouched is for a workload whose template has not the annotation.
func (j *judge) untouched(a *assessment) bool {
	switch {
	case a.touched:
		return false
	case len(a.fixable) == 0:
		// Its pods are as they should be; a change came in between. If it was being
		// rolled it keeps its place for as long as it comes up.
		if a.inherited && j.progresses(a) == "" {
			a.is(rolling, reasonRolling, "%s", a.progress())
		}
		return true
	case !a.complete && !a.inherited && !a.ailing(j.now):
		return a.is(busy, reasonBusy, "it is not complete and available: %s", a.progress())
	default:
		return a.is(ready, "", "")
	}
}

// underWay is for a workload whose pods are being recreated.
func (j *judge) underWay(a *assessment) bool {
	m := &a.next
	if m.begun.IsZero() {
		m.begun = j.now
	}
	switch {
	case a.complete:
		m.progress = ""
		return len(a.fixable) == 0 && j.becameAvailable(a)
	case len(a.current) == 0 && a.ailing(j.now):
		return false
	case len(a.current) == 0:
		return a.is(busy, reasonBusy, "it is not complete and available: %s", a.progress())
	}
	stalled := j.progresses(a)
	if why := cmp.Or(j.failure(a), stalled); why != "" && !j.now.Before(m.lenient) {
		return a.is(failed, reasonHalted, "%s", why)
	}
	if m.reason != reasonBounced || !j.now.Before(m.notBefore) {
		a.victim, a.bounced = a.sickest()
	}
	return a.is(rolling, reasonRolling, "%s", a.progress())
}

// refused is for a workload one of whose pods could not be evicted, or came back as
// it was.
func (j *judge) refused(a *assessment) bool {
	if len(a.fixable) == 0 {
		return true
	}
	a.victim, a.bounced = a.oldestStale()
	m := &a.next
	if m.reason == reasonBounced && !a.bounced {
		return false
	}
	if m.reason == "" || m.reason == reasonReverts || !j.now.Before(m.notBefore) {
		return false
	}
	j.plan.due(j.now, m.notBefore)
	return a.is(waiting, m.reason, "%s", m.message)
}

// repair has the stale pods of a workload evicted whose template would not change any
// more: because no change of it recreates them, or because they were created while
// the webhook could not be reached.
func repair(a *assessment) bool {
	return a.victim != nil && a.is(ready, "", "")
}
