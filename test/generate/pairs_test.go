package generate

import (
	"slices"
	"testing"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// read reads a fleet, and fails the test on a problem.
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

// pair is the variant of one object on one cluster.
type pair struct {
	object, cluster string
	variant         *override.Variant // Nil if a policy is missing, or if the object is not placed on the cluster.
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
		variants := map[string]*override.Variant{}
		if policies, ok := overrides(set, &set.Objects[i]); ok {
			by, placed := placements(set, &set.Objects[i], clusters)
			var on []match.Cluster
			for _, t := range placed {
				on = append(on, targets[slices.IndexFunc(targets, func(c match.Cluster) bool { return c.Name == t.Cluster })])
			}
			for _, v := range variant.Render(o, on, placed, by, policies...) {
				for _, c := range v.Clusters {
					variants[on[c].Name] = &v
				}
			}
		}
		for c := range targets {
			id := o.GroupVersionKind().GroupKind().String() + " " + o.GetNamespace() + "/" + o.GetName()
			out = append(out, pair{object: id, cluster: targets[c].Name, variant: variants[targets[c].Name]})
		}
	}
	return out
}

// overrides returns the override policies that an object names, and whether all of them exist.
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

// placements returns the propagation policy of an object and the clusters that it is placed on: all clusters if it
// names no policy.
func placements(set *manifest.Set, o *manifest.Object, clusters []placement.Cluster) (tree.Policy, []placement.Target) {
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
		return ref, nil
	case !named:
		var all []placement.Target
		for i := range clusters {
			all = append(all, placement.Target{Cluster: clusters[i].Name})
		}
		return ref, all
	case known[ref] == nil:
		return ref, nil
	}
	decision, err := known[ref].Place(&placement.Request{Clusters: clusters, Replicas: variant.Replicas(o.Content)})
	if err != nil {
		return ref, nil
	}
	return ref, decision.Targets
}
