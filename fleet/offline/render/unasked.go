package render

import (
	"fmt"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// mark is the recorded check of the references that an override policy adds to objects.
type mark struct {
	checked    *corev1alpha1.CheckedReferences
	generation int64
	// live reports whether the policy was read from a hub. Only then does a missing check mean that the references were
	// not authorized.
	live bool
}

// tells reports whether it is known which references were authorized.
func (m *mark) tells() bool {
	return m.live || (m.checked != nil && m.checked.ObservedGeneration == m.generation)
}

// Unasked returns a warning for each override policy that adds references on shown clusters without a recorded
// authorization. The evaluation shows all references. The controllers propagate their objects only if a user who wrote
// or approved the policy may read them, and only a hub has that information.
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
		format := "makes objects refer to %s: shown as if allowed, which is unknown here; a hub sends it to further clusters only if the author of " +
			"the policy may read it, or a user who may read it has set annotation %s of the policy"
		if tells[ref] {
			format = "makes objects refer to %s: shown as if allowed, but it is not; the hub sends it to no further clusters until a user who may " +
				"read it sets annotation %s of the policy to a new value"
		}
		found = append(found, Finding{Policy: policyOf(ref), Message: fmt.Sprintf(format, Few(named[ref]), refractv1alpha1.ApproveReferencesAnnotation)})
	}
	return found
}
