package render

import (
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/manifest"
	"refract.dev/internal/manifest/nearest"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// policies are the policies of a set, by reference without generation.
type policies struct {
	overrides    map[tree.Policy]*override.Policy
	propagations map[tree.Policy]*placement.Policy
	all          []tree.Policy // In the order of the input, kind by kind.
}

func policiesOf(set *manifest.Set) *policies {
	p := &policies{overrides: map[tree.Policy]*override.Policy{}, propagations: map[tree.Policy]*placement.Policy{}}
	for _, o := range set.OverridePolicies {
		p.overrides[p.add(o.Compiled.Ref)] = o.Compiled
	}
	for _, o := range set.ClusterOverridePolicies {
		p.overrides[p.add(o.Compiled.Ref)] = o.Compiled
	}
	for _, o := range set.PropagationPolicies {
		p.propagations[p.add(o.Compiled.Ref)] = o.Compiled
	}
	for _, o := range set.ClusterPropagationPolicies {
		p.propagations[p.add(o.Compiled.Ref)] = o.Compiled
	}
	return p
}

func (p *policies) add(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	p.all = append(p.all, ref)
	return ref
}

func policyOf(ref tree.Policy) *Policy {
	return &Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// labelOf is the label by which an object names a policy of each kind.
var labelOf = map[string]string{
	corev1alpha1.KindPropagationPolicy:        corev1alpha1.PropagationPolicyLabel,
	corev1alpha1.KindClusterPropagationPolicy: corev1alpha1.ClusterPropagationPolicyLabel,
	corev1alpha1.KindOverridePolicy:           corev1alpha1.OverridePolicyLabel,
	corev1alpha1.KindClusterOverridePolicy:    corev1alpha1.ClusterOverridePolicyLabel,
}

// hint looks for the policy that an object in this namespace may have meant when
// it named one that is not there: one of that name elsewhere or of another kind,
// or one of a similar name.
func (p *policies) hint(wanted tree.Policy, namespace string) string {
	guesses := []func(tree.Policy) (hint string, ok bool){
		func(is tree.Policy) (string, bool) {
			return fmt.Sprintf("%s %s exists in namespace %s", is.Kind, is.Name, is.Namespace), is.Kind == wanted.Kind
		},
		func(is tree.Policy) (string, bool) {
			return fmt.Sprintf("%s exists; label %s names it", is, labelOf[is.Kind]),
				reachable(is, namespace) && isOverride(is) == isOverride(wanted)
		},
		func(is tree.Policy) (string, bool) {
			return fmt.Sprintf("%s exists; label %s names it", is, labelOf[is.Kind]), reachable(is, namespace)
		},
		func(is tree.Policy) (string, bool) { return fmt.Sprintf("%s exists", is), true },
	}
	for _, guess := range guesses {
		for _, is := range p.all {
			if hint, ok := guess(is); ok && is.Name == wanted.Name {
				return hint
			}
		}
	}
	var names []string
	for _, is := range p.all {
		if is.Kind == wanted.Kind && is.Namespace == wanted.Namespace {
			names = append(names, is.Name)
		}
	}
	if near := nearest.To(wanted.Name, names); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return ""
}

// reachable reports whether an object in this namespace can name the policy.
func reachable(p tree.Policy, namespace string) bool {
	return p.Namespace == "" || p.Namespace == namespace
}

func isOverride(p tree.Policy) bool {
	return strings.HasSuffix(p.Kind, corev1alpha1.KindOverridePolicy)
}

// propagationRef names the policy that places the object, if it names one.
func propagationRef(o *manifest.Object, f *findings) (ref tree.Policy, ok bool, err error) {
	labels := o.Content.GetLabels()
	name, namespaced := labels[corev1alpha1.PropagationPolicyLabel]
	clusterName, clusterWide := labels[corev1alpha1.ClusterPropagationPolicyLabel]
	switch {
	case namespaced && o.Namespaced:
		ref = tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: o.Content.GetNamespace(), Name: name}
		return ref, true, notEmpty(name, corev1alpha1.PropagationPolicyLabel)
	case clusterWide:
		if namespaced {
			f.warn(nil, noMeaning(corev1alpha1.PropagationPolicyLabel))
		}
		ref = tree.Policy{Kind: corev1alpha1.KindClusterPropagationPolicy, Name: clusterName}
		return ref, true, notEmpty(clusterName, corev1alpha1.ClusterPropagationPolicyLabel)
	case namespaced:
		return ref, false, fmt.Errorf("label %s names a namespaced policy, and the object has no namespace; use %s",
			corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel)
	default:
		return ref, false, nil
	}
}

// overrideRefs names the override policies of the object in their order of
// effect.
func overrideRefs(o *manifest.Object, f *findings) ([]tree.Policy, error) {
	var refs []tree.Policy
	labels := o.Content.GetLabels()
	if name, ok := labels[corev1alpha1.ClusterOverridePolicyLabel]; ok {
		if err := notEmpty(name, corev1alpha1.ClusterOverridePolicyLabel); err != nil {
			return nil, err
		}
		refs = append(refs, tree.Policy{Kind: corev1alpha1.KindClusterOverridePolicy, Name: name})
	}
	name, ok := labels[corev1alpha1.OverridePolicyLabel]
	switch {
	case !ok:
		return refs, nil
	case !o.Namespaced:
		f.warn(nil, noMeaning(corev1alpha1.OverridePolicyLabel))
		return refs, nil
	}
	refs = append(refs, tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: o.Content.GetNamespace(), Name: name})
	return refs, notEmpty(name, corev1alpha1.OverridePolicyLabel)
}

func noMeaning(label string) string {
	return fmt.Sprintf("label %s means nothing on a cluster-scoped object", label)
}

func notEmpty(name, label string) error {
	if name == "" {
		return fmt.Errorf("label %s is empty; it must name a policy", label)
	}
	return nil
}
