package lint

import (
	"maps"
	"slices"
	"strings"

	"refract.dev/internal/offline/render"
	"refract.dev/match"
	"refract.dev/placement"
	"refract.dev/tree"
)

// checkReach looks for rules whose clusters have none of the objects that name the
// policy, and are not going to.
func checkReach(f *fleet, out *report) {
	if !f.known || f.lost.objects() || f.lost.clusters() {
		return
	}
	placing := make(map[tree.Policy]*placingPolicy, len(f.placing))
	for _, p := range f.placing {
		placing[p.ref] = p
	}
	for _, p := range f.overriding {
		if p.users == 0 || p.unseen {
			continue
		}
		u := f.use(p, placing)
		for _, r := range p.rules {
			if !r.reported && len(r.runs) == 0 {
				r.reported = true
				f.reportReach(out, r, u)
			}
		}
	}
}

func (f *fleet) reportReach(out *report, r *rule, u *use) {
	chosen := f.chosen(r.policy.compiled.Target(r.index))
	if u.mayReach(f, chosen) {
		return
	}
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = c.Name
	}
	finding := r.policy.finding(RuleReachesNoObject, r.field+".targetClusters",
		"none of the objects that name the policy is placed on %s", render.Few(names))
	finding.choices("they are placed on %s", u.clusters)
	// That a propagation policy leaves clusters out is one mistake.
	out.once(strings.Join(append(u.names(), names...), " "), finding.on(u.objects, names))
}

// chosen returns the clusters that are chosen.
func (f *fleet) chosen(c *match.Clusters) []*placement.Cluster {
	var chosen []*placement.Cluster
	for i := range f.clusters {
		if c.Match(&f.clusters[i].Cluster) {
			chosen = append(chosen, &f.clusters[i])
		}
	}
	return chosen
}

// use is what the objects that name an override policy are and where they go.
type use struct {
	objects  []string
	clusters []string
	placing  []*placingPolicy
}

func (f *fleet) use(p *policy, placing map[tree.Policy]*placingPolicy) *use {
	u := &use{}
	seen := map[string]bool{}
	for i := range f.outcomes {
		o := &f.outcomes[i]
		if !slices.Contains(o.Policies, p.compiled) {
			continue
		}
		u.objects = append(u.objects, objectOf(o.Object).String())
		for j := range o.Clusters {
			seen[o.Clusters[j].Name] = true
		}
		if o.Propagation != nil && !slices.Contains(u.placing, placing[*o.Propagation]) {
			u.placing = append(u.placing, placing[*o.Propagation])
		}
	}
	u.clusters = slices.Sorted(maps.Keys(seen))
	return u
}

// mayReach reports whether an object may come to one of the clusters without any
// change of the policies, as when it becomes ready or maxClusters chooses anew, or
// would if a mistake that is reported were mended.
func (u *use) mayReach(f *fleet, clusters []*placement.Cluster) bool {
	for _, p := range u.placing {
		if p == nil || p.reported {
			return true
		}
		if slices.ContainsFunc(clusters, func(c *placement.Cluster) bool { return f.wants(p, c) }) {
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
