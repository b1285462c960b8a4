package inject

import (
	"fmt"
	"slices"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Examine returns how a pod that is there, given as JSON, stands to the policies of
// the set that select it. It does not modify pod.
//
// A pod stands well with a policy if its record says that the policy, with its
// present content, was applied to it, or if it has of itself all that the policy
// injects. Containers that came to it later than the policy count for nothing: they
// would come later the next time, too. Otherwise it is stale, unless the policy would
// be left out if the pod were created now, without what policies have added to it.
//
// Examine returns an error only if pod is not JSON, or not of the shape of a pod.
func (s *Set) Examine(pod []byte) (*Examination, error) {
	h, err := readHead(pod)
	if err != nil {
		return nil, err
	}
	record := h.record()
	out := &Examination{Recorded: record.Hash}
	policies := s.matching(h.labels)
	if len(policies) == 0 {
		return out, nil
	}
	if why := h.excluded(); why != nil {
		for _, p := range policies {
			out.Standings = append(out.Standings, Standing{Policy: p, State: StateExcluded, Reason: why.Reason, Message: why.Message})
		}
		return out, nil
	}
	is, err := readBody(pod, initContainersPart, containersPart)
	if err != nil {
		return nil, err
	}
	was, err := readBody(pod, initContainersPart, containersPart)
	if err != nil {
		return nil, err
	}
	was.undo(record, policies)
	x := examiner{record: record, is: draft{body: is}}
	would := draft{body: was}
	outcomes, _ := would.run(policies, x.trust)
	var holding []Applied
	for i, p := range policies {
		standing := x.examine(p, &outcomes[i])
		out.Standings = append(out.Standings, standing)
		if standing.State != StateSkipped {
			holding = append(holding, Applied{Policy: p})
		}
	}
	out.Hash = hashOf(holding)
	return out, nil
}

// undo takes away what a record says that policies have added.
func (b *body) undo(record *Record, policies []*Policy) {
	for i := range record.Applied {
		a := &record.Applied[i]
		var current *Policy
		for _, p := range policies {
			if p.Name() == a.Policy && p.hash == a.Hash {
				current = p
			}
		}
		b.volumes.remove(a.Volumes, func(e *entry) bool { return current.added(volumeItem, e) })
		for j := range b.containers {
			c := &b.containers[j]
			if len(a.Containers) > 0 && !slices.Contains(a.Containers, c.name) {
				continue
			}
			for _, of := range inContainers {
				c.list(of).remove(a.list(of), func(e *entry) bool {
					return !slices.Contains(a.Had, hadKey(c.name, of, e.id)) && current.added(of, e)
				})
			}
		}
	}
}

// added reports whether an entry whose id a policy has added is what it adds. Of a
// policy that has gone or has changed, which is nil here, one cannot know: it is.
func (p *Policy) added(of itemKind, e *entry) bool {
	if p == nil {
		return true
	}
	items := p.items(of)
	i := slices.IndexFunc(items, func(it item) bool { return it.id == e.id })
	return i >= 0 && e.same(of, &items[i])
}

// examiner examines one pod.
type examiner struct {
	record *Record
	is     draft
}

// recorded reports whether the pod's record says that a policy was applied to it as
// it is today.
func (x *examiner) recorded(p *Policy) bool {
	return x.record.current(p) != nil && p.mode != refractv1beta1.ModeAudit
}

// trust believes the record of a pod that is there: what is another than the record
// says was made so after us.
func (x *examiner) trust(p *Policy) tolerance {
	if x.recorded(p) {
		return lenient
	}
	return strict
}

// examine returns how the pod stands to a policy, given what would become of the
// policy if the pod were created now.
func (x *examiner) examine(p *Policy, would *outcome) Standing {
	switch {
	case x.recorded(p):
		return Standing{Policy: p, State: StateInjected}
	case would.skipped != nil:
		return Standing{Policy: p, State: StateSkipped, Reason: would.skipped.Reason, Message: would.skipped.Message}
	default:
		return x.compare(p)
	}
}

// Why a pod is stale.
const (
	// ReasonChanged: the policy has changed since it was applied.
	ReasonChanged = "PolicyChanged"
	// ReasonMissing: the pod lacks something that the policy injects.
	ReasonMissing = "Missing"
)

// compare finds out how a pod stands to a policy that would hold for it, but of which
// its record does not say that it does.
func (x *examiner) compare(p *Policy) Standing {
	if before := x.record.of(p); before != nil && x.left(before) {
		return Standing{
			Policy: p, State: StateStale, Reason: ReasonChanged,
			Message: fmt.Sprintf("injected with generation %d of the policy, which injects something else now", before.Generation),
		}
	}
	if x.is.consider(p, strict) == nil && len(x.is.additions) == 0 {
		return Standing{Policy: p, State: StateInjected}
	}
	return Standing{
		Policy: p, State: StateStale, Reason: ReasonMissing,
		Message: "the pod was created before the policy, or without being injected",
	}
}

// left reports whether a policy of other content has left something in the pod, as far
// as is known.
func (x *examiner) left(before *RecordApplied) bool {
	return x.record.Trimmed || len(before.Env)+len(before.EnvFrom)+len(before.Volumes)+len(before.Mounts) > 0
}
