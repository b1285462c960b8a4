package propagation

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/reference"
	"refract.dev/tree"
)

// previous has the results of earlier decisions that the next decision about an object needs.
type previous struct {
	// uid is the UID of the object. Another object of the same name begins without these results.
	uid types.UID
	// placed are the clusters that have, or may have, a copy.
	placed []placement.Target
	hash   string // The hash of the inputs of that placement.
	// chosenBy is the policy that chose the clusters by name or by label, without its generation; nil if there is none.
	chosenBy *refractv1alpha1.PolicyReference
	// rendered are the override policies of the rendered copies, without their generations.
	rendered []tree.Policy
	// follows are the former leaders: the objects that this object followed before.
	follows []Key
	// cause is the reason for which the object is gone; empty if it is not gone.
	cause cause
	// asked is the request for approval of a change of the placement that waits; zero if no change waits.
	asked placement.Question
	// rollout is the last recorded rollout of the object; nil if there was none. Another object of the same name
	// continues it, because it describes the content of the clusters.
	rollout *refractv1alpha1.RolloutStatus
	// statuses and warned are the statuses and warnings that were reported before a restart.
	statuses []refractv1alpha1.ClusterStatus
	warned   []string
}

// followed describes the leaders of an object. A leader refers to the object, which therefore travels with it.
type followed struct {
	clusters []string // Sorted.
	by       []Key    // The leaders.
	// failing are clusters where the object keeps its copy for now, for one of two reasons. The references of its
	// leaders there are unknown ([objectState.unsaid]), for example because a leader cannot be rendered, or is not
	// placed while the cluster is not ready. Or the object is withheld from the cluster.
	failing map[string]bool
	// The object stays on all its clusters while blocked is true, or unknown is not empty. blocked is true if a leader
	// has no known placement now. unknown are the leaders without a decision yet.
	blocked bool
	unknown []Key
	// until is the time for which a leader that is gone still counts as present; zero if there is no such leader.
	// unsure is true if no known leader refers to the object, and this process never knew the state of one of the
	// leaders that are gone.
	until  time.Duration
	unsure bool
	// orphan is the strongest value of the annotation orphan on the leaders themselves.
	orphan orphaning
}

// orphaning is a value of placement.Keeping.Orphan. A greater value keeps more copies.
type orphaning string

// inputs are all facts besides the object that determine its desired state.
type inputs struct {
	hub         string // UID of the hub.
	clusters    []placement.Cluster
	propagation func(tree.Policy) *placement.Policy
	override    func(tree.Policy) *override.Policy
	followed    followed
	// resource returns the resource of a kind that the hub serves.
	resource func(schema.GroupKind) (schema.GroupResource, bool)
	// unlisted reports whether Refract lacks the right to list the objects of a type on the hub; nil if it may list all
	// types.
	unlisted func(schema.GroupResource) bool
	// may reports whether an override policy has the permission to add a reference to the objects of a namespace.
	may func(policy tree.Policy, namespace string, ref reference.Reference) bool
	// governed describes the rollout policy of the object; nil if it has none.
	governed *governance
	// approved is the token that approves a change of the placement for this object only.
	approved string
	// versions are the versions of the type that the hub serves, the preferred version first. older are the served
	// versions of each cluster that does not serve the preferred version. convert returns the object in another version.
	versions []string
	older    map[string][]string
	convert  func(version string) (*unstructured.Unstructured, error)
	// together describes the clusters that all objects of the namespace would lose together; nil if this needs no
	// approval.
	together *placement.Loss
	// unguarded is true if the flags turn off approvals of placement changes.
	unguarded bool
}
