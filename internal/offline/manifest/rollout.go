package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/release"
	"refract.dev/tree"
)

// rollouts are the kinds of policies that say how a change goes out, and whether they are
// namespaced.
var rollouts = map[string]bool{
	refractv1alpha1.KindRolloutPolicy:        true,
	refractv1alpha1.KindClusterRolloutPolicy: false,
}

// isRollout reports whether a kind is that of such policies.
func isRollout(gk schema.GroupKind) bool {
	_, ok := rollouts[gk.Kind]
	return ok && gk.Group == refractv1alpha1.GroupVersion.Group
}

// decodeRollout decodes a policy that says how a change goes out.
func (o *object) decodeRollout() {
	if rollouts[o.gvk.Kind] {
		policies(release.Compile, func(s *Set) *[]Policy[refractv1alpha1.RolloutPolicy, release.Policy] { return &s.RolloutPolicies })(o)
		return
	}
	policies(release.CompileCluster, func(s *Set) *[]Policy[refractv1alpha1.ClusterRolloutPolicy, release.Policy] {
		return &s.ClusterRolloutPolicies
	})(o)
}

// Rollouts are the rollout policies of a [Set], and the namespaces whose objects obey one.
type Rollouts struct {
	known  map[tree.Policy]*release.Known // By references without generation.
	floors map[string]map[string]string   // Labels, by the name of the Namespace.
}

// Rollouts returns them.
func (s *Set) Rollouts() *Rollouts {
	r := &Rollouts{known: map[tree.Policy]*release.Known{}, floors: map[string]map[string]string{}}
	for i := range s.RolloutPolicies {
		learn(r, refractv1alpha1.KindRolloutPolicy, &s.RolloutPolicies[i], release.Compile)
	}
	for i := range s.ClusterRolloutPolicies {
		learn(r, refractv1alpha1.KindClusterRolloutPolicy, &s.ClusterRolloutPolicies[i], release.CompileCluster)
	}
	for i := range s.Namespaces {
		r.floors[s.Namespaces[i].Content.GetName()] = s.Namespaces[i].Content.GetLabels()
	}
	return r
}

func learn[T any](r *Rollouts, kind string, p *Policy[T, release.Policy], compile func(*T) (*release.Policy, field.ErrorList)) {
	name := nameOfPolicy(p)
	is := &release.Known{Policy: p.Compiled}
	if is.Policy == nil {
		_, errs := compile(p.Policy)
		is.Err = errs.ToAggregate()
	}
	r.known[tree.Policy{Kind: kind, Namespace: name.Namespace, Name: name.Name}] = is
}

// Named returns the policies by which an object changes: see [release.Named].
func (r *Rollouts) Named(o *Object) (names release.Names, warnings []string, err error) {
	return release.Named(o.Content.GetLabels(), o.Content.GetNamespace(), r.floors[o.Content.GetNamespace()])
}

// Find returns what is known of a policy; nil if it is not there.
func (r *Rollouts) Find(ref tree.Policy) *release.Known { return r.known[ref] }
