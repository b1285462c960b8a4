package propagation

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	variants "refract.dev/internal/variant"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/reference"
	"refract.dev/tree"
)

// errUnasked is wrapped by the error for an object that would give out on a cluster what
// nobody was asked about.
var errUnasked = errors.New("nobody who may read it has said so")

// approve says what is to be done about it.
const approve = "run the controllers with --webhook-url or --webhook-service, and have somebody who may read it set annotation " +
	refractv1alpha1.ApproveReferencesAnnotation + " of the policy to any new value"

// unasked returns what policies bring in and nobody was asked about; an error if to
// withhold it would not do: the object itself gives it out on a cluster, or it travels
// with the object anyway, and pods would see more of it.
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
			return nil, fmt.Errorf("%s has it give out %s %s on clusters, and %w: %s", anyGeneration(by), b.Kind, b.Name, errUnasked, approve)
		case slices.Contains(reference.Of(obj), b.Reference):
			return nil, fmt.Errorf("%s has it show more of %s %s on clusters than it does itself, and %w: %s",
				anyGeneration(by), b.Kind, b.Name, errUnasked, approve)
		case out == nil:
			out = map[reference.Reference]tree.Policy{}
		}
		out[b.Reference] = by
	}
	return out, nil
}
