package inject

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree/raw"
)

// recordVersion is the version of the format that this package writes.
const recordVersion = 1

// errVersion is the error for a record of another version.
var errVersion = errors.New("want version 1")

// ReadRecord reads the annotation refract.dev/injection of a pod. It returns an error for invalid JSON and for a record
// of another version.
func ReadRecord(annotation string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal([]byte(annotation), r); err != nil {
		return nil, fmt.Errorf("reading the record of what was injected: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("reading the record of what was injected: %w, got %d", errVersion, r.Version)
	}
	return r, nil
}

// hashOf returns the hash of the policies that apply to a pod; empty without policies.
func hashOf(applied []Applied) string {
	if len(applied) == 0 {
		return ""
	}
	text := make([]byte, 0, 1024)
	for i := range applied {
		p := applied[i].Policy
		text = append(text, p.object.Name...)
		text = append(text, '\n')
		text = append(text, p.hash...)
		text = append(text, '\n')
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// list returns the names of the recorded additions of one kind.
func (r *RecordApplied) list(of itemKind) []string {
	switch of {
	case envItem:
		return r.Env
	case envFromItem:
		return r.EnvFrom
	case volumeItem:
		return r.Volumes
	default:
		return r.Mounts
	}
}

// list returns the names of the additions of one kind.
func (a *Applied) list(of itemKind) []string {
	switch of {
	case envItem:
		return a.Env
	case envFromItem:
		return a.EnvFrom
	case volumeItem:
		return a.Volumes
	default:
		return a.Mounts
	}
}

// hadKey returns the entry in [RecordApplied].Had for an item of a container.
func hadKey(container string, of itemKind, id string) string {
	return container + ":" + of.field() + ":" + id
}

// had returns the value of [RecordApplied].Had for an applied policy: the recorded items that a container already had
// while another container got them.
func (d *injection) had(p *Policy, a *Applied) []string {
	if d.before == nil {
		return nil
	}
	m := &d.previous
	if m.of == nil && d.even(a) {
		return nil
	}
	d.work += len(d.chosen) * (len(p.env) + len(p.envFrom) + len(p.mounts))
	added := d.additions[len(a.Volumes):] // In the same order as the loops below.
	var names [4]map[string]bool
	var out []string
	seen := map[string]bool{}
	for _, i := range d.chosen {
		for _, of := range inContainers {
			for index := range p.items(of) {
				if len(added) > 0 && added[0] == (addition{container: i, of: of, index: index}) {
					added = added[1:]
					continue
				}
				id := p.items(of)[index].id
				listed := m.lists(of, id)
				if !listed && !contains(a.list(of), &names[of], id) {
					continue
				}
				// An item that the record already lists comes from the policy, unless the record lists it in Had.
				c := &d.containers[i]
				if key := hadKey(c.name, of, id); !seen[key] && !m.gave(c, of, id) {
					seen[key] = true
					out = append(out, key)
				}
			}
		}
	}
	return out
}

// even reports whether the policy added the same items to each chosen container.
func (d *injection) even(a *Applied) bool {
	return len(d.additions) == len(a.Volumes)+len(d.chosen)*(len(a.Env)+len(a.EnvFrom)+len(a.Mounts))
}

// claims returns the annotations for a pod: the names of the applied policies for each service, and the record. It
// omits annotations for which the pod has no room.
func claims(h *head, of *body, before *past, outcomes []outcome, hash string) []claim {
	first := author(before, outcomes)
	if first == nil {
		return nil
	}
	out := serviceClaims(h, outcomes, first)
	room := apivalidation.TotalAnnotationSizeLimitB - h.size
	for _, a := range h.annotations {
		if a.key == refractv1beta1.InjectionAnnotation || strings.HasPrefix(a.key, refractv1beta1.ServicePrefix) {
			room += len(a.key) + len(a.value)
		}
	}
	size := 0
	for i := range out {
		size += len(out[i].key) + len(out[i].value)
	}
	if size > room {
		return noRecord(nil, h, first)
	}
	room -= size + len(refractv1beta1.InjectionAnnotation)
	for _, trimmed := range [...]bool{before.Trimmed, true} {
		// A trimmed record has no lists, but it has the member "trimmed". If the lists were short, the trimmed record
		// may be longer. So a record must leave room for this member. Otherwise a trimmed record could return to an
		// untrimmed one at the next review, when its lists are empty.
		const saying = len(`,"trimmed":true`)
		text := appendRecord(make([]byte, 0, 1024), of, before, hash, outcomes, trimmed)
		if len(text) <= room && (trimmed || len(text) <= room-saying) {
			return append(out, claim{key: refractv1beta1.InjectionAnnotation, value: string(text), by: first})
		}
	}
	return noRecord(out, h, first)
}

// noRecord appends an empty value for the pod's record if the pod has a record, because that record is no longer
// correct.
func noRecord(out []claim, h *head, by *Policy) []claim {
	if text, _ := h.annotation(refractv1beta1.InjectionAnnotation); text != "" {
		out = append(out, claim{key: refractv1beta1.InjectionAnnotation, by: by})
	}
	return out
}

// author returns the author of the annotations, for reports: the first policy that applies, or else the first skipped
// policy. A policy of the mode Audit causes no annotations, except to correct a record that names applied policies.
// Without such a policy, author returns nil.
func author(before *past, outcomes []outcome) *Policy {
	var first *Policy
	for i := range outcomes {
		o := &outcomes[i]
		if o.holds {
			return o.applied.Policy
		}
		if first == nil && (o.counts() || len(before.Applied) > 0) {
			first = o.skipped.Policy
		}
	}
	return first
}

// counts reports whether the policy was skipped although its mode is Enforce.
func (o *outcome) counts() bool {
	return o.skipped != nil && o.skipped.Policy.mode != refractv1beta1.ModeAudit
}

// serviceClaims returns the annotations that name the applied policies of each service. An existing annotation becomes
// empty if none of its policies applies any more.
func serviceClaims(h *head, outcomes []outcome, first *Policy) []claim {
	out, at, names := make([]claim, 0, 4), make(map[string]int, 4), make([][]string, 0, 4)
	for i := range outcomes {
		if !outcomes[i].holds {
			continue
		}
		p := outcomes[i].applied.Policy
		key := serviceKey(p)
		first, named := at[key]
		if !named {
			first = len(out)
			at[key] = first
			out, names = append(out, claim{key: key, by: p}), append(names, nil)
		}
		names[first] = append(names[first], p.Name())
	}
	for i := range names {
		out[i].value = strings.Join(names[i], ",")
	}
	for _, a := range h.annotations {
		if !strings.HasPrefix(a.key, refractv1beta1.ServicePrefix) {
			continue
		}
		if _, named := at[a.key]; !named {
			at[a.key] = len(out)
			out = append(out, claim{key: a.key, by: first})
		}
	}
	return out
}

// appendRecord appends the record as compact JSON, like encoding/json. The record also has the additions in the pod's
// earlier record.
func appendRecord(dst []byte, of *body, before *past, hash string, outcomes []outcome, trimmed bool) []byte {
	dst = append(dst, `{"v":1,"hash":`...)
	dst = raw.AppendString(dst, hash)
	n := 0
	if hash != "" && !trimmed {
		for i := range of.containers {
			dst = appendSeparator(dst, i, `,"c":[`)
			dst = raw.AppendString(dst, of.containers[i].name)
		}
		dst = appendEnd(dst, len(of.containers))
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.holds {
			dst = appendSeparator(dst, n, `,"applied":[`)
			dst = appendApplied(dst, o, before.current(o.applied.Policy), trimmed)
			n++
		}
	}
	dst = appendEnd(dst, n)
	n = 0
	for i := range outcomes {
		if o := &outcomes[i]; o.counts() {
			dst = appendSeparator(dst, n, `,"skipped":[`)
			dst = appendSkipped(dst, o.skipped, trimmed)
			n++
		}
	}
	dst = appendEnd(dst, n)
	if trimmed {
		dst = append(dst, `,"trimmed":true`...)
	}
	return append(dst, '}')
}

func appendSkipped(dst []byte, s *Skipped, trimmed bool) []byte {
	dst = raw.AppendString(append(dst, `{"p":`...), s.Policy.Name())
	dst = raw.AppendString(append(dst, `,"r":`...), s.Reason)
	// The record must be the same at each review of the pod. Later reviews do not know which policy added a conflicting
	// item, so the record never names that policy.
	if why, _, _ := strings.Cut(s.Message, fromPolicy); why != "" && !trimmed {
		dst = raw.AppendString(append(dst, `,"why":`...), why)
	}
	return append(dst, '}')
}

func appendSeparator(dst []byte, i int, opening string) []byte {
	if i == 0 {
		return append(dst, opening...)
	}
	return append(dst, ',')
}

func appendEnd(dst []byte, n int) []byte {
	if n == 0 {
		return dst
	}
	return append(dst, ']')
}

func appendApplied(dst []byte, o *outcome, before *RecordApplied, trimmed bool) []byte {
	a := &o.applied
	p := a.Policy
	dst = raw.AppendString(append(dst, `{"p":`...), p.Name())
	if p.object.Generation != 0 {
		dst = strconv.AppendInt(append(dst, `,"gen":`...), p.object.Generation, 10)
	}
	dst = raw.AppendString(append(dst, `,"h":`...), p.hash)
	if !trimmed {
		if before == nil {
			before = &RecordApplied{}
		}
		dst = appendNames(dst, `,"env":[`, p.env, a.Env, before.Env)
		dst = appendNames(dst, `,"from":[`, p.envFrom, a.EnvFrom, before.EnvFrom)
		dst = appendNames(dst, `,"vol":[`, p.volumes, a.Volumes, before.Volumes)
		dst = appendNames(dst, `,"mnt":[`, p.mounts, a.Mounts, before.Mounts)
		dst = appendStrings(dst, `,"in":[`, a.Containers)
		dst = appendStrings(dst, `,"had":[`, o.had)
	}
	return append(dst, '}')
}

func appendStrings(dst []byte, opening string, list []string) []byte {
	for i, text := range list {
		dst = raw.AppendString(appendSeparator(dst, i, opening), text)
	}
	return appendEnd(dst, len(list))
}

// appendNames appends the names of a policy's items that were added now or by an earlier injection, in the order of the
// policy. It ignores names in before that are not items of the policy.
func appendNames(dst []byte, opening string, items []item, now, before []string) []byte {
	n := 0
	var known map[string]bool
	for i := range items {
		id := items[i].id
		// The names in now are in the order of the policy.
		if len(now) > 0 && now[0] == id {
			now = now[1:]
		} else if !contains(before, &known, id) {
			continue
		}
		dst = raw.AppendString(appendSeparator(dst, n, opening), id)
		n++
	}
	return appendEnd(dst, n)
}
