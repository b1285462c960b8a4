package lint

import (
	"refract.dev/fleet/offline/manifest"
)

// foreignPolicies are the kinds of policies of other systems, by group, with the corresponding kinds of Refract.
var foreignPolicies = map[string]struct {
	system string
	kinds  map[string]string
}{
	"policy.karmada.io": {"Karmada", map[string]string{
		"PropagationPolicy": "PropagationPolicy", "ClusterPropagationPolicy": "ClusterPropagationPolicy",
		"OverridePolicy": "OverridePolicy", "ClusterOverridePolicy": "ClusterOverridePolicy",
	}},
	"placement.kubernetes-fleet.io": {"KubeFleet", map[string]string{
		"ResourcePlacement": "PropagationPolicy", "ClusterResourcePlacement": "ClusterPropagationPolicy",
		"ResourceOverride": "OverridePolicy", "ClusterResourceOverride": "ClusterOverridePolicy",
	}},
}

// checkForeign finds policies of other systems, which Refract treats as ordinary objects.
func checkForeign(objects []manifest.Object, out *report) {
	for i := range objects {
		kind := objects[i].Content.GroupVersionKind()
		foreign := foreignPolicies[kind.Group]
		ours := foreign.kinds[kind.Kind]
		if ours == "" {
			continue
		}
		s := subjectOf(&objects[i])
		out.add(s.finding(ForeignPolicy, "apiVersion", "is a policy of %s, which Refract does not read", foreign.system).
			hint("write a %s with apiVersion core.kubeadmiral.io/v1alpha1, and name it by a label of the objects", ours).
			on([]string{s.object.String()}, nil))
	}
}
