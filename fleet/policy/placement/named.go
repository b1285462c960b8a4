package placement

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// Named returns the policy that the labels of an object name, without generation. If they name none, ok is false, and
// the object is not propagated. The namespace is that of the object, and empty for a cluster-scoped object. A
// cluster-scoped object cannot use a PropagationPolicy: its label causes a warning, or an error if the object names no
// other policy. A label without a value is an error.
func Named(labels map[string]string, namespace string) (ref tree.Policy, ok bool, warnings []string, err error) {
	name, namespaced := labels[corev1alpha1.PropagationPolicyLabel]
	clusterName, clusterWide := labels[corev1alpha1.ClusterPropagationPolicyLabel]
	label := corev1alpha1.PropagationPolicyLabel
	switch {
	case namespaced && namespace != "":
		ref = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: namespace, Name: name}
	case clusterWide:
		if namespaced {
			warnings = append(warnings, fmt.Sprintf("label %s has no effect on a cluster-scoped object", label))
		}
		label = corev1alpha1.ClusterPropagationPolicyLabel
		ref = tree.Policy{Kind: corev1alpha1.KindClusterPropagationPolicy, Name: clusterName}
	case namespaced:
		return ref, true, nil, fmt.Errorf("label %s names a namespaced policy, and the object has no namespace; use %s",
			corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel)
	default:
		return ref, false, nil, nil
	}
	if ref.Name == "" {
		return ref, true, nil, fmt.Errorf("label %s is empty; it must name a policy", label)
	}
	return ref, true, warnings, nil
}

// steppingOver are annotations of KubeAdmiral that Refract ignores, because they would let an object override its
// policy (kubewharf/kubeadmiral#373).
var steppingOver = []string{"affinity", "clusterSelector", "maxClusters", "placements", "scheduling-mode", "sticky-cluster", "tolerations"}

// Ignored returns a warning for each annotation of an object that requests an unsupported behavior.
func Ignored(annotations map[string]string) []string {
	var warnings []string
	for _, name := range steppingOver {
		if _, ok := annotations[corev1alpha1.Prefix+name]; ok {
			warnings = append(warnings, fmt.Sprintf("annotation %s%s is ignored: the policy decides the placement", corev1alpha1.Prefix, name))
		}
	}
	return warnings
}
