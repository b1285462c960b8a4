package inject

import (
	"fmt"
	"slices"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Examine returns the status of a pod that is there, given as JSON, for the policies of
// the set that select it. It does not modify pod.
//
// A pod is injected by a policy if its record says that the policy, with its
// present content, was applied to it, and the items are there, whatever others have
// made of them since; or if it has of itself all that the policy injects. Containers
// that came to it later than the policy count for nothing: they would come later the
// next time, too. Otherwise it is stale, unless the policy would be left out if the
// pod were created now, without what policies have added to it.
//
// Examine returns errors as [Set.Inject] does.
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
			out.Statuses = append(out.Statuses, PodStatus{Policy: p, State: StateExcluded, Reason: why.Reason, Message: why.Message})
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
	removed := was.revert(record)
	was.forget(record)
	is.forget(record)
	x := examiner{head: h, record: record, is: injection{body: is, name: h.name, size: len(pod)}}
	would := injection{body: was, name: h.name, size: len(pod) - removed}
	outcomes, _ := would.run(policies, x.trust)
	x.look(policies)
	var holding []Applied
	for i, p := range policies {
		status := x.examine(p, &outcomes[i])
		out.Statuses = append(out.Statuses, status)
		if status.State != StateSkipped {
			holding = append(holding, Applied{Policy: p})
		}
	}
	out.Hash = hashOf(holding)
	return out, nil
}

// examiner examines one pod.
type examiner struct {
	head   *head
	record *past
	is     injection
	// mute says that the pod may have no record because there was no room for one.
	mute bool
}

// look finds out whether there may have been no room for a record: not for the longest
// one, of policies that all hold.
func (x *examiner) look(policies []*Policy) {
	if x.record.Version != 0 {
		return
	}
	outcomes, applied := make([]outcome, len(policies)), make([]Applied, len(policies))
	for i, p := range policies {
		applied[i] = Applied{Policy: p}
		outcomes[i] = outcome{holds: true, applied: applied[i]}
	}
	written := claims(x.head, x.is.body, x.record, outcomes, hashOf(applied))
	x.mute = !slices.ContainsFunc(written, func(c claim) bool { return c.key == refractv1beta1.InjectionAnnotation && c.value != "" })
}

// named reports whether the annotation of the policy's service has its name. If there
// is none, there may have been no room for it either.
func (x *examiner) named(p *Policy) bool {
	names, there := x.head.annotation(serviceKey(p))
	return p.mode != refractv1beta1.ModeAudit && (!there || slices.Contains(strings.Split(names, ","), p.Name()))
}

// recorded reports whether the pod's record says that a policy was applied to it as
// it is today, and the items are there. A record may have been copied into the
// template of a pod that was created without being injected.
func (x *examiner) recorded(p *Policy) bool {
	return x.record.current(p) != nil && p.mode != refractv1beta1.ModeAudit && x.is.shows(p)
}

// trust believes the record of a pod that is there: what differs from the record was
// changed after us.
func (x *examiner) trust(p *Policy) tolerance {
	if x.recorded(p) {
		return lenient
	}
	return strict
}

// shows reports whether the pod has all volumes of a policy, and one of the chosen
// containers all its other items, whatever they say.
func (d *injection) shows(p *Policy) bool {
	d.work += len(p.volumes)
	for i := range p.volumes {
		if d.volumes.findItem(&p.volumes[i]) == nil {
			return false
		}
	}
	d.choose(p)
	return slices.ContainsFunc(d.chosen, func(i int) bool {
		for _, of := range inContainers {
			there := d.containers[i].list(of)
			d.work += len(p.items(of))
			if slices.ContainsFunc(p.items(of), func(it item) bool { return there.findItem(&it) == nil }) {
				return false
			}
		}
		return true
	})
}

// examine returns the status of the pod for a policy, given what would become of the
// policy if the pod were created now.
func (x *examiner) examine(p *Policy, would *outcome) PodStatus {
	switch {
	case x.recorded(p):
		return PodStatus{Policy: p, State: StateInjected}
	case x.mute && x.named(p) && x.is.shows(p):
		return x.guess(p)
	case would.skipped != nil:
		return PodStatus{Policy: p, State: StateSkipped, Reason: would.skipped.Reason, Message: would.skipped.Message}
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

// guess finds out the status of a pod without room for a record for a policy whose items
// it has: nobody can know from whom.
func (x *examiner) guess(p *Policy) PodStatus {
	if x.is.consider(p, proven) == nil && (len(x.is.additions) == 0 || x.is.isProven(p)) {
		return PodStatus{Policy: p, State: StateInjected}
	}
	return PodStatus{
		Policy: p, State: StateSkipped, Reason: ReasonNoRecord,
		Message: "the pod has no room for a record: what it has in place of the policy's items may be its own, or from an earlier generation of the policy",
	}
}

// compare finds out the status of a pod for a policy that would hold for it, but of which
// its record does not say that it does.
func (x *examiner) compare(p *Policy) PodStatus {
	before := x.record.of(p)
	if before != nil && before.Hash != p.hash && x.left(before) {
		return PodStatus{
			Policy: p, State: StateStale, Reason: ReasonChanged,
			Message: fmt.Sprintf("injected with generation %d of the policy, which injects something else now", before.Generation),
		}
	}
	if x.is.consider(p, strict) == nil && len(x.is.additions) == 0 {
		return PodStatus{Policy: p, State: StateInjected}
	}
	message := "the pod was created before the policy, or without being injected"
	if before != nil && before.Hash == p.hash {
		message = "the pod's record says that the policy was applied, but the pod lacks what it injects: " +
			"the record was copied, or something was taken away since"
	}
	return PodStatus{Policy: p, State: StateStale, Reason: ReasonMissing, Message: message}
}

// left reports whether a policy of other content has left something in the pod, as far
// as is known.
func (x *examiner) left(before *RecordApplied) bool {
	return x.record.Trimmed || len(before.Env)+len(before.EnvFrom)+len(before.Volumes)+len(before.Mounts) > 0
}
