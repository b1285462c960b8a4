package placement

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// reschedule is what makes a placement be decided anew.
type reschedule struct {
	disabled bool
	joined   bool   // Clusters that join, or leave.
	labels   bool   // Labels of clusters.
	policy   string // Of the policy, what counts.
}

// rescheduling compiles a reschedulePolicy. What it leaves out is as an API server
// fills it in.
func (p *Policy) rescheduling(spec *corev1alpha1.PropagationPolicySpec) {
	r := spec.ReschedulePolicy
	if r == nil {
		return
	}
	p.disrupts = r.ReplicaRescheduling != nil && !r.ReplicaRescheduling.AvoidDisruption
	p.reschedule = &reschedule{disabled: r.DisableRescheduling, policy: p.Ref.Kind + " " + p.Ref.Namespace + "/" + p.Ref.Name}
	if r.DisableRescheduling {
		return
	}
	content := true
	if t := r.Trigger; t != nil {
		content, p.reschedule.joined, p.reschedule.labels = t.PolicyContentChanged, t.ClusterJoined, t.ClusterLabelsChanged
	}
	if content {
		counts := *spec
		counts.DisableFollowerScheduling, counts.AutoMigration, counts.SchedulingProfile = false, nil, ""
		text, err := json.Marshal(&counts)
		if err == nil { // Nothing in it has no JSON.
			p.reschedule.policy += " " + string(text)
		}
	}
}

// hash covers what makes the placement be decided anew. It does not depend on the
// order of anything.
func (p *Policy) hash(r *Request) string {
	if p.reschedule == nil {
		return ""
	}
	sum := digest(p.reschedule.policy)
	if p.Divides && r.Replicas != nil {
		sum += digest("replicas", strconv.FormatInt(*r.Replicas, 10))
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		if p.reschedule.joined && c.Ready {
			sum += digest("cluster", c.Name)
		}
		if p.reschedule.labels {
			for key, value := range c.Labels {
				sum += digest("label", c.Name, key, value)
			}
		}
	}
	return fmt.Sprintf("%016x", sum)
}

func digest(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// keeps reports whether the placement stands as it was decided before.
func (p *Policy) keeps(r *Request, hash string) bool {
	if p.reschedule == nil || hash != r.Hash || len(r.Previous) == 0 {
		return false
	}
	there := 0
	for c, was := range r.each() {
		if was == nil {
			continue
		}
		there++
		if slices.ContainsFunc(c.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute && !p.toleratesOne(&t) }) {
			return false
		}
		if (was.Replicas != nil) != (p.Divides && r.Replicas != nil) {
			return false // The mode is another one, or the object.
		}
	}
	return there == len(r.Previous)
}

// keep leaves the object where it is, and says what would be otherwise but for a
// reason.
func (p *Policy) keep(r *Request, where []Target, reason string) Decision {
	at := *r
	at.Previous = where
	free := p.anew(&at)
	if slices.EqualFunc(free.Targets, where, equalTargets) {
		return free
	}
	d := Decision{Targets: where, Waiting: missing(free.Targets, where)}
	if len(d.Waiting) > 0 {
		d.Kept = reason
	}
	if leaving := missing(where, free.Targets); len(leaving) > 0 {
		d.Warnings = append(d.Warnings, fmt.Sprintf("stays on %s, which would not be chosen if it were decided anew", list(leaving)))
	}
	if p.Divides && r.Replicas != nil {
		if sum, known := sumOf(where); known && sum != *r.Replicas && len(where) > 0 {
			d.Warnings = append(d.Warnings, fmt.Sprintf("the shares add up to %d, and the object has %s", sum, replicas(r.Replicas)))
		}
	}
	return d
}

// sumOf returns the replicas of all targets, if they are known.
func sumOf(targets []Target) (sum int64, known bool) {
	for i := range targets {
		if targets[i].Replicas == nil {
			return 0, false
		}
		sum += *targets[i].Replicas
	}
	return sum, true
}

// within leaves the object on the clusters that it is on, and divides its replicas
// anew among them if these are not all there.
func (p *Policy) within(r *Request) Decision {
	const disabled = "spec.reschedulePolicy.disableRescheduling"
	if !p.Divides || r.Replicas == nil {
		where := r.stay()
		for i := range where {
			where[i].Replicas = nil
		}
		return p.keep(r, where, disabled)
	}
	where := r.stay()
	if sum, known := sumOf(where); known && sum == *r.Replicas {
		return p.keep(r, where, disabled)
	}
	var parts []part
	for c, was := range r.each() {
		if was != nil {
			parts = append(parts, p.part(c, was, *r.Replicas))
		}
	}
	return p.keep(r, p.divide(parts, *r.Replicas, true).Targets, disabled)
}
