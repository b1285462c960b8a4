package render

import (
	"fmt"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/variant"
	"refract.dev/tree"
)

// mark is what is known of what an override policy may have objects refer to.
type mark struct {
	checked    *corev1alpha1.CheckedReferences
	generation int64
	// live is whether an API server holds the policy: there is no other mark then.
	live bool
}

// tells reports whether it is known about what somebody was asked.
func (m *mark) tells() bool {
	return m.live || (m.checked != nil && m.checked.ObservedGeneration == m.generation)
}

// Unasked says of each override policy what it has objects refer to on the clusters shown
// and nobody is known to have been asked about. All of that is shown; the controllers let
// it travel only if whoever wrote or approved the policy may read it, which a hub knows.
func (e *Evaluation) Unasked() []Finding { return unasked(e.Outcomes) }

// Unasked is [Evaluation.Unasked] for one object.
func (o *Outcome) Unasked() []Finding { return unasked([]Outcome{*o}) }

func unasked(outcomes []Outcome) []Finding {
	var policies []tree.Policy
	named, tells := map[tree.Policy][]string{}, map[tree.Policy]bool{}
	for i := range outcomes {
		o := &outcomes[i]
		for j := range o.Variants {
			v := &o.Variants[j]
			if !slices.ContainsFunc(v.Clusters, o.Shows) {
				continue
			}
			for _, b := range variant.BroughtIn(o.Object.Content, v, o.Clusters[v.Clusters[0]], o.Policies) {
				ref := o.Policies[b.Policy].Ref
				ref.Generation = 0
				m := o.marks[ref]
				if variant.Allows(m.checked, m.generation, o.ID.Namespace, b.Reference) {
					continue
				}
				if named[ref] == nil {
					policies = append(policies, ref)
				}
				name := kindAndName(b.Kind, o.ID.Namespace, b.Name)
				if !slices.Contains(named[ref], name) {
					named[ref] = append(named[ref], name)
				}
				tells[ref] = m.tells()
			}
		}
	}
	var found []Finding
	for _, ref := range policies {
		format := "has objects refer to %s: shown as if somebody had allowed that, which is not known here; a hub lets it travel to where it is " +
			"not yet only if whoever wrote the policy may read it, or somebody who may has set annotation %s of the policy"
		if tells[ref] {
			format = "has objects refer to %s: shown as if somebody had allowed that, and nobody has; it does not travel to where it is not yet " +
				"until somebody who may read it sets annotation %s of the policy to a new value"
		}
		found = append(found, Finding{Policy: policyOf(ref), Message: fmt.Sprintf(format, Few(named[ref]), refractv1alpha1.ApproveReferencesAnnotation)})
	}
	return found
}
