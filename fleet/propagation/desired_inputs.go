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

// previous is the memory of earlier desired states.
type previous struct {
	// uid is that of the object. Another object of the name starts without this memory.
	uid types.UID
	// placed are the clusters that have, or may have, a copy.
	placed []placement.Target
	hash   string // Of the inputs of that placement.
	// chosenBy is the policy that chose the clusters by name or by label, without generation; nil if none did.
	chosenBy *refractv1alpha1.PolicyReference
	// rendered are the override policies that copies were rendered with, without generation.
	rendered []tree.Policy
	// follows are the objects that this object travelled with before (its former leaders).
	follows []Key
	// cause is why the object is gone; empty while it is not.
	cause cause
	// asked is the question that users were asked about a waiting change of the placement; zero if none waits.
	asked placement.Question
	// rollout is the last recorded rollout of the object; nil if there was none. Another object of the same name
	// continues it, because it describes the content of the clusters.
	rollout *refractv1alpha1.RolloutStatus
	// statuses and warned are the reported statuses and warnings from before a restart.
	statuses []refractv1alpha1.ClusterStatus
	warned   []string
}

// followed describes the leaders of an object: the objects that it travels with.
type followed struct {
	clusters []string // Sorted.
	by       []Key
	// failing are clusters that the object does not lose. Its leaders' references there are unknown
	// ([objectState.unsaid]), for example because a leader cannot be rendered, or is not placed while the cluster is
	// not ready; or the object is withheld from these clusters.
	failing map[string]bool
	// blocked is whether a leader has no known placement now; unknown are the leaders that have not been decided. While
	// there is one of either kind, the object loses no cluster.
	blocked bool
	unknown []Key
	// until is how long a gone leader still counts as present; zero for no such leader. unsure is whether no known
	// leader refers to the object, and one of the gone leaders was unknown to this process.
	until  time.Duration
	unsure bool
	// orphan is the strongest annotation orphan of the leaders themselves.
	orphan orphaning
}

// orphaning is placement.Keeping.Orphan. A greater value keeps more copies.
type orphaning string

// inputs are everything that a desired state depends on besides the object.
type inputs struct {
	hub         string // UID of the hub.
	clusters    []placement.Cluster
	propagation func(tree.Policy) *placement.Policy
	override    func(tree.Policy) *override.Policy
	followed    followed
	// resource returns the resource of a kind that the hub serves.
	resource func(schema.GroupKind) (schema.GroupResource, bool)
	// unlisted reports whether Refract may not list the objects of a type on the hub; nil if it may list all types.
	unlisted func(schema.GroupResource) bool
	// may reports whether an override policy is authorized to add a reference to the objects of a namespace.
	may func(policy tree.Policy, namespace string, ref reference.Reference) bool
	// governed describes the rollout policy of the object; nil if it has none.
	governed *governance
	// approved is the token that approves a change of the placement of the object alone.
	approved string
	// versions are the versions of the type that the hub serves, the preferred one first. older are the versions of
	// clusters that do not serve the preferred one. convert returns the object in another version.
	versions []string
	older    map[string][]string
	convert  func(version string) (*unstructured.Unstructured, error)
	// together is the sum of the clusters that the objects of the namespace would leave; nil if it needs no approval.
	together *placement.Loss
	// unguarded is whether no change of a placement waits for approval.
	unguarded bool
}
