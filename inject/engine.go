package inject

import (
	"fmt"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Inject returns what becomes of a pod that is to be created, given as JSON. It does
// not modify pod and keeps nothing of it.
//
// The policies of the set whose selectors choose the pod are applied in their order,
// each wholly or not at all, and each sees what those before it have added; those that
// are left out get another chance when others have been applied. Injecting into what
// the patch makes of the pod gives no patch.
//
// Inject returns an error only if pod is not JSON, or not of the shape of a pod in
// what it looks at. Of a pod that no policy chooses that is the metadata alone.
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
	d := draft{body: body, patch: newPatch(explain), before: before}
	outcomes, rejected := d.run(policies, before.trust)
	result.report(outcomes, rejected)
	if rejected != nil {
		return result, nil
	}
	d.patch.annotate(h, claims(h, before, outcomes, result.Hash))
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
// the pod; it returns why then. It goes on for as long as policies that were left out
// can be applied after all, for what others have added: if it did not, they would be
// when the same pod comes again. The outcomes are in the order of the policies.
func (d *draft) run(policies []*Policy, tolerance func(*Policy) tolerance) ([]outcome, *Skipped) {
	outcomes := make([]outcome, len(policies))
	for goes := true; goes; {
		goes = false
		for i, p := range policies {
			o := &outcomes[i]
			if o.holds {
				continue
			}
			o.skipped = d.consider(p, tolerance(p))
			switch {
			case o.skipped != nil && o.skipped.rejects():
				return outcomes, o.skipped
			case o.skipped == nil && p.mode == refractv1beta1.ModeAudit:
				o.skipped = d.audit(p)
			case o.skipped == nil:
				o.holds, o.applied = true, d.apply(p)
				o.had = d.had(p, &o.applied)
				goes = true
			}
		}
	}
	return outcomes, nil
}

// trust returns how tolerant a pod's record makes an injection into it. What a user
// may have written must be seen to be true.
func (r *Record) trust(p *Policy) tolerance {
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
func (d *draft) audit(p *Policy) *Skipped {
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
