package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
)

// How long what was found out before a workload is touched holds.
const (
	fresh    = 10 * time.Second // To touch it.
	lookedAt = 5 * time.Minute  // To be said in a status.
)

// decide says what is to be done in a namespace, and what its status is. It has no side
// effect, and the same snapshot always gives the same plan.
//
// Where something has to be found out first, plan.resolve and plan.probe say what, and
// nothing is touched that depends on it.
func decide(s *snapshot) *plan {
	d := &decision{snapshot: s, plan: &plan{
		statuses: map[string]*refractv1beta1.ServiceInjectionPolicyStatus{}, next: map[types.UID]workloadState{}, pods: map[inject.State]int{},
	}, states: map[string]*policyState{}}
	d.readPolicies()
	d.assessAll()
	d.halt()
	d.start()
	r := &reporter{now: s.now, disabled: s.disabled, plan: d.plan, states: d.states, groups: d.groups}
	r.count()
	for _, p := range s.policies {
		r.report(d.states[p.name])
	}
	return d.plan
}

// decision chooses what is touched: it is one run of decide.
type decision struct {
	*snapshot

	plan   *plan
	judge  *judge
	states map[string]*policyState
	groups []*assessment
}

// policyState is what becomes of one policy.
type policyState struct {
	*policy

	before    refractv1beta1.RolloutStatus // What was written, if that is about the same hash.
	counts    counts
	workloads []workloadStatus
	// closed is the phase in which nothing is touched for the policy, and why; empty if
	// things may be.
	closed refractv1beta1.RolloutPhase
	why    string
	// missing is what it refers to and is not there; unknown says that this could not be
	// found out.
	missing []string
	unknown bool
	// passed says that one workload was recreated well.
	passed bool
	// left are the groups that are still to be recreated, or are being; these are
	// rolling.
	left     map[*assessment]bool
	rolling  []*assessment
	blocked  []*assessment
	busy     []*assessment
	derived  int // Done, as the workloads themselves say.
	finished int // Done since what was written.
	probing  int // That hold a place while something is found out.
	eligible int // Groups with pods that it selects, which can be recreated.
}

// counts are those of a status.
type counts struct{ matched, injected, stale, skipped, excluded, manual, nextRun int32 }

// readPolicies reads what policies and their statuses say.
func (d *decision) readPolicies() {
	j := &judge{
		snapshot: d.snapshot, plan: d.plan,
		policies: map[string]*policy{}, currents: map[string][]string{}, resumed: map[string]bool{}, reverts: map[string]string{},
	}
	d.judge = j
	for _, p := range d.policies {
		j.readReverts(p)
		st := &policyState{policy: p, left: map[*assessment]bool{}}
		d.states[p.name] = st
		j.policies[p.name] = p
		if p.problem != "" {
			continue
		}
		d.lookUp(st)
		written := p.status.Rollout
		if written == nil {
			d.close(st)
			continue
		}
		for _, name := range written.Current {
			j.currents[name] = append(j.currents[name], p.name)
		}
		if written.Hash == p.hash {
			st.before = *written
			st.passed = written.Done > 0
		}
		d.close(st)
		switch {
		case p.resumed != p.hash:
		case st.before.Phase == refractv1beta1.PhaseHalted:
			j.resumed[p.name] = true
		default:
			d.plan.resumed = append(d.plan.resumed, p.name) // It is once only that it goes on.
		}
	}
}

// close closes a policy for which nothing may be touched.
func (d *decision) close(st *policyState) {
	p := st.policy
	switch {
	case st.before.Phase == refractv1beta1.PhaseHalted && p.resumed != p.hash:
		st.closed, st.why = refractv1beta1.PhaseHalted, st.before.Message
	case p.paused:
		st.closed = refractv1beta1.PhasePaused
		st.why = "annotation " + refractv1beta1.PausedAnnotation + " is true"
	case p.rollout.Strategy == refractv1beta1.RolloutManual && p.approved != p.hash:
		st.closed = refractv1beta1.PhaseAwaitingApproval
		st.why = fmt.Sprintf("the strategy is Manual: annotate the policy with %s=%s", refractv1beta1.ApproveRolloutAnnotation, p.hash)
	case len(st.missing) > 0:
		st.closed, st.why = refractv1beta1.PhaseBlocked, st.missing[0]
	}
}

// lookUp finds what the policy refers to and is not there.
func (d *decision) lookUp(st *policyState) {
	for _, ref := range st.references {
		o := object{ref.Kind, ref.Name}
		r, known := d.references[o]
		valid := lookedAt
		if why := r.lacks(ref); known && why != "" {
			st.missing = append(st.missing, why)
			st.unknown = st.unknown || r.err != ""
			valid = backoff(firstLook, lastLook, r.same)
		}
		if until := r.at.Add(valid); known && d.now.Before(until) {
			d.plan.due(d.now, until)
			continue
		}
		d.want(o)
	}
	slices.Sort(st.missing)
	st.missing = slices.Compact(st.missing)
}

func (d *decision) want(o object) {
	if !slices.Contains(d.plan.resolve, o) {
		d.plan.resolve = append(d.plan.resolve, o)
	}
}

// lacks says what is not there of what a policy refers to.
func (r *resolution) lacks(ref inject.Reference) string {
	o := object{ref.Kind, ref.Name}
	switch {
	case r.err != "":
		return fmt.Sprintf("%s cannot be read: %s", o, r.err)
	case !r.found:
		return fmt.Sprintf("%s is not there", o)
	}
	for _, key := range ref.Keys {
		if !r.keys[key] {
			return fmt.Sprintf("%s has no key %s", o, key)
		}
	}
	return ""
}

// assessAll looks at the groups.
func (d *decision) assessAll() {
	for _, g := range d.snapshot.groups {
		a := d.judge.assess(g)
		d.groups = append(d.groups, a)
		d.plan.next[g.ref.uid] = a.next
		d.file(a)
	}
}

// file notes the phase of a group on the policies concerned.
func (d *decision) file(a *assessment) {
	switch a.phase {
	case rolling, failed:
		d.occupy(a, a.current)
		for _, name := range a.fixable {
			d.states[name].left[a] = true
		}
	case busy, waiting, ready:
		for _, name := range a.fixable {
			st := d.states[name]
			st.left[a] = true
			if a.phase != ready {
				st.busy = append(st.busy, a)
			}
		}
		if a.inherited {
			d.occupy(a, a.current)
		}
		if a.reason == reasonBlocked {
			for _, name := range a.wanted {
				d.states[name].left[a] = true
				d.states[name].blocked = append(d.states[name].blocked, a)
			}
		}
	case settled, manual:
		d.settle(a)
	case nextRun:
	}
}

// occupy has a group take a place for policies.
func (d *decision) occupy(a *assessment, policies []string) {
	for _, name := range policies {
		st := d.states[name]
		st.left[a] = true
		if !slices.Contains(st.rolling, a) {
			st.rolling = append(st.rolling, a)
		}
	}
}

// settle notes for which policies a group is done.
func (d *decision) settle(a *assessment) {
	if !a.complete || a.workload == nil && len(a.current) == 0 {
		return
	}
	if a.touched && a.workload != nil {
		for name := range a.prospect.holds {
			if a.stale[name] == 0 {
				d.states[name].derived++
			}
		}
	}
	for _, name := range a.current {
		if st := d.states[name]; st.before.Hash != "" && a.stale[name] == 0 {
			st.finished++
		}
	}
}

// halt closes the policies one of whose workloads does not come up.
func (d *decision) halt() {
	for _, a := range d.groups {
		if a.phase != failed {
			continue
		}
		for _, name := range a.current {
			st := d.states[name]
			if st.closed == refractv1beta1.PhaseHalted {
				continue
			}
			st.closed, st.why = refractv1beta1.PhaseHalted, a.ref.String()+": "+a.message
		}
	}
	for _, st := range d.states {
		st.passed = st.passed || st.derived > 0 || st.finished > 0
	}
}

// start touches what may be touched, as far as there is room.
func (d *decision) start() {
	if d.disabled {
		return
	}
	// What is broken already comes last: it says nothing about what it is given.
	var candidates []*assessment
	for _, a := range d.groups {
		if a.phase == ready || (a.phase == rolling && a.victim != nil) {
			candidates = append(candidates, a)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *assessment) int {
		begun := func(a *assessment) int { return min(len(a.current), 1) }
		return cmp.Or(
			cmp.Compare(begun(b), begun(a)), -boolCompare(a.complete, b.complete), cmp.Compare(a.class.unsafe(), b.class.unsafe()),
			cmp.Compare(len(a.pods), len(b.pods)), compareRefs(a.ref, b.ref),
		)
	})
	for _, a := range candidates {
		d.consider(a)
	}
}

// unsafe orders classes by how much is known of what replaces a pod that is deleted: those
// of which the least is known come last.
func (c class) unsafe() int {
	switch c {
	case classDeployment, classTemplate:
		return 0
	case classReplicas:
		return 1
	default:
		return 2
	}
}

// consider touches a group, unless something speaks against it.
func (d *decision) consider(a *assessment) {
	if a.phase == ready {
		a.reason = reasonQueued
	}
	for _, name := range a.fixable {
		st := d.states[name]
		if st.closed == "" {
			continue
		}
		if a.phase == ready {
			a.reason, a.message = string(st.closed), fmt.Sprintf("policy %s: %s", name, st.why)
		}
		d.wait(a)
		return
	}
	for _, name := range a.fixable {
		if !d.states[name].room(a) {
			return
		}
	}
	if d.pending(a) || !d.probed(a) {
		return
	}
	d.plan.touches = append(d.plan.touches, touch{group: a.group, victim: a.victim, bounced: a.bounced, policies: a.fixable})
	if a.victim != nil && a.next.refused > 0 {
		// It was refused before, and probably is again: until it is not, nothing changes.
		a.reason, a.message = a.next.reason, a.next.message
		d.reserve(a)
		d.wait(a)
		return
	}
	d.occupy(a, a.fixable)
	a.phase, a.reason, a.message = rolling, reasonRolling, "its pods are being recreated"
	a.inherited = false
}

// wait notes for all policies that a group waits for something.
func (d *decision) wait(a *assessment) {
	for _, name := range a.fixable {
		d.states[name].busy = append(d.states[name].busy, a)
	}
}

// room reports whether a policy can have a group recreated, besides those that it has
// recreated already. A group that rolls with what a change has overtaken has its place:
// it may be what a better content is tried on first.
func (st *policyState) room(a *assessment) bool {
	limit := int(st.rollout.MaxConcurrent)
	if !st.passed {
		limit = 1
	}
	current := st.probing
	for _, other := range st.rolling {
		if other != a && !other.inherited {
			current++
		}
	}
	if slices.Contains(st.rolling, a) {
		return a.phase == rolling || current < limit
	}
	return current < limit && len(st.rolling)+st.probing < int(st.rollout.MaxConcurrent)
}

// block notes that a group cannot be touched, and why.
func (d *decision) block(a *assessment, message string) {
	a.reason, a.message = reasonBlocked, message
	for _, name := range a.fixable {
		d.states[name].blocked = append(d.states[name].blocked, a)
	}
}

// pending reports whether what the pods of a group need is not there, or has to be
// looked for first: also that of policies which do not have it recreated.
func (d *decision) pending(a *assessment) bool {
	pending := false
	for _, p := range d.policies {
		st := d.states[p.name]
		if !a.prospect.holds[p.name] && !slices.Contains(a.fixable, p.name) {
			continue
		}
		if len(st.missing) > 0 {
			d.block(a, fmt.Sprintf("policy %s: %s", st.name, st.missing[0]))
			return true
		}
		for _, ref := range st.references {
			o := object{ref.Kind, ref.Name}
			if !d.now.Before(d.references[o].at.Add(fresh)) {
				d.want(o)
				pending = true
			}
		}
	}
	if pending {
		d.reserve(a)
	}
	return pending
}

// reserve has a group hold its place while something is found out.
func (d *decision) reserve(a *assessment) {
	for _, name := range a.fixable {
		d.states[name].probing++
	}
}

// probed reports whether a pod of the group was tried to be created and came back as
// it should.
func (d *decision) probed(a *assessment) bool {
	p, known := d.probes[a.ref.uid]
	known = known && p.hash == a.expected()
	switch {
	case known && p.ok && d.now.Before(p.at.Add(fresh)):
		return true
	case known && !p.ok && d.now.Before(p.retry):
		d.plan.due(d.now, p.retry)
		d.block(a, p.reason+": "+p.message)
		return false
	}
	d.plan.probe = append(d.plan.probe, query{group: a.group, victim: a.victim, hash: a.expected()})
	d.reserve(a)
	return false
}

// expected is the hash that new pods of the group should have.
func (a *assessment) expected() string {
	if a.workload != nil || a.victim == nil {
		return a.prospect.hash
	}
	for _, p := range a.pods {
		if p.uid == a.victim.uid && p.status != nil {
			return p.status.hash
		}
	}
	return ""
}
