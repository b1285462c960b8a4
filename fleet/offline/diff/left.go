package diff

import (
	"fmt"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// noteOfLeft adds a note about the clusters that leave the fleet and the policies that still name them: the cluster may
// have been renamed.
func (c *comparison) noteOfLeft(to *manifest.Set) {
	left := map[string][]string{} // By message.
	for i := range c.clusters {
		at := &c.clusters[i]
		if !at.shown || at.stays {
			continue
		}
		message := "leaves the fleet: its copies stay there, unchanged"
		if by := naming(to, at.name); len(by) > 0 {
			message += fmt.Sprintf("; %s it: %s", output.Count(len(by), "policy still names", "policies still name"), render.Few(by))
		}
		left[message] = append(left[message], at.name)
	}
	for message, names := range left {
		c.notes.addOfFleet(names, message)
	}
}

// naming returns the policies that name a cluster, sorted.
func naming(set *manifest.Set, cluster string) []string {
	var all []string
	add := func(ref tree.Policy, names bool) {
		ref.Generation = 0
		if names {
			all = append(all, ref.String())
		}
	}
	for _, p := range set.OverridePolicies {
		add(p.Compiled.Ref, rulesName(p.Policy.Spec.OverrideRules, cluster))
	}
	for _, p := range set.ClusterOverridePolicies {
		add(p.Compiled.Ref, rulesName(p.Policy.Spec.OverrideRules, cluster))
	}
	for _, p := range set.PropagationPolicies {
		add(p.Compiled.Ref, places(p.Policy.Spec.Placements, cluster))
	}
	for _, p := range set.ClusterPropagationPolicies {
		add(p.Compiled.Ref, places(p.Policy.Spec.Placements, cluster))
	}
	slices.SortFunc(all, strings.Compare)
	return all
}

func rulesName(rules []corev1alpha1.OverrideRule, cluster string) bool {
	return slices.ContainsFunc(rules, func(r corev1alpha1.OverrideRule) bool {
		return r.TargetClusters != nil && slices.Contains(r.TargetClusters.Clusters, cluster)
	})
}

func places(placements []corev1alpha1.DesiredPlacement, cluster string) bool {
	return slices.ContainsFunc(placements, func(p corev1alpha1.DesiredPlacement) bool { return p.Cluster == cluster })
}
