package checkup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/installation"
)

// propagated searches for types that the hub's ServiceAccount may not list although objects of these types have a
// propagation label.
func (c *checker) propagated(ctx context.Context) {
	if !slices.Contains(c.found, installation.Propagation) {
		return
	}
	const asRights = "check as a user who may create SubjectAccessReviews"
	all, err := c.hubMay(ctx, &authorizationv1.ResourceAttributes{Verb: "list", Group: "*", Resource: "*"})
	if err != nil {
		c.wrongf("propagated", asRights, "the rights to propagate types cannot be checked: %v", err)
		return
	}
	if all {
		c.rightf("propagated", "objects of every type; so the account of Refract may list every Secret of the cluster")
		return
	}
	groups, lists, err := discovery.ServerGroupsAndResources(c.disco)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		c.wrongf("propagated", "", "the types of the cluster cannot be discovered: %v", err)
		return
	}
	var types, inVain []string
	for _, r := range member.ServedTypes(groups, lists) {
		if !member.Propagates(r.GroupVersion().WithKind(r.Kind).GroupKind(), r.Verbs) {
			continue
		}
		may, err := c.hubMay(ctx, &authorizationv1.ResourceAttributes{Verb: "list", Group: r.Group, Resource: r.Resource})
		if err != nil {
			c.wrongf("propagated", asRights, "the rights to propagate types cannot be checked: %v", err)
			return
		}
		if may {
			types = append(types, r.GroupResource().String())
			continue
		}
		found, err := c.labelled(ctx, r)
		if err != nil {
			c.wrongf("propagated", "check as a user who may list the type", "objects with a propagation label cannot be listed: %v", err)
			return
		}
		inVain = append(inVain, found...)
	}
	if len(inVain) > 0 {
		c.wrongf("propagated", "refract install --propagate, or propagation.types of the chart, permits their types; or remove the labels",
			"objects carry a propagation label and are not propagated, as Refract may not list their types: %s", some(inVain))
		return
	}
	c.rightf("propagated", "objects of %s", strings.Join(types, ", "))
}

// hubMay reports whether the hub's ServiceAccount has a permission.
func (c *checker) hubMay(ctx context.Context, right *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: fmt.Sprintf("system:serviceaccount:%s:%s", c.Namespace, installation.Propagation.Deployment), Groups: groupsOf(c.Namespace),
		ResourceAttributes: right,
	}}
	err := c.client.Create(ctx, review)
	return review.Status.Allowed, err
}

// labelled returns some objects of a type that have a propagation label.
func (c *checker) labelled(ctx context.Context, r *member.ServedType) (found []string, err error) {
	for _, label := range []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind + "List"))
		err := c.client.List(ctx, list, client.HasLabels{label}, client.Limit(10))
		if apierrors.IsNotFound(err) {
			continue // The type was deleted in the meantime.
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", r.GroupResource(), err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			found = append(found, r.GroupResource().String()+" "+strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
		}
	}
	return found, nil
}
