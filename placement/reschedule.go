package placement

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

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
	if total := p.total(r); total != nil {
		sum += digest("replicas", strconv.FormatInt(*total, 10))
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
