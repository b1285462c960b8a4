package render

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// policies are the policies of a set, by reference without generation.
type policies struct {
	overrides    map[tree.Policy]*override.Policy
	propagations map[tree.Policy]*placement.Policy
	all          []tree.Policy // In the order of the input, by kind.
	marks        map[tree.Policy]mark
}

func policiesOf(set *manifest.Set) *policies {
	p := &policies{overrides: map[tree.Policy]*override.Policy{}, propagations: map[tree.Policy]*placement.Policy{}, marks: map[tree.Policy]mark{}}
	add := func(compiled *override.Policy, checked *corev1alpha1.CheckedReferences, uid types.UID) {
		ref := p.add(compiled.Ref)
		p.overrides[ref] = compiled
		p.marks[ref] = mark{checked, compiled.Ref.Generation, set.Live && uid != ""}
	}
	for _, o := range set.OverridePolicies {
		add(o.Compiled, o.Policy.Status.References, o.Policy.UID)
	}
	for _, o := range set.ClusterOverridePolicies {
		add(o.Compiled, o.Policy.Status.References, o.Policy.UID)
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

// labelOf is the label that names a policy of each kind.
var labelOf = map[string]string{
	corev1alpha1.KindPropagationPolicy:        corev1alpha1.PropagationPolicyLabel,
	corev1alpha1.KindClusterPropagationPolicy: corev1alpha1.ClusterPropagationPolicyLabel,
	corev1alpha1.KindOverridePolicy:           corev1alpha1.OverridePolicyLabel,
	corev1alpha1.KindClusterOverridePolicy:    corev1alpha1.ClusterOverridePolicyLabel,
}

// hint suggests the policy that an object in this namespace may have meant with the name of a missing policy: one of
// the same name in another namespace or of another kind, or one of a similar name.
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
