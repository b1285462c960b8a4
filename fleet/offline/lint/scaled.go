package lint

import (
	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// checkScaled finds workloads whose replicas are divided although an autoscaler scales them on a cluster with a share.
func checkScaled(outcomes []render.Outcome, placingBy map[tree.Policy]*placingPolicy, out *report) {
	scalers := render.ScalersIn(outcomes)
	for i := range outcomes {
		o := &outcomes[i]
		if o.Propagation == nil {
			continue
		}
		p := placingBy[*o.Propagation]
		if p == nil || !p.compiled.Divides || p.reported {
			continue
		}
		by := scalers.Of(o)
		var both []string
		for _, t := range o.Targets() {
			if t.Replicas != nil && by[t.Cluster] != "" {
				both = append(both, t.Cluster)
			}
		}
		if len(both) == 0 {
			continue
		}
		s := subjectOf(o.Object)
		out.add(p.finding(DividedAndScaled, "spec.schedulingMode", "divides the replicas of %s, which %s scales on each cluster", s.object, by[both[0]]).
			hint("use schedulingMode Duplicate and an override policy for the autoscaler's minReplicas and maxReplicas, or remove the autoscaler").
			on([]string{s.object.String()}, both))
	}
}

// checkLeftBehind finds autoscalers that stay on the hub although their workloads are placed on clusters.
func checkLeftBehind(objects []manifest.Object, out *report) {
	placed := map[manifest.Identity]*manifest.Object{}
	for i := range objects {
		if isPlaced(&objects[i]) {
			placed[objects[i].Identity()] = &objects[i]
		}
	}
	for i := range objects {
		o := &objects[i]
		target, ok := placement.Scales(o.Content)
		if !ok || isPlaced(o) {
			continue
		}
		workload := placed[manifest.Identity{GroupKind: target.GroupKind, Namespace: o.Content.GetNamespace(), Name: target.Name}]
		if workload == nil {
			continue
		}
		s, scaled := subjectOf(o), subjectOf(workload).object.String()
		out.add(s.finding(AutoscalerNotPlaced, "metadata.labels", "scales %s, which goes to clusters, and has no propagation policy itself", scaled).
			hint("give it the label %s or %s of the workload: the replicas are left to it on each cluster then",
				corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel).
			on([]string{s.object.String(), scaled}, nil))
	}
}

func isPlaced(o *manifest.Object) bool {
	labels := o.Content.GetLabels()
	return labels[corev1alpha1.PropagationPolicyLabel] != "" || labels[corev1alpha1.ClusterPropagationPolicyLabel] != ""
}
