package lint

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// policies are the override and propagation policies, in the order of the input.
type policies struct {
	overriding []*policy
	placing    []*placingPolicy
	byCompiled map[*override.Policy]*policy
	byAuthor   map[tree.Author]*item
	placingBy  map[tree.Policy]*placingPolicy // By ref.
	// named are the policies that objects name, and the policies that a misspelt label may mean.
	named map[tree.Policy]bool
}

// placingPolicy is a propagation policy.
type placingPolicy struct {
	subject

	ref      tree.Policy // Without generation.
	spec     *corev1alpha1.PropagationPolicySpec
	compiled *placement.Policy
	reported bool
}

func policiesOf(set *manifest.Set) *policies {
	all := &policies{
		byCompiled: map[*override.Policy]*policy{},
		byAuthor:   map[tree.Author]*item{},
		placingBy:  map[tree.Policy]*placingPolicy{},
		named:      map[tree.Policy]bool{},
	}
	for i := range set.ClusterOverridePolicies {
		p := &set.ClusterOverridePolicies[i]
		all.addOverriding(p.Compiled, p.At, &p.Policy.ObjectMeta, &p.Policy.Spec)
	}
	for i := range set.OverridePolicies {
		p := &set.OverridePolicies[i]
		all.addOverriding(p.Compiled, p.At, &p.Policy.ObjectMeta, &p.Policy.Spec)
	}
	for i := range set.ClusterPropagationPolicies {
		p := &set.ClusterPropagationPolicies[i]
		all.addPlacing(p.Compiled, p.At, &p.Policy.Spec)
	}
	for i := range set.PropagationPolicies {
		p := &set.PropagationPolicies[i]
		all.addPlacing(p.Compiled, p.At, &p.Policy.Spec)
	}
	return all
}

func (all *policies) addOverriding(
	compiled *override.Policy, at func(string) manifest.Place,
	meta *metav1.ObjectMeta, spec *corev1alpha1.OverridePolicySpec,
) {
	p := newPolicy(compiled, subject{policy: name(compiled.Ref), at: at}, meta, spec)
	all.overriding = append(all.overriding, p)
	all.byCompiled[compiled] = p
	for _, r := range p.rules {
		for _, it := range r.items {
			all.byAuthor[it.author] = it
		}
	}
}

func (all *policies) addPlacing(
	compiled *placement.Policy, at func(string) manifest.Place, spec *corev1alpha1.PropagationPolicySpec,
) {
	p := &placingPolicy{
		subject: subject{policy: name(compiled.Ref), at: at},
		ref:     withoutGeneration(compiled.Ref), spec: spec, compiled: compiled,
	}
	all.placing = append(all.placing, p)
	all.placingBy[p.ref] = p
}

func name(ref tree.Policy) *render.Policy {
	return &render.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

func withoutGeneration(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	return ref
}

// refs returns the references of all policies.
func (all *policies) refs() []tree.Policy {
	refs := make([]tree.Policy, 0, len(all.overriding)+len(all.placing))
	for _, p := range all.overriding {
		refs = append(refs, p.ref)
	}
	for _, p := range all.placing {
		refs = append(refs, p.ref)
	}
	return refs
}

// clustersNamed returns the clusters that policies name, and one without a name for the rules that apply to every
// cluster.
func (all *policies) clustersNamed() []string {
	names := []string{""}
	for _, p := range all.overriding {
		for _, r := range p.rules {
			if t := r.spec.TargetClusters; t != nil {
				names = append(names, t.Clusters...)
			}
		}
	}
	for _, p := range all.placing {
		for _, c := range p.spec.Placements {
			names = append(names, c.Cluster)
		}
	}
	return names
}

// itemsOf iterates over the items of the policies' rules, in order.
func itemsOf(overriding []*policy) func(yield func(*item) bool) {
	return func(yield func(*item) bool) {
		for _, p := range overriding {
			for _, r := range p.rules {
				for _, it := range r.items {
					if !yield(it) {
						return
					}
				}
			}
		}
	}
}
