package variant

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/reference"
)

// Brought is a reference that only an override policy adds to an object on some clusters.
type Brought struct {
	reference.Reference

	Policy int // Index in the list of policies.
}

// Allows reports whether the recorded check of an override policy permits a reference of an object in a namespace. The
// check must be for this generation of the policy. It must have found that the author or approver of the policy may
// read the referenced object.
func Allows(checked *corev1alpha1.CheckedReferences, generation int64, namespace string, ref reference.Reference) bool {
	return checked != nil && checked.ObservedGeneration == generation &&
		slices.ContainsFunc(checked.Items, func(c corev1alpha1.CheckedReference) bool {
			return c.Kind == ref.Kind && c.Name == ref.Name && (c.Namespace == "" || c.Namespace == namespace)
		})
}

// BroughtIn returns the references of a variant of obj, a result of [Render], that come from policies, ordered by
// policy and then by reference. cluster must be one of the variant's clusters. The references of a policy are found by
// a comparison of the object before and after the policy, so any kind of override counts. BroughtIn modifies no
// argument, and returns nothing for a variant with an error.
func BroughtIn(obj *unstructured.Unstructured, v *override.Variant, cluster match.Cluster, policies []*override.Policy) []Brought {
	if v.Err != nil || len(policies) == 0 {
		return nil
	}
	all := reference.Added(obj, v.Object)
	if len(all) == 0 {
		return nil
	}
	var out []Brought
	before := obj
	for i := range policies {
		after := v.Object
		if i+1 < len(policies) {
			stage := override.Apply(obj, cluster, policies[:i+1]...)
			if stage.Err != nil { // Unreachable for a variant without an error: all policies together would fail as well.
				continue
			}
			after = stage.Object
		}
		for _, ref := range reference.Added(before, after) {
			if _, there := slices.BinarySearchFunc(all, ref, reference.Compare); there {
				out = append(out, Brought{ref, i})
			}
		}
		before = after
	}
	return out
}
