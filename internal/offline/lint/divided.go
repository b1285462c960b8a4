package lint

import (
	"slices"

	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/internal/variant"
	"refract.dev/placement"
	"refract.dev/tree"
)

// checkDivided looks for objects whose replicas cannot be divided as their policy
// asks for.
func checkDivided(f *fleet, out *report) {
	placing := make(map[tree.Policy]*placingPolicy, len(f.placing))
	for _, p := range f.placing {
		placing[p.ref] = p
	}
	for i := range f.outcomes {
		o := &f.outcomes[i]
		if o.Propagation == nil {
			continue
		}
		p := placing[*o.Propagation]
		if p == nil || !p.compiled.Divides || p.reported || f.misshapen(o) {
			continue
		}
		if total := variant.Replicas(o.Object.Content); total == nil {
			s := subjectOf(o.Object)
			finding := s.finding(DivideWithoutReplicas, "metadata.labels["+labelOf(p.ref.Kind)+"]", "%s divides replicas, and the object has none", p.ref)
			out.once(p.ref.String()+o.ID.GroupKind.String(), finding.on([]string{s.object.String()}, nil))
		} else if f.known {
			f.checkBounds(out, p, o, *total)
		}
	}
}

// checkBounds looks at what the bounds of a policy do to an object.
func (f *fleet) checkBounds(out *report, p *placingPolicy, o *render.Outcome, total int64) {
	on := []string{objectOf(o.Object).String()}
	least := int64(0)
	for i := range p.spec.Placements {
		d := &p.spec.Placements[i]
		if slices.ContainsFunc(f.clusters, func(c placement.Cluster) bool { return c.Name == d.Cluster && tolerated(p, &c) }) {
			least += d.Preferences.MinReplicas
		}
	}
	if least > total && total > 0 {
		finding := p.finding(MinReplicasTooGreat, "spec.placement", "minReplicas add up to %d, and the object has %s",
			least, output.Count(int(total), "replica", "replicas"))
		out.once(p.ref.String(), finding.on(on, nil))
		return
	}
	sum := int64(0)
	for _, t := range o.Targets() {
		if t.Replicas != nil {
			sum += *t.Replicas
		}
	}
	if sum < total && len(o.Targets()) > 0 {
		finding := p.finding(ReplicasWithoutRoom, "spec.placement", "there is room for %d of %s", sum, output.Count(int(total), "replica", "replicas"))
		out.once(p.ref.String(), finding.on(on, nil))
	}
}

// checkShares looks for overrides that set what a propagation policy divides.
func checkShares(f *fleet, out *report) {
	found := map[*item]bool{}
	for i := range f.outcomes {
		o := &f.outcomes[i]
		if !slices.ContainsFunc(o.Targets(), func(t placement.Target) bool { return t.Replicas != nil }) || f.misshapen(o) {
			continue
		}
		for j := range o.Variants {
			at := run{outcome: o, variant: &o.Variants[j]}
			for k := range at.variant.Changes {
				c := &at.variant.Changes[k]
				it := f.byAuthor[*c.By]
				if c.Path != variant.ReplicasPath || it == nil || it.rule.reported || (it.reported && !found[it]) {
					continue
				}
				finding := it.rule.policy.finding(DividedReplicasSet, it.field, "sets %s, which %s divides", c.Path, o.Propagation)
				finding.Path = c.Path
				out.once(it.author.String(), finding.on(affected([]run{at})))
				it.reported, found[it] = true, true
			}
		}
	}
}
