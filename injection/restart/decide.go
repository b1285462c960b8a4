package restart

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// How long the result of a check is valid: fresh for the recreation of pods, lookedAt for a status.
const (
	fresh    = 10 * time.Second // For touching a workload.
	lookedAt = 5 * time.Minute  // For a status.
)

// decide decides which actions to take in a namespace, and computes the statuses. It has no side effects, and the same
// snapshot always gives the same plan.
//
// If decide needs the result of a check first, it requests the check in plan.resolve, plan.probe or plan.owners. The
// plan then touches no workload that depends on this check.
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

// decision is one run of decide, with the intermediate results.
type decision struct {
	*snapshot

	plan   *plan
	judge  *judge
	states map[string]*policyState
	groups []*assessment
}

// policyState is the decision about one policy.
type policyState struct {
	*policy

	before    refractv1beta1.RolloutStatus // The rollout in the status, if it is for the present content; otherwise empty.
	counts    counts
	workloads []workloadStatus
	// closed is the phase of the policy if that phase forbids any change of workloads; empty if workloads may be touched.
	// The field why has the reason.
	closed refractv1beta1.RolloutPhase
	why    string
	// missing describes objects that the policy names and that do not exist or cannot be read. unknown is true if any
	// of them could not be read.
	missing []string
	unknown bool
	// passed is true if at least one workload (the canary) was recreated successfully.
	passed bool
	// left are the groups that are not yet recreated, including those that are being recreated. rolling are the groups
	// that are being recreated.
	left     map[*assessment]bool
	rolling  []*assessment
	blocked  []*assessment
	busy     []*assessment
	derived  int // The number of completed groups, according to the workloads.
	finished int // The number of groups that were completed after the last status was written.
	probing  int // The number of groups that occupy a place while they are checked.
	eligible int // The number of groups whose selected pods can be recreated.
}

// counts are the pod counts of a status.
type counts struct{ matched, injected, stale, skipped, excluded, manual, nextRun int32 }

// readPolicies reads the policies and their recorded statuses.
func (d *decision) readPolicies() {
	j := &judge{
		snapshot: d.snapshot, plan: d.plan,
		policies: map[string]*policy{}, currents: map[string][]string{}, resumed: map[string]bool{}, reverts: map[string]string{},
		evicted: map[types.UID]int{},
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
		for _, e := range evictedIn(written) {
			j.evicted[e.UID] = max(j.evicted[e.UID], int(e.Pods))
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
			d.plan.resumed = append(d.plan.resumed, p.name) // The annotation is removed, because it resumes a rollout only once.
		}
	}
}

// close sets closed and why if no workload may be touched for a policy.
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

// lookUp determines which objects that the policy names are missing, and requests the necessary checks.
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

// lacks describes the missing part of a referenced object; empty if the object is complete.
func (r *resolution) lacks(ref inject.Reference) string {
	o := object{ref.Kind, ref.Name}
	switch {
	case r.err != "":
		return fmt.Sprintf("%s cannot be read: %s", o, r.err)
	case !r.found:
		return fmt.Sprintf("%s does not exist", o)
	}
	for _, key := range ref.Keys {
		if !r.keys[key] {
			return fmt.Sprintf("%s has no key %s", o, key)
		}
	}
	return ""
}

// assessAll assesses all groups.
func (d *decision) assessAll() {
	for _, g := range d.snapshot.groups {
		a := d.judge.assess(g)
		d.groups = append(d.groups, a)
		d.plan.next[g.ref.uid] = a.next
		d.file(a)
	}
}

// file records a group in the states of its policies, depending on its phase.
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
		if a.inherited || a.settling > 0 {
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

// occupy lets a group take one of the maxConcurrent places of each policy.
func (d *decision) occupy(a *assessment, policies []string) {
	for _, name := range policies {
		st := d.states[name]
		st.left[a] = true
		if !slices.Contains(st.rolling, a) {
			st.rolling = append(st.rolling, a)
		}
	}
}

// settle counts a complete group for its policies.
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

// halt halts the rollouts for which the failed workloads were touched.
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

// start touches the groups that may be touched, as far as the policies have free places.
func (d *decision) start() {
	if d.disabled {
		return
	}
	// Groups that are not complete come last: their recreation would not show whether the content works.
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

// unsafe orders classes by the risk of an eviction: controllers of unknown kinds come last, because it is unknown how
// they replace deleted pods.
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

// consider touches a group, unless there is a reason not to do so.
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
	if d.unread(a) || d.pending(a) || !d.probed(a) || d.outdated(a) {
		return
	}
	contents := map[string]string{}
	for _, name := range a.fixable {
		contents[name] = d.states[name].hash
	}
	d.plan.touches = append(d.plan.touches, touch{group: a.group, victim: a.victim, bounced: a.bounced, policies: a.fixable, contents: contents})
	if a.victim != nil && a.next.refused > 0 {
		// The last eviction was refused, and the next one will probably be refused, too. The group keeps its status
		// until an eviction succeeds.
		a.reason, a.message = a.next.reason, a.next.message
		d.reserve(a)
		d.wait(a)
		return
	}
	if a.victim != nil {
		a.next.pods = max(a.next.pods, a.counted) // For the status, which is written before the eviction.
	}
	d.occupy(a, a.fixable)
	a.phase, a.reason, a.message = rolling, reasonRolling, "its pods are being recreated"
	a.inherited = false
}

// wait adds the group to the groups that its policies wait for.
func (d *decision) wait(a *assessment) {
	for _, name := range a.fixable {
		d.states[name].busy = append(d.states[name].busy, a)
	}
}

// room reports whether the policy may recreate a further group.
//
// A place is normally taken by each group that is being recreated. Inherited groups are an exception: their recreation
// was for content that has changed, and the new content may be tried on them first. But an inherited group takes a
// place if it was touched for the policy's present content and group a was not. In this case something else has
// changed, such as another policy or the template.
func (st *policyState) room(a *assessment) bool {
	limit := int(st.rollout.MaxConcurrent)
	if !st.passed {
		limit = 1
	}
	current := st.probing
	for _, other := range st.rolling {
		if other != a && (!other.inherited || (st.tries(other) && !st.tries(a))) {
			current++
		}
	}
	if slices.Contains(st.rolling, a) {
		return a.phase == rolling || current < limit
	}
	return current < limit && len(st.rolling)+st.probing < int(st.rollout.MaxConcurrent)
}

// tries reports whether an incomplete group was touched for the present content of the policy, or has it anyway. The
// second occurs if the policy changes immediately before the touch: the webhook already injects the new content.
func (st *policyState) tries(a *assessment) bool {
	return a.next.contents[st.name] == st.hash || a.prospect.holds[st.name] && a.stale[st.name] == 0
}

// block records that a group is blocked, with the reason.
func (d *decision) block(a *assessment, message string) {
	a.reason, a.message = reasonBlocked, message
	for _, name := range a.fixable {
		d.states[name].blocked = append(d.states[name].blocked, a)
	}
}

// unread reports whether an owner of an unknown kind could not be read, so that it may have opted out. It then blocks
// the group.
func (d *decision) unread(a *assessment) bool {
	if a.group.unread == "" {
		return false
	}
	d.plan.due(d.now, a.readAgain)
	d.block(a, reasonUnreadable+": "+a.group.unread)
	return true
}

// outdated reports whether owners of unknown kinds must be read again before the victim is evicted, because no event
// reports that they opt out. It requests only the owners of the victim, because a group may have very many owners.
func (d *decision) outdated(a *assessment) bool {
	if a.victim == nil {
		return false
	}
	at, unknown := a.readAt[a.victim.owner.uid]
	if !unknown || d.now.Before(at.Add(fresh)) {
		return false
	}
	d.plan.owners = append(d.plan.owners, a.victim.owner)
	d.reserve(a)
	return true
}

// pending reports whether the pods of a group need an object that is missing, or that must be checked first. It also
// considers the objects of policies that apply to the pods but do not recreate them.
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

// reserve lets a group occupy a place of its policies during checks.
func (d *decision) reserve(a *assessment) {
	for _, name := range a.fixable {
		d.states[name].probing++
	}
}

// probed reports whether a recent dry run created a pod of the group with the expected hash. If not, it requests a dry
// run or blocks the group.
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

// expected returns the expected hash of new pods of the group.
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
