package conversion

import (
	"cmp"
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// roles say which of the policies of one definition does what.
type roles struct {
	// chosen is the one that is to convert objects: the oldest of those that want to. If
	// none does, it is the one that does so now, since somebody must until the versions
	// are down to one. Nil if there is none.
	chosen *refractv1alpha1.ConversionPolicy
	// serving is the one whose status.served is in use: chosen, or until that can serve
	// another that did before. Nil if none has one.
	serving *refractv1alpha1.ConversionPolicy
	// late are those that want to and came later, comparisons those that are compared with serving, which is none of them.
	late, comparisons []*refractv1alpha1.ConversionPolicy
}

// rolesOf returns the roles of the policies of one definition. It refers to them.
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
