package placement

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// Named returns the policy that an object names by its labels, without
// generation; ok is false when it names none, and so does not ask to be placed.
// The namespace is that of the object, empty for a cluster-scoped one. A label
// that cannot name a policy is an error.
func Named(labels map[string]string, namespace string) (ref tree.Policy, ok bool, err error) {
	name, namespaced := labels[corev1alpha1.PropagationPolicyLabel]
	clusterName, clusterWide := labels[corev1alpha1.ClusterPropagationPolicyLabel]
	label := corev1alpha1.PropagationPolicyLabel
	switch {
	case namespaced && namespace != "":
		ref = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: namespace, Name: name}
	case clusterWide:
		label = corev1alpha1.ClusterPropagationPolicyLabel
		ref = tree.Policy{Kind: corev1alpha1.KindClusterPropagationPolicy, Name: clusterName}
	case namespaced:
		return ref, true, fmt.Errorf("label %s names a namespaced policy, and the object has no namespace; use %s",
			corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel)
	default:
		return ref, false, nil
	}
	if ref.Name == "" {
		return ref, true, fmt.Errorf("label %s is empty; it must name a policy", label)
	}
	return ref, true, nil
}

// Annotations of KubeAdmiral that are not acted on. The first would let an object
// step over its policy (kubewharf/kubeadmiral#373); the others are not known yet.
var (
	steppingOver = []string{"affinity", "clusterSelector", "maxClusters", "placements", "scheduling-mode", "sticky-cluster", "tolerations"}
	notKnown     = []string{"clusters-to-adopt", "conflict-resolution", "disable-following", "followers", "orphan", "retain-replicas"}
)

// Ignored returns a warning for each annotation of an object that asks for
// something that is not done.
func Ignored(annotations map[string]string) []string {
	var warnings []string
	for _, name := range steppingOver {
		if _, ok := annotations[corev1alpha1.Prefix+name]; ok {
			warnings = append(warnings, fmt.Sprintf("annotation %s%s is not honoured: placement is for the policy to say", corev1alpha1.Prefix, name))
		}
	}
	for _, name := range notKnown {
		if _, ok := annotations[corev1alpha1.Prefix+name]; ok {
			warnings = append(warnings, fmt.Sprintf("annotation %s%s is accepted and not acted on", corev1alpha1.Prefix, name))
		}
	}
	return warnings
}
