package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/tree"
)

// rollouts are the kinds of rollout policies, and whether they are namespaced.
var rollouts = map[string]bool{
	refractv1alpha1.KindRolloutPolicy:        true,
	refractv1alpha1.KindClusterRolloutPolicy: false,
}

// isRollout reports whether a kind is that of rollout policies.
func isRollout(gk schema.GroupKind) bool {
	_, ok := rollouts[gk.Kind]
	return ok && gk.Group == refractv1alpha1.GroupVersion.Group
}

// decodeRollout decodes a rollout policy.
func (o *object) decodeRollout() {
	if rollouts[o.gvk.Kind] {
		policies(rollout.Compile, func(s *Set) *[]Policy[refractv1alpha1.RolloutPolicy, rollout.Policy] { return &s.RolloutPolicies })(o)
		return
	}
	policies(rollout.CompileCluster, func(s *Set) *[]Policy[refractv1alpha1.ClusterRolloutPolicy, rollout.Policy] {
		return &s.ClusterRolloutPolicies
	})(o)
}

// Rollouts are the rollout policies of a [Set], and the Namespaces that may name a policy for their objects.
type Rollouts struct {
	known  map[tree.Policy]*rollout.Known // By references without generation.
	floors map[string]map[string]string   // The labels of Namespaces, by name.
}

// Rollouts returns the rollout policies of the Set.
func (s *Set) Rollouts() *Rollouts {
	r := &Rollouts{known: map[tree.Policy]*rollout.Known{}, floors: map[string]map[string]string{}}
	for i := range s.RolloutPolicies {
		learn(r, refractv1alpha1.KindRolloutPolicy, &s.RolloutPolicies[i], rollout.Compile)
	}
	for i := range s.ClusterRolloutPolicies {
		learn(r, refractv1alpha1.KindClusterRolloutPolicy, &s.ClusterRolloutPolicies[i], rollout.CompileCluster)
	}
	for i := range s.Namespaces {
		r.floors[s.Namespaces[i].Content.GetName()] = s.Namespaces[i].Content.GetLabels()
	}
	return r
}

func learn[T any](r *Rollouts, kind string, p *Policy[T, rollout.Policy], compile func(*T) (*rollout.Policy, field.ErrorList)) {
	name := nameOfPolicy(p)
	is := &rollout.Known{Policy: p.Compiled}
	if is.Policy == nil {
		_, errs := compile(p.Policy)
		is.Err = errs.ToAggregate()
	}
	r.known[tree.Policy{Kind: kind, Namespace: name.Namespace, Name: name.Name}] = is
}

// Named returns the rollout policies of an object: see [rollout.Named].
func (r *Rollouts) Named(o *Object) (names rollout.Names, warnings []string, err error) {
	return rollout.Named(o.Content.GetLabels(), o.Content.GetNamespace(), r.floors[o.Content.GetNamespace()])
}

// Find returns the policy, or the reason why it is invalid; nil if it does not exist.
func (r *Rollouts) Find(ref tree.Policy) *rollout.Known { return r.known[ref] }
