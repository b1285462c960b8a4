package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is refract.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "refract.dev", Version: "v1alpha1"}

// Prefix is what the labels and annotations of this group begin with.
const Prefix = "refract.dev/"

// The kinds of this group, as they stand in a manifest.
const (
	KindPropagation        = "Propagation"
	KindClusterPropagation = "ClusterPropagation"
	KindConversionPolicy   = "ConversionPolicy"

	KindRolloutPolicy        = "RolloutPolicy"
	KindClusterRolloutPolicy = "ClusterRolloutPolicy"
)

// Annotations on the copies that members hold.
const (
	// SourceAnnotation names the hub, the object that a copy was made of, and the
	// copy: HUB/UID/RESOURCE.GROUP/NAMESPACE/NAME. Hub and object are named by their
	// UIDs; the hub's is that of its namespace kube-system.
	SourceAnnotation = Prefix + "source"
	// AppliedAnnotation is the hash of the content that the copy was applied with.
	AppliedAnnotation = Prefix + "applied"
	// NamespaceAnnotation is on a namespace that was created on a member because
	// a copy needed it; its value is the hub's UID.
	NamespaceAnnotation = Prefix + "created-by"
	// OrphanAnnotation is on a copy that stays when its source is deleted: "all", or
	// "adopted" for one that stays if it was adopted.
	OrphanAnnotation = Prefix + "orphan"
	// AdoptedAnnotation is "true" on a copy that was there before it became one.
	AdoptedAnnotation = Prefix + "adopted"
	// RemoveAfterAnnotation is on a namespace that was created for copies, has none any
	// more and was found empty; its value is the time from which on it may be deleted,
	// as RFC 3339 has it. It is removed if anything comes into the namespace before that.
	RemoveAfterAnnotation = Prefix + "remove-after"
)

// LeftToMembersAnnotation on an object of the hub names fields that each member decides on: a JSON array of
// JSON pointers, in which * stands for each element of a list or each key of a map. Refract sends these fields
// when it creates a copy, if the hub has them, and not afterwards.
const LeftToMembersAnnotation = Prefix + "left-to-members"

// AssignedAnnotation is on objects as Refract keeps and exports them: the fields that the hub's API server or its
// controllers assigned, according to metadata.managedFields, which is not kept: a JSON array of JSON pointers. On
// the hub the annotation has no effect.
const AssignedAnnotation = Prefix + "assigned"

// KeepAnnotation "true" on an object of the hub protects its copies: each is deleted without approval only
// if a user deletes that object on the hub. The copies have the annotation as well.
const KeepAnnotation = Prefix + "keep"

// UnconvertedAnnotation is on an object of which something could not be converted to the version that it is in: a
// JSON object of texts, which say what, by the version that it is from.
const UnconvertedAnnotation = Prefix + "unconverted"

// Annotations on the Secret with the credentials of a member. They are there, and not
// in the FederatedCluster, so that nobody has credentials sent anywhere who may not
// read them.
const (
	// EndpointAnnotation is the URL of the API server that the credentials are for:
	// they are sent to no other.
	EndpointAnnotation = Prefix + "endpoint"
	// InsecureAnnotation "true" allows that they are sent without a look at the
	// certificate of who answers there.
	InsecureAnnotation = Prefix + "insecure"
)

// JoinedLabel is "true" on the Secret with the credentials of a member that `refract join` has created, and
// JoinedAnnotation has the UID of the FederatedCluster that it was created for. No other Secret is deleted with a cluster.
const (
	JoinedLabel      = Prefix + "joined"
	JoinedAnnotation = Prefix + "joined-as"
)

// Annotations on a FederatedCluster that takes the place of another one of the same cluster.
const (
	// ReplacesAnnotation names the FederatedCluster whose copies and rows in Propagations become those of this one.
	ReplacesAnnotation = Prefix + "replaces"
	// ShardAnnotation is the name by which the cluster is assigned to a replica of the controllers; without it, that
	// is the name of the FederatedCluster. The old name and the new one have the same, so that one replica writes through both.
	ShardAnnotation = Prefix + "shard"
)

// RevisionLabel is "true" on ControllerRevisions that keep a part of a revision.
const RevisionLabel = Prefix + "revision"

// InventoryAnnotation on a FederatedCluster, and on the Secret with its credentials, names
// what it is kept for, as KIND/NAMESPACE/NAME: a ClusterProfile, or a Cluster of Cluster API.
const InventoryAnnotation = Prefix + "inventory"

// ApproveAnnotation on a FederatedCluster approves the deletion of copies that
// the guard holds back there: its value is status.deletionsHeld.token of the cluster, or othersToken,
// and stands for the copies that were held back when it was given.
const ApproveAnnotation = Prefix + "approve-deletions"

// ApprovePlacementAnnotation on a PropagationPolicy or ClusterPropagationPolicy approves a change of
// the placement of its objects that waits for that; on a Propagation it does so for that object
// alone. Its value is status.placementHeld.token of the policy, or status.held.token of the Propagation: a random
// value that is there while the change waits, and approves it once.
const ApprovePlacementAnnotation = Prefix + "approve-placement"

// ReleaseKeptAnnotation "true" on a FederatedCluster that leaves the fleet gives the copies of volumes, and all other
// copies that need approval because of their data, to the cluster: they stay, without the marks of copies.
const ReleaseKeptAnnotation = Prefix + "release-kept"

// ApproveReferencesAnnotation on an override policy has whoever sets it to another value
// asked whether he may read what the policy has objects refer to, as if he had written
// the policy. The value means nothing.
const ApproveReferencesAnnotation = Prefix + "approve-references"

// Finalizer keeps a FederatedCluster until every copy on it is deleted. Earlier versions put it on Propagations, too.
const Finalizer = Prefix + "propagation"

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Propagation{}, &PropagationList{},
		&ClusterPropagation{}, &ClusterPropagationList{},
		&ConversionPolicy{}, &ConversionPolicyList{},
		&RolloutPolicy{}, &RolloutPolicyList{},
		&ClusterRolloutPolicy{}, &ClusterRolloutPolicyList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
