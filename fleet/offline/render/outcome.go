package render

import (
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/decide"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// Outcome is the result for one object.
type Outcome struct {
	Object *manifest.Object
	ID     manifest.Identity
	// Propagation is the policy that places the object, without generation. It is nil if the object names no policy or
	// the policy does not exist.
	Propagation *tree.Policy
	// Policies are the override policies of the variants, in their order of effect. Nil without variants.
	Policies []*override.Policy
	// Clusters are the clusters of the object, by name, including clusters that are not shown. The slice is shared with
	// other outcomes and must not be modified.
	Clusters []match.Cluster
	// Variants are the contents for the clusters. Each names its clusters by their indexes in Clusters. The slice is
	// empty if the object goes to no cluster.
	Variants []override.Variant
	// Held is the annotation that keeps the controllers from changing or removing copies; empty without one.
	Held string
	// Follows are the leaders: the objects that this object travels with. They are named by resource and name.
	Follows []refractv1alpha1.FollowedObject
	// Leaders are the outcomes of those leaders whose clusters the set determines, in the same order. They must not be
	// modified.
	Leaders []*Outcome
	// Native is the reason why the object is one that each cluster creates for itself, so that it is not propagated;
	// empty for other objects.
	Native string
	// Gone is the reason why the object does not ask for propagation; empty if it asks. The copies of such an object
	// are deleted, except for objects that each cluster creates for itself (see Native).
	Gone string
	// Waits is the change of the placement that awaits approval; nil without one. Approval is the argument of refract
	// approve for this change. Clusters already includes the change if the options approve it.
	Waits    *placement.Hold
	Approval string
	// Before are the clusters that had, or may have had, a copy. The slice is sorted and shared, and must not be
	// modified.
	Before []string

	targets  []placement.Target // Of Clusters.
	author   tree.Policy        // The author of the shares of replicas.
	policy   *placement.Policy  // The policy that decided the placement; nil without one.
	request  *placement.Request
	decision *placement.Decision

	leads      bool // Whether other objects travel with the object.
	companions []decide.Companion
	marks      map[tree.Policy]mark // Of all override policies.
	after      previous             // For the evaluation of a later state.
	errors     []Finding            // About the object as a whole.
	warnings   []Finding
	shown      map[string]bool // Nil if all clusters are shown.
	refused    bool            // Whether an API server rejects the object on the hub by its type.
	refusals   map[override.Warning]bool
}

// Find returns the outcome of an object; nil if the object was not evaluated.
func (e *Evaluation) Find(id manifest.Identity) *Outcome {
	i, ok := e.byID[id]
	if !ok {
		return nil
	}
	return &e.Outcomes[i]
}

// Shows reports whether the cluster with this index in Clusters is shown.
func (o *Outcome) Shows(cluster int) bool {
	return o.shown == nil || o.shown[o.Clusters[cluster].Name]
}

// Targets are the clusters with their shares of replicas by the policy, in the order of Clusters.
func (o *Outcome) Targets() []placement.Target { return o.targets }

// Apply returns the variant that the cluster with this index would get with other override policies.
func (o *Outcome) Apply(cluster int, policies ...*override.Policy) override.Variant {
	return variant.Render(o.Object.Content, o.Clusters[cluster:cluster+1], o.targets[cluster:cluster+1], o.author, policies...)[0]
}

// Revised compares the outcome with an earlier one. By cluster index, it reports whether the object or its override
// policies have changed the content, because only such changes go out by a rollout. Both sides are computed with the
// present shares of replicas, labels of clusters and placement. A variant that cannot be rendered counts as changed.
// Both outcomes must have variants.
func (o *Outcome) Revised(before *Outcome) []bool {
	revised := make([]bool, len(o.Clusters))
	if before.Object.Content == o.Object.Content && slices.Equal(before.Policies, o.Policies) {
		return revised
	}
	is := make([]*override.Variant, len(o.Clusters))
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			is[c] = &o.Variants[i]
		}
	}
	was := variant.Render(before.Object.Content, o.Clusters, o.targets, o.author, before.Policies...)
	for i := range was {
		differs := map[*override.Variant]bool{}
		for _, c := range was[i].Clusters {
			now := is[c]
			if _, known := differs[now]; !known {
				differs[now] = now == nil || now.Err != nil || was[i].Err != nil || !tree.Equal(was[i].Object.Object, now.Object.Object)
			}
			revised[c] = differs[now]
		}
	}
	return revised
}

// WhyNot returns the reason why the policy that placed the object did not choose a cluster, as [placement.Policy.Why];
// ok is false if no policy placed the object.
func (o *Outcome) WhyNot(c *placement.Cluster) (why string, ok bool) {
	if o.policy == nil {
		return "", false
	}
	return o.policy.Why(c, o.request, o.decision), true
}
