package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/output"
)

// Reasons in the rows of a status, and of conditions.
const (
	reasonManual     = "ManualRestartRequired"
	reasonOwner      = "WaitingForOwner"
	reasonReverts    = "OwnerReverts"
	reasonNextRun    = "NextRun"
	reasonBusy       = "RolloutUnderWay"
	reasonRolling    = "Rolling"
	reasonHalted     = "RolloutHalted"
	reasonBudget     = "EvictionRefused"
	reasonBounced    = "NotInjected"
	reasonQueued     = "Queued"
	reasonBlocked    = "Blocked"
	reasonUnexamined = "Unreadable"
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

// step is where a group stands.
type step int

const (
	settled step = iota // Nothing is to be done, or nothing can be.
	manual              // Its owner has to do it.
	nextRun             // It comes by itself.
	busy                // A rollout of its own is under way.
	waiting             // Not yet: reason and message say why.
	ready               // It can be touched as far as it is concerned.
	rolling             // Its pods are being recreated.
	failed              // They are, and do not come up.
)

// assessment is where a group stands, and why.
type assessment struct {
	*group

	memory workloadState
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

	step            step
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

// rule decides on a group, or leaves it to the next.
type rule func(*assessment) bool

// assess says where a group stands. What is remembered of it is brought up to date.
func (j *judge) assess(g *group) *assessment {
	m, known := j.memory[g.ref.uid]
	if message, reverts := j.reverts[g.ref.String()]; reverts && !known {
		m = workloadState{reverts: 2, reason: reasonReverts, message: message, notBefore: j.now.Add(firstRevert)}
	}
	m.ref = g.ref
	a := &assessment{group: g, memory: m, stale: map[string]int{}}
	j.tally(a)
	j.observe(a)
	for _, decides := range []rule{
		j.nothing, j.bare, j.job, j.leaving, j.owners, j.endless, j.unselected, j.reverted, j.untouched, j.underWay, j.refused, j.repair,
	} {
		if decides(a) {
			break
		}
	}
	return a
}

// remind takes up what a status says about owners that a restart has made forgotten.
func (j *judge) remind(p *policy) {
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
	a.current = sortedUnion(j.currents[a.ref.String()], slices.DeleteFunc(slices.Clone(a.memory.policies), func(name string) bool {
		return j.policies[name] == nil || j.policies[name].problem != ""
	}))
	a.attributed = sortedUnion(a.current, a.fixable)
}

// observe compares the group with what is remembered of it.
func (j *judge) observe(a *assessment) {
	j.compare(a)
	if a.complete {
		a.memory.policies = nil
	}
}

func (j *judge) compare(a *assessment) {
	m, w := &a.memory, a.workload
	if slices.ContainsFunc(a.attributed, func(name string) bool { return j.resumed[name] }) {
		m.lenient, m.changed = j.now.Add(j.patience), j.now
		m.pods = min(m.pods, a.counted) // Of an unknown kind it may have been made smaller.
	}
	if w == nil {
		a.touched = a.class == classOther
		a.complete = j.allReady(a) && a.counted >= m.pods && !j.unsure(a)
		return
	}
	behind := m.hash != "" && w.generation < m.generation && j.now.Before(m.begun.Add(lag))
	hash := w.templateHash
	switch {
	case behind:
		hash = m.hash
		j.plan.due(j.now, m.begun.Add(lag))
	case w.generation < m.generation:
		m.hash = "" // Not that of the memory: the cluster was set back.
	case m.hash != "" && hash != m.hash:
		j.remember(a)
	case m.reverts > 0 && j.now.After(m.begun.Add(revertWindow)) && m.hash != "":
		m.reverts = 0
	}
	a.touched = hash != "" && hash == a.prospect.hash
	a.complete = !behind && w.complete() && j.allReady(a) && int64(a.counted) >= w.replicas
	a.inherited = !a.touched && !a.complete && len(a.current) > 0
}

// unsure reports whether a pod of an owner of an unknown kind may have gone of which
// nothing is remembered, because another replica evicted it.
func (j *judge) unsure(a *assessment) bool {
	m := &a.memory
	if len(a.current) == 0 || !m.firstEviction.IsZero() {
		return false
	}
	if m.begun.IsZero() {
		m.begun = j.now
	}
	j.plan.due(j.now, m.begun.Add(lag))
	return j.now.Before(m.begun.Add(lag))
}

// remember takes note that somebody has changed the annotation.
func (j *judge) remember(a *assessment) {
	m := &a.memory
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
		j.tellReverted(a)
	}
}

// backoff doubles from first to last.
func backoff(first, last time.Duration, tries int) time.Duration {
	return min(first<<min(max(tries, 0), 20), last)
}

func (a *assessment) is(s step, reason, format string, args ...any) bool {
	a.step, a.reason, a.message = s, reason, fmt.Sprintf(format, args...)
	return true
}

// nothing is for a group all of whose pods are as they should be. What is remembered
// of evictions was about others.
func (j *judge) nothing(a *assessment) bool {
	if len(a.wanted)+len(a.attributed) > 0 {
		return false
	}
	m := &a.memory
	*m = workloadState{ref: m.ref, hash: m.hash, generation: m.generation, begun: m.begun, changed: m.changed, reverts: m.reverts}
	return true
}

func (j *judge) bare(a *assessment) bool {
	return a.class == classNone && a.is(manual, reasonManual, "no controller would recreate the pod: delete it and create it again")
}

func (j *judge) job(a *assessment) bool {
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
func (j *judge) leaving(a *assessment) bool {
	return a.workload != nil && (a.workload.deleting || a.workload.replicas == 0)
}

// owners leaves alone what its owner recreates. Not even the annotation is written:
// new pods get what they should whenever they come.
func (j *judge) owners(a *assessment) bool {
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
func (j *judge) endless(a *assessment) bool {
	if a.class != classOther {
		return a.workload == nil && a.is(waiting, reasonBusy, "its controller has not been seen yet")
	}
	if !slices.ContainsFunc(a.pods, func(p placed) bool { return !p.endless }) {
		return false
	}
	return a.is(manual, reasonManual, "its pods run to their end, and its kind is not known: its owner has to recreate them")
}

// unselected is for pods that their template does not make so.
func (j *judge) unselected(a *assessment) bool {
	if len(a.wanted) == 0 || len(a.fixable) > 0 || (!a.complete && len(a.current) > 0) {
		return false
	}
	if a.prospect.problem != "" {
		return a.is(waiting, reasonBlocked, "a pod of its template could not be: %s", a.prospect.problem)
	}
	return a.is(manual, reasonOwner, "pods of its template do not get it: the labels or the content of its pods are others")
}

func (j *judge) reverted(a *assessment) bool {
	m := &a.memory
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
	m := &a.memory
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
	m := &a.memory
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
func (j *judge) repair(a *assessment) bool {
	return a.victim != nil && a.is(ready, "", "")
}
