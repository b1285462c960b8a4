package generate

import (
	"slices"
	"testing"

	"refract.dev/internal/manifest"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// read reads a fleet, in which there may be no problem.
func read(t *testing.T, f Fleet) *manifest.Set {
	t.Helper()
	set, problems := manifest.ReadFS(f.FS())
	for _, p := range problems {
		t.Error(p)
	}
	if len(problems) > 0 {
		t.FailNow()
	}
	return set
}

// pair is what one cluster gets of one object.
type pair struct {
	object, cluster string
	variant         *override.Variant // Nil if a policy is missing, or it is not placed there.
}

// pairs renders all objects for all clusters of a set.
func pairs(set *manifest.Set) []pair {
	var clusters []placement.Cluster
	var targets []match.Cluster
	for _, c := range set.Clusters {
		target := match.Cluster{Name: c.Cluster.Name, Labels: c.Cluster.Labels}
		targets = append(targets, target)
		clusters = append(clusters, placement.Cluster{Cluster: target, Taints: c.Cluster.Spec.Taints, Ready: true})
	}
	var out []pair
	for i := range set.Objects {
		o := set.Objects[i].Content
		variants := make([]*override.Variant, len(targets))
		if policies, ok := overrides(set, &set.Objects[i]); ok {
			for _, v := range override.Render(o, targets, policies...) {
				for _, c := range v.Clusters {
					variants[c] = &v
				}
			}
		}
		placed := placements(set, &set.Objects[i], clusters)
		for c, v := range variants {
			if !slices.Contains(placed, targets[c].Name) {
				v = nil
			}
			id := o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
			out = append(out, pair{object: id, cluster: targets[c].Name, variant: v})
		}
	}
	return out
}

// overrides returns the override policies that an object names, and whether they
// are all there.
func overrides(set *manifest.Set, o *manifest.Object) ([]*override.Policy, bool) {
	known := map[tree.Policy]*override.Policy{}
	for _, p := range set.OverridePolicies {
		known[p.Compiled.Ref] = p.Compiled
	}
	for _, p := range set.ClusterOverridePolicies {
		known[p.Compiled.Ref] = p.Compiled
	}
	refs, _, err := override.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	if err != nil {
		return nil, false
	}
	var policies []*override.Policy
	for _, ref := range refs {
		if known[ref] == nil {
			return nil, false
		}
		policies = append(policies, known[ref])
	}
	return policies, true
}

// placements returns the names of the clusters that an object is placed on: all
// if it does not name a policy.
func placements(set *manifest.Set, o *manifest.Object, clusters []placement.Cluster) []string {
	known := map[tree.Policy]*placement.Policy{}
	for _, p := range set.PropagationPolicies {
		known[p.Compiled.Ref] = p.Compiled
	}
	for _, p := range set.ClusterPropagationPolicies {
		known[p.Compiled.Ref] = p.Compiled
	}
	ref, named, _, err := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	switch {
	case err != nil:
		return nil
	case !named:
		var all []string
		for i := range clusters {
			all = append(all, clusters[i].Name)
		}
		return all
	case known[ref] == nil:
		return nil
	}
	decision, err := known[ref].Place(&placement.Request{Clusters: clusters})
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range decision.Targets {
		names = append(names, t.Cluster)
	}
	return names
}
