package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// kept is a placement that an object keeps, regardless of a new decision. In the zero value, no placement is kept.
type kept struct {
	targets []Target
	by      string // The reason: a field of the policy or an annotation.
}

// keep returns the placement that the object keeps.
func (p *Policy) keep(r *Request, hash string) kept {
	switch {
	case r.Frozen:
		return kept{targets: r.there(), by: "annotation " + corev1alpha1.NoSchedulingAnnotation}
	case p.reschedule == nil:
		return kept{}
	case p.reschedule.disabled:
		return p.within(r)
	case p.stands(r, hash):
		return kept{targets: r.there(), by: "spec.reschedulePolicy"}
	default:
		return kept{}
	}
}

// stands reports whether the earlier placement stays. It stays while the inputs in the hash are the same, and no
// current cluster is gone or expels the object by a taint.
func (p *Policy) stands(r *Request, hash string) bool {
	if hash != r.Hash || len(r.Previous) == 0 {
		return false
	}
	found := 0
	for c, was := range r.each() {
		if was == nil {
			continue
		}
		found++
		expelled := func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && !p.toleratesOne(&t) }
		if slices.ContainsFunc(c.Taints, expelled) {
			return false
		}
		if (was.Replicas != nil) != (p.total(r) != nil) {
			return false // The mode of the policy has changed, or spec.replicas was added or removed.
		}
	}
	return found == len(r.Previous)
}

// within keeps the object on its current clusters, if there are any. If the shares do not add up to the object's
// replicas, the replicas are divided again among these clusters.
func (p *Policy) within(r *Request) kept {
	there, total := r.there(), p.total(r)
	if len(there) == 0 {
		return kept{}
	}
	if total == nil {
		for i := range there {
			there[i].Replicas = nil
		}
	} else if sum, known := sumOf(there); !known || sum != *total {
		var parts []part
		for c, was := range r.each() {
			if was != nil {
				parts = append(parts, p.part(c, was, *total))
			}
		}
		there = p.divide(parts, *total, true).Targets
	}
	return kept{targets: there, by: "spec.reschedulePolicy.disableRescheduling"}
}

// The method or chooses between the kept placement and the new decision. It returns the new decision if both have the
// same targets, or if nothing is kept. Otherwise it returns the kept placement, with the additional clusters of the new
// decision as Waiting, and with warnings about the difference. The total is nil if the object is not divided.
func (k kept) or(anew Decision, total *int64) Decision {
	if k.by == "" || slices.EqualFunc(anew.Targets, k.targets, equalTargets) {
		return anew
	}
	d := Decision{Targets: k.targets, Waiting: missing(anew.Targets, k.targets)}
	if len(d.Waiting) > 0 {
		d.Kept = k.by
	}
	if leaving := missing(k.targets, anew.Targets); len(leaving) > 0 {
		d.Warnings = append(d.Warnings,
			fmt.Sprintf("stays on %s, which a new decision would not choose", list(leaving)))
	}
	if sum, known := sumOf(k.targets); total != nil && known && sum != *total && len(k.targets) > 0 {
		d.Warnings = append(d.Warnings,
			fmt.Sprintf("the shares add up to %d, and the object has %s", sum, replicas(total)))
	}
	return d
}
