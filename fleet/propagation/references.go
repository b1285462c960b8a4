package propagation

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/reference"
	variants "refract.dev/fleet/variant"
	"refract.dev/tree"
)

// errUnasked is wrapped by the error for an object that would give access to a referenced object without permission.
var errUnasked = errors.New("no user with read access has approved it")

// approve is the remedy in these errors.
const approve = "run the controllers with --webhook-url or --webhook-service, and let a user with read access set annotation " +
	refractv1alpha1.ApproveReferencesAnnotation + " of the policy to any new value"

// unasked returns the references that override policies add without permission, with their policies. It returns an
// error if the object must not be written, for one of two reasons. The object itself gives access to the referenced
// object on a cluster. Or the object has the reference anyway, so that the Secret or ConfigMap travels with it, and
// pods would see more of it.
func unasked(
	obj *unstructured.Unstructured, v *override.Variant, cluster match.Cluster, policies []*override.Policy, s *inputs,
) (map[reference.Reference]tree.Policy, error) {
	var out map[reference.Reference]tree.Policy
	for _, b := range variants.BroughtIn(obj, v, cluster, policies) {
		by := policies[b.Policy].Ref
		switch {
		case s.may(by, obj.GetNamespace(), b.Reference):
			continue
		case reference.GivesOut(obj):
			return nil, fmt.Errorf("%s makes it hand out %s %s on clusters, and %w: %s", anyGeneration(by), b.Kind, b.Name, errUnasked, approve)
		case slices.Contains(reference.Of(obj), b.Reference):
			return nil, fmt.Errorf("%s makes it show more of %s %s on clusters than it does itself, and %w: %s",
				anyGeneration(by), b.Kind, b.Name, errUnasked, approve)
		case out == nil:
			out = map[reference.Reference]tree.Policy{}
		}
		out[b.Reference] = by
	}
	return out, nil
}
