package converter

import (
	"cmp"
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// roles are the tasks of the policies of one definition.
type roles struct {
	// chosen is the policy that is to convert objects: the oldest policy whose mode is not Shadow. If all policies are
	// shadows, it is the serving policy, because objects must be converted until the definition has only one version.
	// Nil if there is no such policy.
	chosen *refractv1alpha1.ConversionPolicy
	// serving is the policy whose status.served is in use. This is chosen or, until chosen has status.served, an
	// earlier policy. Nil if no policy has status.served.
	serving *refractv1alpha1.ConversionPolicy
	// late are the other policies whose mode is not Shadow. They are younger than chosen. comparisons are the shadows
	// except serving.
	late, comparisons []*refractv1alpha1.ConversionPolicy
}

// rolesOf returns the roles of the policies of one definition. Of two policies of the same age, the first one by name
// counts as older. The result points into the argument.
func rolesOf(policies []refractv1alpha1.ConversionPolicy) roles {
	all := make([]*refractv1alpha1.ConversionPolicy, len(policies))
	for i := range policies {
		all[i] = &policies[i]
	}
	slices.SortFunc(all, func(a, b *refractv1alpha1.ConversionPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var r roles
	var wanting []*refractv1alpha1.ConversionPolicy
	for _, p := range all {
		if p.Spec.Mode == refractv1alpha1.ConversionShadow {
			r.comparisons = append(r.comparisons, p)
		} else {
			wanting = append(wanting, p)
		}
	}
	served := func(p *refractv1alpha1.ConversionPolicy) bool { return p.Status.Served != nil }
	if i := slices.IndexFunc(append(slices.Clone(wanting), r.comparisons...), served); i >= 0 {
		r.serving = append(slices.Clone(wanting), r.comparisons...)[i]
	}
	r.chosen = r.serving
	if len(wanting) > 0 {
		r.chosen, r.late = wanting[0], wanting[1:]
		if r.chosen.Status.Served != nil {
			r.serving = r.chosen
		}
	}
	r.comparisons = slices.DeleteFunc(r.comparisons, func(p *refractv1alpha1.ConversionPolicy) bool { return p == r.serving })
	return r
}
