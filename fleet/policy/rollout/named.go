package rollout

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// Names are the rollout policies of an object, without generation; nil for a missing policy.
type Names struct {
	// Floor is the policy that the object's Namespace names, and Own is the policy that the object itself names.
	Floor, Own *tree.Policy
}

// Named returns the rollout policies of an object. Labels and namespace are those of the object; the namespace is empty
// for a cluster-scoped object. Floor has the labels of the object's Namespace. On a cluster-scoped object, the label of
// a RolloutPolicy has no effect and causes a warning. A label without a value is an error.
func Named(labels map[string]string, namespace string, floor map[string]string) (names Names, warnings []string, err error) {
	clusterWide := func(labels map[string]string, of string) (*tree.Policy, error) {
		name, ok := labels[refractv1alpha1.ClusterRolloutPolicyLabel]
		switch {
		case !ok:
			return nil, nil //nolint:nilnil // No policy is named.
		case name == "":
			return nil, fmt.Errorf("label %s%s is empty; it must name a policy", refractv1alpha1.ClusterRolloutPolicyLabel, of)
		}
		return &tree.Policy{Kind: refractv1alpha1.KindClusterRolloutPolicy, Name: name}, nil
	}
	if namespace != "" {
		if names.Floor, err = clusterWide(floor, " of namespace "+namespace); err != nil {
			return Names{}, nil, err
		}
	}
	name, ok := labels[refractv1alpha1.RolloutPolicyLabel]
	switch {
	case ok && namespace == "":
		warnings = append(warnings, fmt.Sprintf("label %s has no effect on a cluster-scoped object", refractv1alpha1.RolloutPolicyLabel))
	case ok && name == "":
		return Names{}, nil, fmt.Errorf("label %s is empty; it must name a policy", refractv1alpha1.RolloutPolicyLabel)
	case ok:
		names.Own = &tree.Policy{Kind: refractv1alpha1.KindRolloutPolicy, Namespace: namespace, Name: name}
		return names, warnings, nil
	}
	if names.Own, err = clusterWide(labels, ""); err != nil {
		return Names{}, nil, err
	}
	if names.Own != nil && names.Floor != nil && *names.Own == *names.Floor {
		names.Own = nil
	}
	return names, warnings, nil
}

// All returns the named policies, the floor first.
func (n Names) All() []tree.Policy {
	var all []tree.Policy
	for _, ref := range []*tree.Policy{n.Floor, n.Own} {
		if ref != nil {
			all = append(all, *ref)
		}
	}
	return all
}

// Known is an existing policy: the compiled policy, or the reason why it is invalid.
type Known struct {
	Policy *Policy
	Err    error
}

// Obeyed returns the effective policy of an object that names these policies. The function find looks up a policy, and
// returns nil if it does not exist. Without an effective policy no change is released, and hold is the reason. Warnings
// are about names without effect.
func Obeyed(names Names, find func(tree.Policy) *Known) (policy *Policy, hold string, warnings []string) {
	one := func(ref *tree.Policy) (*Policy, string) {
		switch is := find(*ref); {
		case is == nil:
			return nil, fmt.Sprintf("%s does not exist; nothing is released until it does", ref)
		case is.Err != nil:
			return nil, fmt.Sprintf("%s is not valid; nothing is released until it is: %v", ref, is.Err)
		default:
			return is.Policy, ""
		}
	}
	switch {
	case names.Floor == nil:
		policy, hold = one(names.Own)
		return policy, hold, nil
	case names.Own == nil:
		policy, hold = one(names.Floor)
		return policy, hold, nil
	}
	floor, hold := one(names.Floor)
	if hold != "" {
		return nil, hold, nil
	}
	if !floor.AllowNarrower {
		return floor, "", []string{fmt.Sprintf("%s is ignored: %s, which the namespace names, does not allow others", names.Own, names.Floor)}
	}
	own, hold := one(names.Own)
	if hold != "" {
		return nil, hold, nil
	}
	return own.Inside(floor), "", nil
}
