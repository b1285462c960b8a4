package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// fitting returns the clusters on which an object that is not divided may be placed, by name.
func (p *Policy) fitting(r *Request) []Target {
	found := make([]Target, 0, len(r.Clusters))
	for c, was := range r.each() {
		if p.fits(c, was != nil) {
			found = append(found, Target{Cluster: c.Name})
		}
	}
	return found
}

// candidates returns the clusters that may get a share of the replicas, by name.
func (p *Policy) candidates(r *Request) []part {
	parts := make([]part, 0, len(r.Clusters))
	for c, was := range r.each() {
		if !p.fits(c, was != nil) {
			continue
		}
		if s := p.part(c, was, *r.Replicas); s.hi > 0 || *r.Replicas == 0 {
			parts = append(parts, s)
		}
	}
	if *r.Replicas == 0 && slices.ContainsFunc(parts, func(s part) bool { return s.placed }) {
		parts = slices.DeleteFunc(parts, func(s part) bool { return !s.placed })
	}
	return parts
}

func (p *Policy) fits(c *Cluster, placed bool) bool {
	return p.chooses(c) && p.tolerates(c.Taints, placed) && (c.Ready || placed)
}

// chooses reports whether the placement list and the selectors of the policy choose the cluster.
func (p *Policy) chooses(c *Cluster) bool {
	if p.listed != nil {
		if _, ok := p.listed[c.Name]; !ok {
			return false
		}
	}
	return p.selector.Match(&c.Cluster)
}

// tolerates implements the semantics of Kubernetes: NoSchedule keeps new objects away, NoExecute also evicts present
// objects, PreferNoSchedule has no effect.
func (p *Policy) tolerates(taints []corev1.Taint, placed bool) bool {
	for i := range taints {
		t := &taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || (t.Effect == corev1.TaintEffectNoSchedule && placed) {
			continue
		}
		if !p.toleratesOne(t) {
			return false
		}
	}
	return true
}

func (p *Policy) toleratesOne(t *corev1.Taint) bool {
	for i := range p.tolerations {
		if tolerated(t, &p.tolerations[i]) {
			return true
		}
	}
	return false
}

func tolerated(t *corev1.Taint, by *corev1.Toleration) bool {
	if (by.Effect != "" && by.Effect != t.Effect) || (by.Key != "" && by.Key != t.Key) {
		return false
	}
	switch by.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return by.Key != "" && by.Value == t.Value
	default:
		return false
	}
}

// part returns the bounds, weight and rank of a cluster in a division of the total.
func (p *Policy) part(c *Cluster, was *Target, total int64) part {
	own, ok := p.listed[c.Name]
	if !ok {
		own = unlisted
	}
	s := part{
		cluster: c.Name, lo: own.min, hi: min(own.max, total),
		weight: uint64(own.weight),
		rank:   own.weight,
	}
	if p.binpack {
		s.rank = own.priority
	}
	known := was != nil && was.Replicas != nil
	s.placed = was != nil && (!known || *was.Replicas > 0 || total == 0)
	if known {
		s.current = max(0, *was.Replicas)
	}
	if known && (!c.Ready || !p.tolerates(c.Taints, false)) {
		s.hi = min(s.hi, s.current)
	}
	s.lo = min(s.lo, own.max)
	if !p.binpack && own.weight == 0 {
		s.hi = min(s.hi, p.without(&s))
	}
	if s.hi < s.lo && s.hi < total {
		s.lo = s.hi
	}
	return s
}

// without returns the maximum share of a cluster without a weight.
func (p *Policy) without(s *part) int64 {
	if p.disrupts {
		return s.lo
	}
	return max(s.lo, s.current)
}
