package restart

import (
	"cmp"
	"fmt"
	"slices"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// rule decides on the phase of a group. If it returns false, the next rule decides.
type rule func(*assessment) bool

func (a *assessment) is(phase groupPhase, reason, format string, args ...any) bool {
	a.phase, a.reason, a.message = phase, reason, fmt.Sprintf(format, args...)
	return true
}

// nothing decides on a group whose pods are all up to date. Its evictions are no longer needed and are dropped. But if
// the replacement of the last evicted pod is missing, they are kept, because a user may have deleted the policy only to
// create it again.
func (j *judge) nothing(a *assessment) bool {
	if len(a.wanted)+len(a.attributed) > 0 {
		return false
	}
	m := &a.next
	kept := workloadState{ref: m.ref, hash: m.hash, generation: m.generation, begun: m.begun, changed: m.changed, reverts: m.reverts}
	if !a.complete && m.lacks(j.now, j.patience) {
		kept.evicted, kept.pods = m.evicted, m.pods
	}
	*m = kept
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
		return a.is(nextRun, reasonNextRun, "pods of the next run are injected")
	default:
		return false
	}
}

// leaving decides on a workload that is being deleted or has no replicas.
func leaving(a *assessment) bool {
	return a.workload != nil && (a.workload.deleting || a.workload.replicas == 0)
}

// owners leaves a workload alone if its owner recreates the pods. The annotation is not written either, because new
// pods are injected without it. An owner of an unknown kind is read again later, because no event reports the end of
// its opt-out.
func (j *judge) owners(a *assessment) bool {
	w := a.workload
	if len(a.wanted) == 0 {
		return false
	}
	switch {
	case a.optedOut || (w != nil && w.optedOut):
		if a.class == classOther {
			j.plan.due(j.now, a.readAgain)
		}
		return a.is(manual, reasonOwner, `its annotation %s is "false": its owner recreates its pods`, refractv1beta1.RolloutAnnotation)
	case w == nil:
		return false
	case w.paused:
		return a.is(manual, reasonOwner, "it is paused: its pods are injected when its owner resumes it and they are recreated")
	case w.onDelete:
		return a.is(manual, reasonOwner, "its update strategy is OnDelete: its pods are injected when its owner deletes them")
	case w.partitioned:
		return a.is(manual, reasonOwner, "its update strategy has a partition: its pods are injected when its owner recreates them")
	default:
		return false
	}
}

// endless leaves pods alone that run to completion and have an unknown controller, because this controller waits for
// their completion.
func endless(a *assessment) bool {
	if a.class != classOther {
		return a.workload == nil && a.is(waiting, reasonBusy, "its controller has not been seen yet")
	}
	if !slices.ContainsFunc(a.pods, func(p placed) bool { return !p.endless }) {
		return false
	}
	return a.is(manual, reasonManual, "its pods run to their end, and its kind is not known: its owner has to recreate them")
}

// unselected decides on a group whose new pods would not be injected, so that a recreation would not help.
func unselected(a *assessment) bool {
	if len(a.wanted) == 0 || len(a.fixable) > 0 || (!a.complete && len(a.current) > 0) {
		return false
	}
	if a.prospect.problem != "" {
		return a.is(waiting, reasonBlocked, "a pod of its template would fail: %s", a.prospect.problem)
	}
	return a.is(manual, reasonOwner, "pods of its template are not injected: the labels or the content of its pods differ")
}

// settles decides on a complete workload whose pods are all up to date. Its phase remains rolling until it has been
// available for the minReadySeconds of the policies.
func (a *assessment) settles() bool {
	return a.settling == 0 || a.is(rolling, reasonRolling, "it is available; the next workload follows after %d seconds of availability", a.settling)
}

func (j *judge) reverted(a *assessment) bool {
	m := &a.next
	if m.reason != reasonReverts || !j.now.Before(m.notBefore) || len(a.wanted) == 0 {
		return false
	}
	j.plan.due(j.now, m.notBefore)
	if a.inherited && j.progresses(a) == "" {
		return a.is(rolling, m.reason, "%s", m.message) // The owner is restoring the earlier pods, and other groups wait for them.
	}
	return a.is(manual, m.reason, "%s", m.message)
}

// untouched decides on a workload whose template lacks the annotation.
func (j *judge) untouched(a *assessment) bool {
	switch {
	case a.touched:
		return false
	case len(a.fixable) == 0:
		// A change during the rollout has made all pods up to date. The workload may still be incomplete: then it keeps
		// its place as long as it makes progress.
		if a.inherited && j.progresses(a) == "" {
			return a.is(rolling, reasonRolling, "%s", a.progress())
		}
		return a.settles()
	case !a.complete && !a.inherited && !a.ailing(j.now):
		return a.is(busy, reasonBusy, "it is not complete and available: %s", a.progress())
	default:
		return a.is(ready, "", "")
	}
}

// underWay decides on a workload whose pods are being recreated.
func (j *judge) underWay(a *assessment) bool {
	m := &a.next
	if m.begun.IsZero() {
		m.begun = j.now
	}
	switch {
	case a.complete:
		m.progress = ""
		return len(a.fixable) == 0 && a.settles()
	case len(a.current) == 0 && a.ailing(j.now):
		return false
	case len(a.current) == 0:
		return a.is(busy, reasonBusy, "it is not complete and available: %s", a.progress())
	}
	victim, bounced := a.sickest() // It is not evicted during the pause after an eviction that was refused or did not help.
	delayed := victim != nil && j.now.Before(m.notBefore)
	refused := delayed && m.reason == reasonBudget
	if delayed {
		j.plan.due(j.now, m.notBefore)
	} else {
		a.victim, a.bounced = victim, bounced
	}
	if a.inherited && a.victim != nil {
		return a.is(ready, "", "") // The pods do not work with the content that they have, so the new content may be tried on the next pod.
	}
	if a.inherited && refused {
		return a.is(waiting, m.reason, "%s", m.message) // No pod has the new content yet, so its rollout is not halted.
	}
	stalled := j.progresses(a)
	if why := cmp.Or(j.failure(a), stalled); why != "" && !j.now.Before(m.lenient) {
		return a.is(failed, reasonHalted, "%s", why)
	}
	if refused {
		return a.is(rolling, m.reason, "%s", m.message)
	}
	return a.is(rolling, reasonRolling, "%s", a.progress())
}

// refused decides on a workload that waits after an eviction that was refused, or whose replacement is stale, too.
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

// repair evicts the stale pods of a workload whose template has the annotation. Either the controller does not recreate
// pods after a change of the template, or the pods were created while the webhook was unreachable.
func repair(a *assessment) bool {
	return a.victim != nil && a.is(ready, "", "")
}
