package placement

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// reschedule determines which changes cause a new decision.
type reschedule struct {
	disabled bool
	joined   bool   // A cluster that joins or leaves causes a new decision.
	labels   bool   // A changed label of a cluster causes a new decision.
	policy   string // The fields of the policy whose change causes a new decision, as text.
}

// rescheduling compiles a reschedulePolicy. Omitted fields have the defaults of the API server.
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
		if err == nil { // Every field can be marshaled.
			p.reschedule.policy += " " + string(text)
		}
	}
}

// hash covers all inputs whose change causes a new decision. It does not depend on any order.
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
