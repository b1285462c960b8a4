package placement

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// Named returns the policy that an object names by its labels, without
// generation; ok is false when it names none, and so does not ask to be placed.
// The namespace is that of the object, empty for a cluster-scoped one, to which a
// PropagationPolicy means nothing: that is a warning, or an error if it is all
// that the object names. A label without a value is an error.
func Named(labels map[string]string, namespace string) (ref tree.Policy, ok bool, warnings []string, err error) {
	name, namespaced := labels[corev1alpha1.PropagationPolicyLabel]
	clusterName, clusterWide := labels[corev1alpha1.ClusterPropagationPolicyLabel]
	label := corev1alpha1.PropagationPolicyLabel
	switch {
	case namespaced && namespace != "":
		ref = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: namespace, Name: name}
	case clusterWide:
		if namespaced {
			warnings = append(warnings, fmt.Sprintf("label %s means nothing on a cluster-scoped object", label))
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

// Annotations by which an object keeps everything as it is.
const (
	NoScheduling = corev1alpha1.Prefix + "no-scheduling"
	DryRun       = corev1alpha1.Prefix + "dry-run"
)

// Held returns the annotation by which an object asks that nothing is written to
// clusters and nothing removed from them; empty if it does not.
func Held(annotations map[string]string) string {
	for _, key := range []string{DryRun, NoScheduling} {
		if annotations[key] == "true" {
			return key
		}
	}
	return ""
}
