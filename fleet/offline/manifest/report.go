package manifest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// Propagation is a report of the controllers on an object of the hub. It has the facts that the controllers read back
// after a restart.
type Propagation struct {
	Place Place
	// Name of the report. The report has the namespace of the object. Without a namespace its kind is
	// ClusterPropagation, otherwise Propagation.
	Name string
	// Source is the object of the report.
	Source Identity
	// UID of the object. The report does not apply to an object of the same identity with another UID.
	UID types.UID
	// Clusters are the clusters that have, or may have, a copy that is not to be deleted. Sorted. Some of them may no
	// longer be members.
	Clusters []string
	// Waiting has the reasons why copies await approval of their deletion, by cluster.
	Waiting map[string]string
	// Replicas are the shares of replicas by cluster, for clusters that have one.
	Replicas map[string]int64
	// PlacementHash is the hash of the inputs of the placement decision; it may be empty.
	PlacementHash string
	// ChosenBy is the policy that chose the clusters by name or by label, without its generation. It is zero if no policy
	// chose them.
	ChosenBy tree.Policy
	// Asked is the question to users about a pending change of the placement; zero if no change is pending. Approved is
	// the token that approves the change for this object only.
	Asked    placement.Question
	Approved string
	// Follows are the leaders of the object, the objects that it travels with, in its namespace.
	Follows []refractv1alpha1.FollowedObject
	// Rendered are the override policies of the copies, including those deleted since, without generation.
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

// decodeReport decodes a report. Its content is not checked, because only Refract writes it.
func (o *object) decodeReport() {
	r := decodeTyped[refractv1alpha1.Propagation](o) // A ClusterPropagation has the same fields.
	if r == nil {
		return
	}
	gv, _ := schema.ParseGroupVersion(r.Spec.Source.APIVersion) // An invalid version gives an identity that no object has.
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
