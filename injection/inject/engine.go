package inject

import (
	"fmt"
	"slices"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Inject returns the result of injecting the policies into a new pod, given as JSON. It neither modifies nor retains
// pod.
//
// The policies whose selectors match the pod apply in the order of the set. Each policy applies as a whole or not at
// all, and sees the additions of earlier policies. A policy that mounts a missing volume is tried once more after other
// policies have added all its missing volumes. A second injection into the patched pod adds nothing.
//
// Inject returns an error only if pod is not JSON, or if a part that Inject reads does not have the shape of a pod. If
// no policy selects the pod, Inject reads only the metadata. If the pod and its policies exceed the work limit of a
// pod, Inject skips all policies with [ReasonTooMuchWork].
func (s *Set) Inject(pod []byte) (*Result, error) { return s.inject(pod, false) }

// Explain is like [Set.Inject], and also lists each change.
func (s *Set) Explain(pod []byte) (*Result, error) { return s.inject(pod, true) }

func (s *Set) inject(pod []byte, explain bool) (*Result, error) {
	h, err := readHead(pod)
	if err != nil {
		return nil, err
	}
	result := &Result{TemplateHash: h.templateHash()}
	policies := s.matching(h.labels)
	if len(policies) == 0 {
		return result, nil
	}
	if why := h.excluded(); why != nil {
		result.Skipped = why.forAll(policies)
		return result, nil
	}
	body, err := readBody(pod, initContainersPart, containersPart)
	if err != nil {
		return nil, err
	}
	before := h.record()
	d := injection{body: body, name: h.name, size: len(pod), patch: newPatch(explain), before: before}
	outcomes, rejected := d.run(policies, before.trust)
	result.report(outcomes, rejected)
	if rejected != nil || d.spent() && before.Version != 0 {
		return result, nil // The existing record is still correct: it was written when the pod needed less work.
	}
	d.patch.annotate(h, claims(h, body, before, outcomes, result.Hash))
	result.Patch, result.Changes = d.patch.done(), d.patch.changes
	return result, nil
}

// forAll returns one copy of s for each policy.
func (s *Skipped) forAll(policies []*Policy) []Skipped {
	out := make([]Skipped, len(policies))
	for i, p := range policies {
		out[i] = Skipped{Policy: p, Reason: s.Reason, Message: s.Message, Path: s.Path}
	}
	return out
}

// outcome says whether a policy applies or is skipped.
type outcome struct {
	holds   bool
	applied Applied
	had     []string // See [RecordApplied].
	skipped *Skipped
}

// run tries the policies in order, each with its tolerance. It returns the outcomes in the order of the policies. If a
// policy rejects the pod, run stops and also returns the reason.
//
// A policy that mounts missing volumes is tried again when other policies have added them all. Without this second
// attempt the policy would apply only at the next review of the same pod.
//
// If the work limit is exceeded, run skips all policies and adds nothing.
func (d *injection) run(policies []*Policy, tolerance func(*Policy) tolerance) ([]outcome, *Skipped) {
	r := runner{injection: d, policies: policies, tolerance: tolerance, outcomes: make([]outcome, len(policies))}
	for i := range policies {
		if r.try(i); r.rejected != nil {
			break
		}
	}
	for len(r.ready) > 0 && r.rejected == nil {
		round := r.ready
		r.ready = nil
		slices.Sort(round)
		for _, i := range round {
			if r.try(i); r.rejected != nil {
				break
			}
		}
	}
	r.settle()
	if d.spent() {
		d.patch.clear()
		return exceeded(policies), nil
	}
	return r.outcomes, r.rejected
}

// runner runs policies on an injection.
type runner struct {
	*injection

	policies  []*Policy
	tolerance func(*Policy) tolerance
	outcomes  []outcome
	rejected  *Skipped

	// waiting maps the name of a missing volume to the policies that mount it. lacking counts the missing volumes of
	// each policy. ready lists the policies that no longer lack a volume. All policies are given as indexes.
	waiting map[string][]int
	lacking map[int]int
	ready   []int
	held    int // The number of policies that apply.
	after   int // 1 + the value of held when the first policy was skipped; 0 if none was.
}

// try determines the outcome of a policy.
func (r *runner) try(i int) {
	if r.spent() {
		return
	}
	r.work += workOfPolicy
	p, o := r.policies[i], &r.outcomes[i]
	o.skipped = r.consider(p, r.tolerance(p))
	switch {
	case o.skipped == nil && p.mode != refractv1beta1.ModeAudit:
		o.holds, o.applied = true, r.apply(p)
		o.had = r.had(p, &o.applied)
		r.held++
		r.wake(p)
		return
	case o.skipped == nil:
		o.skipped = r.audit(p)
	case o.skipped.rejects():
		r.rejected = o.skipped
	case o.skipped.Reason == ReasonVolumeMissing:
		r.wait(i)
	}
	if r.after == 0 {
		r.after = r.held + 1
	}
}

// wait registers a policy for all volumes that it mounts but cannot find.
func (r *runner) wait(i int) {
	if r.waiting == nil {
		r.waiting, r.lacking = map[string][]int{}, map[int]int{}
	}
	for _, it := range r.missing(r.policies[i]) {
		r.waiting[it.volume] = append(r.waiting[it.volume], i)
		r.lacking[i]++
	}
}

// wake finds the policies that lack no volume after the additions of p.
func (r *runner) wake(p *Policy) {
	if len(r.waiting) == 0 {
		return
	}
	for i := range p.volumes {
		name := p.volumes[i].id
		for _, waits := range r.waiting[name] {
			if r.lacking[waits]--; r.lacking[waits] == 0 {
				r.ready = append(r.ready, waits)
			}
		}
		delete(r.waiting, name)
	}
}

// settle examines the skipped policies again after all additions. A policy may now conflict with an item that was added
// later. The next review of the same pod would report this conflict, so the first review reports it, too.
func (r *runner) settle() {
	if r.after == 0 || r.held < r.after || r.rejected != nil {
		return
	}
	for i, p := range r.policies {
		o := &r.outcomes[i]
		if o.holds || r.spent() {
			continue
		}
		r.work += workOfPolicy
		switch skipped := r.consider(p, r.tolerance(p)); {
		case skipped != nil:
			o.skipped = skipped
		case p.mode == refractv1beta1.ModeAudit:
			o.skipped = r.audit(p)
		}
		if o.skipped.rejects() {
			r.rejected = o.skipped
			return
		}
	}
}

// trust returns the tolerance for a policy at admission. For a recorded policy with onConflict Skip this is proven, and
// not lenient, because a user may have written the record: one container must really have the items.
func (r *past) trust(p *Policy) tolerance {
	if p.onConflict == refractv1beta1.ConflictSkip && r.current(p) != nil {
		return proven
	}
	return strict
}

// report adds the outcomes to the result.
func (result *Result) report(outcomes []outcome, rejected *Skipped) {
	if rejected == nil {
		result.Applied = make([]Applied, 0, len(outcomes))
	}
	for i := range outcomes {
		o := &outcomes[i]
		switch {
		case o.skipped != nil:
			result.Skipped = append(result.Skipped, *o.skipped)
		case o.holds && rejected == nil:
			result.Applied = append(result.Applied, o.applied)
		}
	}
	result.Rejected = rejected
	result.Hash = hashOf(result.Applied)
}

// rejects reports whether the skipped policy rejects the pod.
func (s *Skipped) rejects() bool {
	if s.Policy.onConflict != refractv1beta1.ConflictReject || s.Policy.mode == refractv1beta1.ModeAudit {
		return false
	}
	for _, reason := range conflictReasons {
		if s.Reason == reason {
			return true
		}
	}
	return false
}

// audit describes the additions that a policy of the mode Audit would make.
func (d *injection) audit(p *Policy) *Skipped {
	out := &Skipped{Policy: p, Reason: ReasonAudit}
	if len(d.additions) == 0 {
		out.Message = "would add nothing: the pod has all items"
		return out
	}
	would := d.applied(p)
	var parts []string
	for _, list := range []struct {
		of    itemKind
		names []string
	}{{volumeItem, would.Volumes}, {envItem, would.Env}, {envFromItem, would.EnvFrom}, {mountItem, would.Mounts}} {
		if len(list.names) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", list.of.field(), strings.Join(list.names, ", ")))
		}
	}
	out.Message = "would add " + strings.Join(parts, "; ")
	return out
}
