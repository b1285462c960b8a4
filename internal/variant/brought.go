package variant

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/reference"
)

// Brought is what an override policy has an object refer to on some clusters that it
// would not refer to there without.
type Brought struct {
	reference.Reference

	Policy int // Index in the policies.
}

// Allows reports whether what is recorded of an override policy, which has this generation
// now, lets it have an object of a namespace refer to something: whether whoever wrote the
// policy, or approved it, was found to be allowed to read that.
func Allows(checked *corev1alpha1.CheckedReferences, generation int64, namespace string, ref reference.Reference) bool {
	return checked != nil && checked.ObservedGeneration == generation &&
		slices.ContainsFunc(checked.Items, func(c corev1alpha1.CheckedReference) bool {
			return c.Kind == ref.Kind && c.Name == ref.Name && (c.Namespace == "" || c.Namespace == namespace)
		})
}

// BroughtIn returns what a variant of obj, as [Render] made it, refers to because of
// policies, in their order and then by reference. The cluster is one that the variant
// is for. What a policy brings in is found by comparing the object before and after
// it, whatever it writes and where. It modifies nothing; if the variant has an error it
// refers to nothing.
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
			if stage.Err != nil { // As it is for all of them, then: there would be no variant.
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
