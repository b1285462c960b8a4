package render

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/decide"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// previous is the known earlier state of an object.
type previous struct {
	known     bool                             // Whether the state is known.
	uid       types.UID                        // Empty if not known. Another object of the same name starts without earlier state.
	placed    *places                          // The clusters that have, or may have, a copy.
	hash      string                           // The hash of that placement decision.
	chosenBy  tree.Policy                      // The policy that chose the clusters by name or by label; zero without one.
	asked     placement.Question               // The question to users about a pending change; zero without one.
	approved  string                           // The token that approves the change for this object only.
	waiting   map[string]string                // The reasons why copies await approval of their deletion, by cluster.
	rendered  []tree.Policy                    // The override policies of the copies, without generation.
	following []refractv1alpha1.FollowedObject // The leaders of the object: the objects that it travelled with.
}

// decided converts the earlier state to the type that decisions take. live is whether the state is from a hub.
func (was *previous) decided(live bool) *decide.Previous {
	return &decide.Previous{
		UID: was.uid, Placed: was.placed.targets, Unknown: !was.known && !live, Hash: was.hash, ChosenBy: was.chosenBy, Rendered: was.rendered,
		Asked: was.asked, Follows: len(was.following) > 0,
	}
}

// remember returns a function for the earlier state of an object, which comes from the earlier evaluation or else from
// the Propagations of the set. Clusters that no longer exist are left out.
func (e *evaluator) remember(set *manifest.Set, before *Evaluation) func(*manifest.Object) previous {
	present := e.presence()
	if before != nil {
		return func(o *manifest.Object) previous {
			was := before.Find(o.Identity())
			if was == nil || another(was.after.uid, o.Content.GetUID()) {
				return previous{known: true, placed: nowhere}
			}
			is := was.after
			is.known, is.placed = true, present(is.placed)
			return is
		}
	}
	reports := make(map[manifest.Identity]*manifest.Propagation, len(set.Propagations))
	for i := range set.Propagations {
		reports[set.Propagations[i].Source] = &set.Propagations[i]
	}
	return func(o *manifest.Object) previous {
		r := reports[o.Identity()]
		if r == nil || another(r.UID, o.Content.GetUID()) {
			return previous{placed: nowhere}
		}
		return previous{
			known: true, uid: r.UID, placed: present(reported(r)), hash: r.PlacementHash, rendered: r.Rendered, following: r.Follows,
			chosenBy: r.ChosenBy, asked: r.Asked, approved: r.Approved, waiting: r.Waiting,
		}
	}
}

// reported returns the clusters of an object by its Propagation.
func reported(r *manifest.Propagation) *places {
	targets := make([]placement.Target, len(r.Clusters))
	for i, name := range r.Clusters {
		targets[i].Cluster = name
		if n, divided := r.Replicas[name]; divided {
			targets[i].Replicas = &n
		}
	}
	return placesOf(targets)
}

// another reports whether two UIDs are known to belong to different objects.
func another(a, b types.UID) bool { return a != "" && b != "" && a != b }

// presence returns a function that removes unknown clusters from places. For the same argument, it returns the same
// result.
func (e *evaluator) presence() func(*places) *places {
	known := make(map[string]bool, len(e.clusters))
	for i := range e.clusters {
		known[e.clusters[i].Name] = true
	}
	seen := map[*places]*places{nil: nowhere, nowhere: nowhere}
	return func(was *places) *places {
		there, ok := seen[was]
		if !ok {
			there = was
			if slices.ContainsFunc(was.names, func(name string) bool { return !known[name] }) {
				there = placesOf(slices.DeleteFunc(slices.Clone(was.targets), func(t placement.Target) bool { return !known[t.Cluster] }))
			}
			seen[was] = there
		}
		return there
	}
}
