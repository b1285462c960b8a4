package override

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// Named returns the policies that the labels of an object name, in their order of effect and without generation. The
// namespace is that of the object, and empty for a cluster-scoped object. On a cluster-scoped object, the label of an
// OverridePolicy has no effect and causes a warning. A label with an empty value is an error.
func Named(labels map[string]string, namespace string) (refs []tree.Policy, warnings []string, err error) {
	if name, ok := labels[corev1alpha1.ClusterOverridePolicyLabel]; ok {
		if name == "" {
			return nil, nil, fmt.Errorf("label %s is empty; it must name a policy", corev1alpha1.ClusterOverridePolicyLabel)
		}
		refs = append(refs, tree.Policy{Kind: corev1alpha1.KindClusterOverridePolicy, Name: name})
	}
	name, ok := labels[corev1alpha1.OverridePolicyLabel]
	switch {
	case !ok:
		return refs, nil, nil
	case namespace == "":
		return refs, []string{fmt.Sprintf("label %s has no effect on a cluster-scoped object", corev1alpha1.OverridePolicyLabel)}, nil
	case name == "":
		return nil, nil, fmt.Errorf("label %s is empty; it must name a policy", corev1alpha1.OverridePolicyLabel)
	}
	return append(refs, tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: namespace, Name: name}), nil, nil
}
