package restart

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// How long the controller waits for changes that it cannot cause.
const (
	// lag is the longest delay between a write and its appearance in the caches.
	lag = 30 * time.Second
	// If the annotation disappears within revertWindow after it was written, an owner of the template has reverted it.
	// A later removal is not counted as a revert.
	revertWindow = 10 * time.Minute
	firstRevert  = time.Minute
	lastRevert   = time.Hour
)

// groupPhase is the phase of a group's recreation.
type groupPhase int

const (
	settled groupPhase = iota // Nothing needs to be done, or nothing can be done.
	manual                    // A user or the workload's owner must recreate the pods.
	nextRun                   // The next run of the CronJob has the items.
	busy                      // The workload has a rollout of its own.
	waiting                   // The group waits; reason and message have the cause.
	ready                     // The group may be recreated, as far as its own state matters.
	rolling                   // The pods of the group are being recreated.
	failed                    // The recreated pods of the group do not start.
)

// assessment is the phase of a group with the reasons.
type assessment struct {
	*group

	// next is the state of the workload to remember. It begins as the previous state, and assess updates it.
	next workloadState
	// stale has the number of stale pods for each policy. counted is the number of pods.
	stale   map[string]int
	counted int
	// wanted are the policies that want the group's stale pods to be recreated. fixable are the policies in wanted that
	// would apply to new pods.
	wanted, fixable []string
	// current are the policies whose status lists the group as being recreated. attributed are the policies in current
	// or fixable.
	current, attributed []string
	complete            bool
	touched             bool // The template has the annotation, or the kind of the owner is unknown.
	inherited           bool // The group is being recreated, but a later change has replaced the content of this recreation.
	// settling is the number of seconds for which a complete group must be available before the next group follows. It
	// is 0 if the group has already been available for so long.
	settling int32

	phase           groupPhase
	reason, message string
	victim          *pod
	bounced         bool
}

// judge assesses groups one by one.
type judge struct {
	*snapshot

	plan *plan
	// policies are the policies by name. currents has the names of policies by workload: the policies whose status
	// lists the workload as being recreated.
	policies map[string]*policy
	currents map[string][]string
	resumed  map[string]bool
	// evicted are the numbers of pods of workloads of unknown kinds before the last eviction, according to the statuses.
	evicted map[types.UID]int
	// reverts are the workloads whose owners have removed the annotation, according to the statuses. The values are the
	// messages there.
	reverts map[string]string
}

// assess determines the phase of a group and updates its remembered state.
func (j *judge) assess(g *group) *assessment {
	m, known := j.previous[g.ref.uid]
	if message, reverts := j.reverts[g.ref.String()]; reverts && !known {
		m = workloadState{reverts: 2, reason: reasonReverts, message: message, notBefore: j.now.Add(firstRevert)}
	}
	m.ref = g.ref
	// After a restart, or an eviction whose answer was lost, only the status has the number.
	m.pods = max(m.pods, j.evicted[g.ref.uid])
	a := &assessment{group: g, next: m, stale: map[string]int{}}
	j.tally(a)
	j.observe(a)
	for _, decides := range []rule{
		j.nothing, bare, job, leaving, j.owners, endless, unselected, j.reverted, j.untouched, j.underWay, j.refused, repair,
	} {
		if decides(a) {
			break
		}
	}
	return a
}

// readReverts reads from a status which owners revert the annotation. After a restart this is not in memory.
func (j *judge) readReverts(p *policy) {
	for i := range p.status.Workloads {
		if w := &p.status.Workloads[i]; w.Reason == reasonReverts {
			j.reverts[w.Kind+"/"+w.Name] = w.Message
		}
	}
}

// tally counts the stale pods for each policy.
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
	j.recall(a)
	a.current = sortedUnion(j.currents[a.ref.String()], slices.DeleteFunc(slices.Collect(maps.Keys(a.next.contents)), func(name string) bool {
		return j.policies[name] == nil || j.policies[name].problem != ""
	}))
	a.attributed = sortedUnion(a.current, a.fixable)
}

// recall restores, after a restart, the contents for which a workload was touched. It takes the hashes from the
// statuses of policies. The workload may in fact have been touched for an earlier content; then the other workloads
// wait a little longer than necessary.
func (j *judge) recall(a *assessment) {
	written := map[string]string{}
	for _, name := range j.currents[a.ref.String()] {
		if _, known := a.next.contents[name]; !known {
			written[name] = j.policies[name].status.Rollout.Hash
		}
	}
	if len(written) > 0 {
		a.next.contents = a.next.with(written)
	}
}

// observe compares the group with the remembered state of its workload.
func (j *judge) observe(a *assessment) {
	j.compare(a)
	if a.complete {
		a.next.contents = nil
		j.settle(a)
	}
}

func (j *judge) compare(a *assessment) {
	m, w := &a.next, a.workload
	if slices.ContainsFunc(a.attributed, func(name string) bool { return j.resumed[name] }) {
		m.lenient, m.changed = j.now.Add(j.patience), j.now
		m.pods = min(m.pods, a.counted) // A user may have scaled an owner of an unknown kind down.
	}
	if w == nil {
		j.shrink(a)
		a.touched = a.class == classOther
		a.complete = a.allReady() && a.counted >= m.pods && !j.unsure(a)
		a.inherited = a.touched && !a.complete && j.overtaken(a)
		return
	}
	behind := m.hash != "" && w.generation < m.generation && j.now.Before(m.begun.Add(lag))
	hash := w.templateHash
	switch {
	case behind:
		hash = m.hash
		j.plan.due(j.now, m.begun.Add(lag))
	case w.generation < m.generation:
		m.hash = "" // The cluster was restored from a backup, because the generation is lower than the remembered one.
	case m.hash != "" && hash != m.hash:
		j.countRevert(a)
	case m.reverts > 0 && j.now.After(m.begun.Add(revertWindow)) && m.hash != "":
		m.reverts = 0
	}
	a.touched = hash != "" && hash == a.prospect.hash
	a.complete = !behind && w.complete() && a.allReady() && int64(a.counted) >= w.replicas && !a.former()
	a.inherited = !a.touched && !a.complete && len(a.current) > 0
}

// overtaken reports whether a policy has changed after a pod was evicted for it, so that the group's stale pods lack
// the new content. It concerns owners of unknown kinds.
func (j *judge) overtaken(a *assessment) bool {
	return slices.ContainsFunc(a.fixable, func(name string) bool {
		hash, touched := a.next.contents[name]
		return touched && hash != j.policies[name].hash
	})
}

// shrink lowers the expected number of pods of an owner of an unknown kind. If the owner is not being recreated and has
// had too few pods for the time patience, a user has scaled it down.
func (j *judge) shrink(a *assessment) {
	m := &a.next
	if len(a.current) > 0 || a.counted >= m.pods {
		return
	}
	if until := m.changed.Add(j.patience); j.now.Before(until) {
		j.plan.due(j.now, until)
		return
	}
	m.pods = a.counted
}

// unsure reports whether another replica of the controller may have evicted a pod shortly before, so that the pod may
// still be terminating. It concerns owners of unknown kinds.
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

// countRevert counts a change of the annotation by another writer.
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
	m.message = "the annotation that recreates its pods was removed from the template " + output.Count(m.reverts, "time", "times") +
		"; the owner of the template has to recreate them"
	if len(a.wanted) > 0 {
		j.addRevertEvents(a)
	}
}

// backoff returns a delay that begins with first and doubles after each try, but does not exceed last.
func backoff(first, last time.Duration, tries int) time.Duration {
	return min(first<<min(max(tries, 0), 20), last)
}
