package lint

import (
	"slices"

	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// checkDivided finds objects whose replicas cannot be divided according to their policy.
func checkDivided(
	outcomes []render.Outcome, placingBy map[tree.Policy]*placingPolicy, clusters *clusters, types *types, out *report,
) {
	for i := range outcomes {
		o := &outcomes[i]
		if o.Propagation == nil {
			continue
		}
		p := placingBy[*o.Propagation]
		if p == nil || !p.compiled.Divides || p.reported || types.misshapen(o) {
			continue
		}
		if total := variant.Replicas(o.Object.Content); total == nil {
			s := subjectOf(o.Object)
			finding := s.finding(DivideWithoutReplicas, "metadata.labels["+labelOf(p.ref.Kind)+"]", "%s divides replicas, and the object has none", p.ref)
			out.once(p.ref.String()+o.ID.GroupKind.String(), finding.on([]string{s.object.String()}, nil))
		} else if clusters.known {
			checkBounds(p, o, clusters.all, *total, out)
		}
	}
}

// checkBounds checks the effect of a policy's bounds on an object.
func checkBounds(p *placingPolicy, o *render.Outcome, clusters []placement.Cluster, total int64, out *report) {
	on := []string{objectOf(o.Object).String()}
	least := int64(0)
	for i := range p.spec.Placements {
		d := &p.spec.Placements[i]
		if slices.ContainsFunc(clusters, func(c placement.Cluster) bool { return c.Name == d.Cluster && p.tolerates(&c) }) {
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

// checkShares finds overrides that set the replicas which a propagation policy divides.
func checkShares(outcomes []render.Outcome, types *types, items map[tree.Author]*item, out *report) {
	found := map[*item]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		divided := slices.ContainsFunc(o.Targets(), func(t placement.Target) bool { return t.Replicas != nil })
		if !divided || types.misshapen(o) {
			continue
		}
		for j := range o.Variants {
			at := run{outcome: o, variant: &o.Variants[j]}
			for k := range at.variant.Changes {
				c := &at.variant.Changes[k]
				it := items[*c.By]
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
