package restart

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"refract.dev/injection/inject"
)

// allReady reports whether all pods of the group are ready, except for pods in deletion.
func (a *assessment) allReady() bool {
	return !slices.ContainsFunc(a.pods, func(p placed) bool { return p.counts() && (!p.ready || p.uid == a.next.evicted) })
}

// former reports whether a workload that is being recreated still has pods of an earlier template. If the workload
// itself is already complete, these pods exist only in the view, because pods and workloads are watched separately. The
// readiness of such pods says nothing about their replacements.
func (a *assessment) former() bool {
	replaces := a.class == classDeployment || a.class == classTemplate
	return replaces && len(a.current) > 0 && slices.ContainsFunc(a.pods, func(p placed) bool {
		return p.counts() && p.templateHash != a.workload.templateHash
	})
}

// ailing reports whether all missing pods of an incomplete workload are stale and do not start. Recreating them cannot
// make the workload worse.
func (a *assessment) ailing(now time.Time) bool {
	if w := a.workload; w != nil && (w.observed < w.generation || !w.revised || w.updated < w.replicas || w.current > w.updated) {
		return false
	}
	sick := false
	for _, p := range a.pods {
		if !p.counts() || p.ready {
			continue
		}
		if !p.ails(now) || p.uid == a.next.evicted || p.status == nil || !p.status.staleFor(a.fixable) {
			return false
		}
		sick = true
	}
	return sick
}

// ails reports whether a container of the pod does not run because of a persistent problem.
func (p *pod) ails(now time.Time) bool { return p.trouble != "" && !now.Before(p.troubleFrom) }

// progress describes how far the recreation of a workload is.
func (a *assessment) progress() string {
	w := a.workload
	switch {
	case w == nil:
		return fmt.Sprintf("%d of %d pods are ready", a.ready(), max(a.counted, a.next.pods))
	case w.observed < w.generation:
		return "its controller has not seen its last change"
	case w.complete() && a.former():
		return "pods of its previous template still exist"
	default:
		return fmt.Sprintf("%d of %d pods are up to date, %d are available", w.updated, w.replicas, w.available)
	}
}

// ready returns the number of ready pods.
func (a *assessment) ready() int {
	n := 0
	for _, p := range a.pods {
		if p.counts() && p.ready {
			n++
		}
	}
	return n
}

// progresses records the progress of a workload. If there has been no progress for too long, it returns a message.
func (j *judge) progresses(a *assessment) string {
	m := &a.next
	if seen := a.progressState(); seen != m.progress {
		m.progress, m.changed = seen, j.now
	}
	if j.now.Before(m.lenient) {
		j.plan.due(j.now, m.lenient)
		return ""
	}
	if !j.now.Before(m.changed.Add(j.patience)) {
		return fmt.Sprintf("no progress in %s", j.patience)
	}
	j.plan.due(j.now, m.changed.Add(j.patience))
	return ""
}

// settle checks the minReadySeconds of the policies for which a complete workload was touched. It sets settling if the
// workload has not been available for so long.
func (j *judge) settle(a *assessment) {
	var wait int32
	for _, name := range a.current {
		wait = max(wait, j.policies[name].rollout.MinReadySeconds)
	}
	var since time.Time
	for _, p := range a.pods {
		if from := p.readyFrom(); p.counts() && from.After(since) {
			since = from
		}
	}
	if until := since.Add(time.Duration(wait) * time.Second); wait > 0 && j.now.Before(until) {
		a.settling = wait
		j.plan.due(j.now, until)
	}
}

// progressState returns a text that differs after any progress.
func (a *assessment) progressState() string {
	if w := a.workload; w != nil {
		return fmt.Sprint(w.observed, w.updated, w.current, w.available, a.counted, a.ready(), a.worst())
	}
	return fmt.Sprint(a.counted, a.ready(), a.worst())
}

// worst returns the largest number of stale pods that one policy has.
func (a *assessment) worst() int {
	most := 0
	for _, n := range a.stale {
		most = max(most, n)
	}
	return most
}

// failure describes the problem of a workload's new pods; empty without a problem.
func (j *judge) failure(a *assessment) string {
	m, w := &a.next, a.workload
	if w != nil && m.hash != "" && w.generation < m.generation {
		return "" // The view does not have the workload with the written annotation yet.
	}
	if w != nil && w.observed >= w.generation && w.stuck != "" {
		return w.stuck
	}
	trouble := ""
	for _, p := range a.pods {
		if p.deleting || !a.isNew(p.pod) || (p.status != nil && p.status.staleFor(a.attributed)) {
			continue
		}
		why := ""
		switch {
		case p.failed && !p.created.Before(m.begun.Truncate(time.Second)):
			why = "pod " + p.name + " failed"
		case !p.finished && p.ails(j.now):
			why = "pod " + p.name + " is in " + p.trouble
		case !p.finished && p.trouble != "":
			j.plan.due(j.now, p.troubleFrom)
		}
		if why != "" && (trouble == "" || why < trouble) {
			trouble = why
		}
	}
	return trouble
}

// isNew reports whether a pod was created after the workload was touched.
func (a *assessment) isNew(p *pod) bool {
	if a.workload != nil {
		return p.templateHash == a.prospect.hash
	}
	return !a.next.firstEviction.IsZero() && !p.created.Before(a.next.firstEviction.Truncate(time.Second))
}

// oldestStale returns the stale pod that is evicted first. Pods that are not ready come before ready pods, and older
// pods before newer ones. bounced is true if the pod was created after the first eviction.
func (a *assessment) oldestStale() (victim *pod, bounced bool) {
	for _, p := range a.pods {
		if !p.counts() || p.uid == a.next.evicted || p.status == nil || !p.status.staleFor(a.fixable) {
			continue
		}
		if victim == nil || cmp.Or(boolCompare(p.ready, victim.ready), p.created.Compare(victim.created), cmp.Compare(p.name, victim.name)) < 0 {
			victim = p.pod
		}
	}
	first := a.next.firstEviction
	return victim, victim != nil && !first.IsZero() && victim.created.After(first)
}

// sickest returns the stale pod that blocks the rollout of its workload; nil if there is none. The pod is not ready,
// and the workload's controller waits for its readiness and does not replace it.
func (a *assessment) sickest() (victim *pod, bounced bool) {
	victim, bounced = a.oldestStale()
	if victim == nil || victim.ready {
		return nil, false
	}
	replaced := a.class == classDeployment || a.ref.kind == "DaemonSet"
	if replaced && victim.templateHash != a.prospect.hash {
		return nil, false
	}
	return victim, bounced
}

// boolCompare orders false before true.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// staleFor reports whether a pod with this status is stale for any of the policies. The policies must be sorted.
func (s *podStatus) staleFor(policies []string) bool {
	return slices.ContainsFunc(s.verdicts, func(v verdict) bool {
		_, found := slices.BinarySearch(policies, v.policy)
		return v.state == inject.StateStale && found
	})
}
