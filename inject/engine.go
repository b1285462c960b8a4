package inject

import (
	"fmt"
	"slices"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Inject returns what becomes of a pod that is to be created, given as JSON. It does
// not modify pod and keeps nothing of it.
//
// The policies of the set whose selectors choose the pod are applied in their order,
// each wholly or not at all, and each sees what those before it have added; those that
// lack a volume get another chance when others have brought it. Injecting into what
// the patch makes of the pod gives no patch.
//
// Inject returns an error only if pod is not JSON, or not of the shape of a pod in
// what it looks at. Of a pod that no policy chooses it looks at the metadata alone. Where
// so much stands in the pod and in the policies that they would be more work than a pod
// may be, all are left out, with [ReasonTooMuchWork].
func (s *Set) Inject(pod []byte) (*Result, error) { return s.inject(pod, false) }

// Explain is [Set.Inject] with the changes listed one by one.
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
		return result, nil // What was written down when it was less work is true.
	}
	d.patch.annotate(h, claims(h, body, before, outcomes, result.Hash))
	result.Patch, result.Changes = d.patch.done(), d.patch.changes
	return result, nil
}

// forAll returns the same for each of the policies.
func (s *Skipped) forAll(policies []*Policy) []Skipped {
	out := make([]Skipped, len(policies))
	for i, p := range policies {
		out[i] = Skipped{Policy: p, Reason: s.Reason, Message: s.Message, Path: s.Path}
	}
	return out
}

// outcome is what became of a policy: it holds, or was left out.
type outcome struct {
	holds   bool
	applied Applied
	had     []string // See [RecordApplied].
	skipped *Skipped
}

// run applies policies, each as tolerantly as it is told to, until one of them refuses
// the pod; it returns why then. Those that lack a volume get another chance when
// others have brought it: if they did not, they would have one when the same pod comes
// again. The outcomes are in the order of the policies.
//
// All are left out, and nothing is added, if that is too much work.
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

// runner runs policies on a draft.
type runner struct {
	*injection

	policies  []*Policy
	tolerance func(*Policy) tolerance
	outcomes  []outcome
	rejected  *Skipped

	// waiting has, by the name of a volume, those that lack it, lacking is how many a
	// policy lacks, and ready are those that lack none any more.
	waiting map[string][]int
	lacking map[int]int
	ready   []int
	held    int // How many hold.
	after   int // How many did when the first one was left out.
}

// try finds out what becomes of a policy.
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

// wait has a policy wait for all volumes that it lacks.
func (r *runner) wait(i int) {
	if r.waiting == nil {
		r.waiting, r.lacking = map[string][]int{}, map[int]int{}
	}
	for _, it := range r.missing(r.policies[i]) {
		r.waiting[it.volume] = append(r.waiting[it.volume], i)
		r.lacking[i]++
	}
}

// wake notes who lacks no volume any more for what a policy has added.
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

// settle finds out for those that were left out why they are in the end: what others
// have added since may be in their way by now, and is when the same pod comes again.
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

// trust returns how tolerant a pod's record makes an injection into it. What a user
// may have written must be seen to be true.
func (r *past) trust(p *Policy) tolerance {
	if p.onConflict == refractv1beta1.ConflictSkip && r.current(p) != nil {
		return proven
	}
	return strict
}

// report fills in what became of the policies.
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

// rejects reports whether the pod is to be refused.
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

// audit says what a policy of the mode Audit would add.
func (d *injection) audit(p *Policy) *Skipped {
	out := &Skipped{Policy: p, Reason: ReasonAudit}
	if len(d.additions) == 0 {
		out.Message = "would add nothing: the pod has it all"
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
