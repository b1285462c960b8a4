package rollout

import (
	"slices"
	"time"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/output"
)

// How patient the controller is with things that it cannot change.
const (
	// lag is how long the caches may be behind what was written.
	lag = 30 * time.Second
	// If our annotation disappears within revertWindow after it was set, an owner of the
	// template has reverted it; later that counts as a change like others.
	revertWindow = 10 * time.Minute
	firstRevert  = time.Minute
	lastRevert   = time.Hour
)

// groupPhase is how far a group is.
type groupPhase int

const (
	settled groupPhase = iota // Nothing is to be done, or nothing can be.
	manual                    // Its owner has to do it.
	nextRun                   // It comes by itself.
	busy                      // A rollout of its own is under way.
	waiting                   // Not yet: reason and message say why.
	ready                     // It can be touched as far as it is concerned.
	rolling                   // Its pods are being recreated.
	failed                    // They are, and do not come up.
)

// assessment is the phase of a group, and why it is in it.
type assessment struct {
	*group

	// next is what is to be remembered of its workload: at first what was, then brought up to date.
	next workloadState
	// stale is how many of its pods are stale for each policy; counted how many there are.
	stale   map[string]int
	counted int
	// wanted are the policies that would have its stale pods recreated, and fixable those
	// of them that its new pods will get.
	wanted, fixable []string
	// current are the policies whose status says that it is being rolled, attributed
	// these and the fixable.
	current, attributed []string
	complete            bool
	touched             bool // Its template has the annotation, or it has none that could.
	inherited           bool // A rollout of ours that was overtaken by a change.

	phase           groupPhase
	reason, message string
	victim          *pod
	bounced         bool
}

// judge assesses groups one by one.
type judge struct {
	*snapshot

	plan *plan
	// policies by name; currents are the policies whose status names a workload as being
	// rolled, by the workload.
	policies map[string]*policy
	currents map[string][]string
	resumed  map[string]bool
	// reverts are the workloads whose owners took the annotation off, as statuses say.
	reverts map[string]string
}

// assess finds the phase of a group. What is remembered of it is brought up to date.
func (j *judge) assess(g *group) *assessment {
	m, known := j.previous[g.ref.uid]
	if message, reverts := j.reverts[g.ref.String()]; reverts && !known {
		m = workloadState{reverts: 2, reason: reasonReverts, message: message, notBefore: j.now.Add(firstRevert)}
	}
	m.ref = g.ref
	a := &assessment{group: g, next: m, stale: map[string]int{}}
	j.tally(a)
	j.observe(a)
	for _, decides := range []rule{
		nothing, bare, job, leaving, owners, endless, unselected, j.reverted, j.untouched, j.underWay, j.refused, repair,
	} {
		if decides(a) {
			break
		}
	}
	return a
}

// readReverts reads from a status of which owners a restart has made the controller forget
// that they revert the annotation.
func (j *judge) readReverts(p *policy) {
	for i := range p.status.Workloads {
		if w := &p.status.Workloads[i]; w.Reason == reasonReverts {
			j.reverts[w.Kind+"/"+w.Name] = w.Message
		}
	}
}

// tally counts what is stale, and for whom.
func (j *judge) tally(a *assessment) {
	for _, p := range a.pods {
		if !p.counts() {
			continue
		}
		a.counted++
		if p.status == nil {
			continue
		}
		for i := range p.status.verdicts {
			if v := &p.status.verdicts[i]; v.state == inject.StateStale {
				a.stale[v.policy]++
			}
		}
	}
	for name := range a.stale {
		p := j.policies[name]
		if p == nil || p.rollout.Strategy == refractv1beta1.RolloutNone {
			continue
		}
		a.wanted = append(a.wanted, name)
		if a.workload == nil || a.prospect.holds[name] {
			a.fixable = append(a.fixable, name)
		}
	}
	slices.Sort(a.wanted)
	slices.Sort(a.fixable)
	a.current = sortedUnion(j.currents[a.ref.String()], slices.DeleteFunc(slices.Clone(a.next.policies), func(name string) bool {
		return j.policies[name] == nil || j.policies[name].problem != ""
	}))
	a.attributed = sortedUnion(a.current, a.fixable)
}

// observe compares the group with what is remembered of it.
func (j *judge) observe(a *assessment) {
	j.compare(a)
	if a.complete {
		a.next.policies = nil
	}
}

func (j *judge) compare(a *assessment) {
	m, w := &a.next, a.workload
	if slices.ContainsFunc(a.attributed, func(name string) bool { return j.resumed[name] }) {
		m.lenient, m.changed = j.now.Add(j.patience), j.now
		m.pods = min(m.pods, a.counted) // Of an unknown kind it may have been made smaller.
	}
	if w == nil {
		a.touched = a.class == classOther
		a.complete = a.allReady() && a.counted >= m.pods && !j.unsure(a)
		return
	}
	behind := m.hash != "" && w.generation < m.generation && j.now.Before(m.begun.Add(lag))
	hash := w.templateHash
	switch {
	case behind:
		hash = m.hash
		j.plan.due(j.now, m.begun.Add(lag))
	case w.generation < m.generation:
		m.hash = "" // Not the one that is remembered: the cluster was set back.
	case m.hash != "" && hash != m.hash:
		j.countRevert(a)
	case m.reverts > 0 && j.now.After(m.begun.Add(revertWindow)) && m.hash != "":
		m.reverts = 0
	}
	a.touched = hash != "" && hash == a.prospect.hash
	a.complete = !behind && w.complete() && a.allReady() && int64(a.counted) >= w.replicas
	a.inherited = !a.touched && !a.complete && len(a.current) > 0
}

// unsure reports whether a pod of an owner of an unknown kind may be deleted of which
// nothing is remembered, because another replica evicted it.
func (j *judge) unsure(a *assessment) bool {
	m := &a.next
	if len(a.current) == 0 || !m.firstEviction.IsZero() {
		return false
	}
	if m.begun.IsZero() {
		m.begun = j.now
	}
	j.plan.due(j.now, m.begun.Add(lag))
	return j.now.Before(m.begun.Add(lag))
}

// countRevert counts that somebody has changed the annotation.
func (j *judge) countRevert(a *assessment) {
	m := &a.next
	m.hash = ""
	if j.now.After(m.begun.Add(revertWindow)) {
		m.reverts = 0
		return
	}
	m.reverts++
	if m.reverts < 2 {
		return
	}
	m.notBefore = j.now.Add(backoff(firstRevert, lastRevert, m.reverts-2))
	m.reason = reasonReverts
	m.message = "the annotation that was to have its pods recreated was taken off the template " + output.Count(m.reverts, "time", "times") +
		"; who owns the template has to recreate them"
	if len(a.wanted) > 0 {
		j.addRevertEvents(a)
	}
}

// backoff doubles from first to last.
func backoff(first, last time.Duration, tries int) time.Duration {
	return min(first<<min(max(tries, 0), 20), last)
}
