package inject

import (
	"fmt"
	"slices"
	"strings"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Examine returns the status of a running pod, given as JSON, for the policies of the set that select it. It does not
// modify pod.
//
// A pod is injected by a policy in two cases:
//   - The pod's record says that the policy was applied with its current content, and the pod has items with the names of
//     the policy's items. Other writers may have changed their content.
//   - The pod has all items of the policy in its own manifest.
//
// Otherwise the pod is skipped if the policy would be skipped for it now, and stale if not. For this comparison Examine
// assumes a new pod without the recorded additions. Containers that were added after the injection are ignored, because
// they would again be added after the injection of a new pod.
//
// Like [Set.Inject], Examine returns an error if pod cannot be read.
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
	// mute is true if the record may be missing because the pod's annotations left no room for it.
	mute bool
}

// look sets mute if the longest possible record does not fit into the pod's annotations. A record is longest if all
// policies apply.
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

// named reports whether the annotation for the policy's service names the policy. named also returns true if this
// annotation is missing, because there may have been no room for it.
func (x *examiner) named(p *Policy) bool {
	names, there := x.head.annotation(serviceKey(p))
	return p.mode != refractv1beta1.ModeAudit && (!there || slices.Contains(strings.Split(names, ","), p.Name()))
}

// recorded reports whether the pod's record says that a policy was applied with its current content, and the pod has
// items with the same names. The record alone proves nothing, because it may have been copied into the template of a
// pod that was created without injection.
func (x *examiner) recorded(p *Policy) bool {
	return x.record.current(p) != nil && p.mode != refractv1beta1.ModeAudit && x.is.shows(p)
}

// trust returns the tolerance for a policy in a running pod. For a recorded policy it is lenient, because other writers
// may have changed the pod after the injection.
func (x *examiner) trust(p *Policy) tolerance {
	if x.recorded(p) {
		return lenient
	}
	return strict
}

// shows reports whether the pod has all volumes of a policy, and one of the chosen containers has all its other items.
// It compares only the names of items, not their content.
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

// examine returns the status of the pod for a policy. The argument would is the outcome of the policy for a new pod.
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

// Reasons for the state Stale.
const (
	// ReasonChanged: the policy has changed since the injection.
	ReasonChanged = "PolicyChanged"
	// ReasonMissing: the pod lacks an item of the policy.
	ReasonMissing = "Missing"
)

// guess determines the status of a pod that has the policy's items but had no room for a record. The items may be from
// the policy or from the pod's own manifest.
func (x *examiner) guess(p *Policy) PodStatus {
	if x.is.consider(p, proven) == nil && (len(x.is.additions) == 0 || x.is.isProven(p)) {
		return PodStatus{Policy: p, State: StateInjected}
	}
	return PodStatus{
		Policy: p, State: StateSkipped, Reason: ReasonNoRecord,
		Message: "the pod has no room for a record: its items may be its own, or from an earlier generation of the policy",
	}
}

// compare determines the status of a pod for a policy that would apply to a new pod. The pod has no record of the
// policy with its current content, or lacks items that the record lists.
func (x *examiner) compare(p *Policy) PodStatus {
	before := x.record.of(p)
	if before != nil && before.Hash != p.hash && x.left(before) {
		return PodStatus{
			Policy: p, State: StateStale, Reason: ReasonChanged,
			Message: fmt.Sprintf("injected with generation %d of the policy, which now injects other items", before.Generation),
		}
	}
	if x.is.consider(p, strict) == nil && len(x.is.additions) == 0 {
		return PodStatus{Policy: p, State: StateInjected}
	}
	message := "the pod was created before the policy, or without injection"
	if before != nil && before.Hash == p.hash {
		message = "the pod's record lists the policy as applied, but the pod lacks its items: the record was copied, or items were removed since"
	}
	return PodStatus{Policy: p, State: StateStale, Reason: ReasonMissing, Message: message}
}

// left reports whether the record lists items that an earlier generation of the policy added. left also returns true
// for a trimmed record, which lists no items.
func (x *examiner) left(before *RecordApplied) bool {
	return x.record.Trimmed || len(before.Env)+len(before.EnvFrom)+len(before.Volumes)+len(before.Mounts) > 0
}
