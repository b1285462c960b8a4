package manifest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/placement"
	"refract.dev/tree"
)

// Propagation is a report of the controllers on an object of the hub: what they
// themselves know of it after a restart.
type Propagation struct {
	Place Place
	// Name of the report, whose namespace is that of the object. Its kind is
	// ClusterPropagation if that is empty, otherwise Propagation.
	Name string
	// Source is the object that is reported on.
	Source Identity
	// UID of the object. The report says nothing about one of the same identity
	// with another UID.
	UID types.UID
	// Clusters are those that hold a copy or may hold one, and not one that is to go,
	// sorted. Some of them may be members no more.
	Clusters []string
	// Waiting says of clusters, by name, why the copy there waits for approval to be deleted.
	Waiting map[string]string
	// Replicas are the shares of the clusters, by name; of those that have one.
	Replicas map[string]int64
	// PlacementHash is that of what the placement was decided on; it may be empty.
	PlacementHash string
	// ChosenBy is the policy that chose the clusters by name or by label, without generation; zero if none did.
	ChosenBy tree.Policy
	// Asked is what users were asked about a change of the placement that waits; zero if none does. Approved
	// is the token by which it is approved for the object alone.
	Asked    placement.Question
	Approved string
	// Follows are the objects of the namespace that the object travels with.
	Follows []refractv1alpha1.FollowedObject
	// Rendered are the override policies that the copies were rendered with, those
	// deleted since included, without generation.
	Rendered []tree.Policy
}

// reports are the kinds of reports, and whether they are namespaced.
var reports = map[string]bool{
	refractv1alpha1.KindPropagation:        true,
	refractv1alpha1.KindClusterPropagation: false,
}

// isReport reports whether a kind is that of reports.
func isReport(gk schema.GroupKind) bool {
	_, ok := reports[gk.Kind]
	return ok && gk.Group == refractv1alpha1.GroupVersion.Group
}

// decodeReport decodes a report. What is in it nobody but Refract writes, so it is
// not checked.
func (o *object) decodeReport() {
	r := decodeTyped[refractv1alpha1.Propagation](o) // A ClusterPropagation has the same fields.
	if r == nil {
		return
	}
	gv, _ := schema.ParseGroupVersion(r.Spec.Source.APIVersion) // A bad one leads to an identity that no object has.
	p := Propagation{
		Place:  o.Place,
		Name:   r.Name,
		Source: Identity{GroupKind: gv.WithKind(r.Spec.Source.Kind).GroupKind(), Namespace: r.Namespace, Name: r.Spec.Source.Name},
		UID:    r.Spec.Source.UID,

		PlacementHash: r.Status.PlacementHash, Follows: r.Status.Follows,
		Asked: placement.QuestionOf(r.Status.Held), Approved: r.Annotations[refractv1alpha1.ApprovePlacementAnnotation],
	}
	if by := r.Status.ChosenBy; by != nil {
		p.ChosenBy = tree.Policy{Kind: by.Kind, Namespace: by.Namespace, Name: by.Name}
	}
	clusters := map[string]bool{}
	r.Status.Expand()
	for i := range r.Status.Clusters {
		c := &r.Status.Clusters[i]
		if c.State == refractv1alpha1.StateDeleting && c.Reason == refractv1alpha1.ReasonAwaitingApproval {
			if p.Waiting == nil {
				p.Waiting = map[string]string{}
			}
			p.Waiting[c.Name] = c.Message
		}
		if c.State != refractv1alpha1.StateDeleting {
			clusters[c.Name] = true
			if c.Replicas != nil {
				if p.Replicas == nil {
					p.Replicas = map[string]int64{}
				}
				p.Replicas[c.Name] = *c.Replicas
			}
		}
	}
	p.Clusters = slices.Sorted(maps.Keys(clusters))
	for _, refs := range [][]refractv1alpha1.PolicyReference{r.Status.OverridePolicies, r.Status.DeletedPolicies} {
		for _, ref := range refs {
			p.Rendered = append(p.Rendered, tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	o.add = func(s *Set) { s.Propagations = append(s.Propagations, p) }
}
