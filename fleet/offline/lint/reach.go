package lint

import (
	"maps"
	"slices"
	"strings"

	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// checkReach finds rules for clusters that none of the policy's objects is on or can be placed on.
func checkReach(outcomes []render.Outcome, policies *policies, clusters *clusters, lost *lost, out *report) {
	if !clusters.known || lost.objects() || lost.clusters() {
		return
	}
	for _, p := range policies.overriding {
		if p.users == 0 || p.unknown {
			continue
		}
		u := useOf(p, outcomes, policies.placingBy)
		for _, r := range p.rules {
			if !r.reported && len(r.runs) == 0 {
				r.reported = true
				r.reportReach(clusters.chosen(r.policy.compiled.Target(r.index)), u, out)
			}
		}
	}
}

// reportReach reports a rule unless an object can be placed on one of the clusters that the rule chooses.
func (r *rule) reportReach(chosen []*placement.Cluster, u *use, out *report) {
	if u.mayReach(chosen) {
		return
	}
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = c.Name
	}
	finding := r.policy.finding(RuleReachesNoObject, r.field+".targetClusters",
		"none of the objects that name the policy is placed on %s", render.Few(names))
	finding.choices("they are placed on %s", u.clusters)
	// A propagation policy that leaves clusters out is one mistake.
	out.once(strings.Join(append(u.names(), names...), " "), finding.on(u.objects, names))
}

// use describes the objects that name an override policy, their clusters and their propagation policies.
type use struct {
	objects  []string
	clusters []string
	placing  []*placingPolicy
}

func useOf(p *policy, outcomes []render.Outcome, placingBy map[tree.Policy]*placingPolicy) *use {
	u := &use{}
	clusters := map[string]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		if !slices.Contains(o.Policies, p.compiled) {
			continue
		}
		u.objects = append(u.objects, objectOf(o.Object).String())
		for j := range o.Clusters {
			clusters[o.Clusters[j].Name] = true
		}
		if o.Propagation != nil && !slices.Contains(u.placing, placingBy[*o.Propagation]) {
			u.placing = append(u.placing, placingBy[*o.Propagation])
		}
	}
	u.clusters = slices.Sorted(maps.Keys(clusters))
	return u
}

// mayReach reports whether an object can be placed on one of the clusters while the policies stay the same: when the
// cluster becomes ready, when maxClusters leads to another choice, or after a reported mistake is fixed.
func (u *use) mayReach(clusters []*placement.Cluster) bool {
	for _, p := range u.placing {
		if p == nil || p.reported {
			return true
		}
		if slices.ContainsFunc(clusters, p.wants) {
			return true
		}
	}
	return false
}

func (u *use) names() []string {
	names := make([]string, len(u.placing))
	for i, p := range u.placing {
		names[i] = p.ref.String()
	}
	return names
}
