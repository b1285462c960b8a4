package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is refract.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "refract.dev", Version: "v1alpha1"}

// Prefix is the prefix of the labels and annotations of this group.
const Prefix = "refract.dev/"

// Kinds of this group, as in the kind field of a manifest.
const (
	KindPropagation        = "Propagation"
	KindClusterPropagation = "ClusterPropagation"
	KindConversionPolicy   = "ConversionPolicy"

	KindRolloutPolicy        = "RolloutPolicy"
	KindClusterRolloutPolicy = "ClusterRolloutPolicy"
)

// Annotations on copies and namespaces of members.
const (
	// SourceAnnotation identifies the hub, the object of the hub, and the copy: HUB/UID/RESOURCE.GROUP/NAMESPACE/NAME.
	// HUB is the UID of the hub's namespace kube-system, UID that of the object.
	SourceAnnotation = Prefix + "source"
	// AppliedAnnotation is the hash of the content of the last write of the copy.
	AppliedAnnotation = Prefix + "applied"
	// NamespaceAnnotation is on a namespace that Refract created on a member for a copy. Its value is the UID of the hub.
	NamespaceAnnotation = Prefix + "created-by"
	// OrphanAnnotation is on a copy that stays when its object is deleted: "all", or "adopted" if it stays only if it
	// was adopted.
	OrphanAnnotation = Prefix + "orphan"
	// AdoptedAnnotation is "true" on a copy that existed before Refract adopted it.
	AdoptedAnnotation = Prefix + "adopted"
	// RemoveAfterAnnotation is on a namespace that Refract created for copies and has found empty. Its value is the
	// time (RFC 3339) after which Refract may delete the namespace. Refract removes the annotation if the namespace
	// gets an object before that time.
	RemoveAfterAnnotation = Prefix + "remove-after"
)

// LeftToMembersAnnotation on an object of the hub names fields that each member decides: a JSON array of JSON pointers;
// a segment * stands for each element of a list or each key of a map. Refract sends these fields, if the hub's object
// has them, only when it creates a copy.
const LeftToMembersAnnotation = Prefix + "left-to-members"

// AssignedAnnotation is on objects that Refract stores and exports. It lists the fields that the hub's API server or
// its controllers assigned, as a JSON array of JSON pointers. They are computed from metadata.managedFields, which such
// objects lack. The annotation has no effect on the hub.
const AssignedAnnotation = Prefix + "assigned"

// KeepAnnotation "true" on an object of the hub protects its copies: Refract deletes them without an approval only if a
// user deletes the object on the hub. The copies have the annotation as well.
const KeepAnnotation = Prefix + "keep"

// UnconvertedAnnotation is on an object with a part that could not be converted to the version of the object. Its value
// is a JSON object: the keys are the versions that have the part, the values are texts that name the part.
const UnconvertedAnnotation = Prefix + "unconverted"

// Annotations on the Secret with the credentials of a member. They are on the Secret, not on the FederatedCluster. So a
// user who cannot read the credentials cannot let Refract send them to another server.
const (
	// EndpointAnnotation is the URL of the API server of the credentials. Refract sends them to no other server.
	EndpointAnnotation = Prefix + "endpoint"
	// InsecureAnnotation "true" allows Refract to send the credentials without a verification of the server's certificate.
	InsecureAnnotation = Prefix + "insecure"
)

// JoinedLabel is "true" on a Secret with the credentials of a member that `refract join` created. JoinedAnnotation has
// the UID of the FederatedCluster of this Secret. Refract deletes no other Secret together with a cluster.
const (
	JoinedLabel      = Prefix + "joined"
	JoinedAnnotation = Prefix + "joined-as"
)

// ReplacesAnnotation on a FederatedCluster names the FederatedCluster that it replaces, for the same cluster. The copies
// and the rows in Propagations of the replaced one pass to this one.
const ReplacesAnnotation = Prefix + "replaces"

// RevisionLabel is "true" on ControllerRevisions that store a part of a revision.
const RevisionLabel = Prefix + "revision"

// InventoryAnnotation on a FederatedCluster, and on the Secret with its credentials, names the object of the inventory
// that they were created for, as KIND/NAMESPACE/NAME: a ClusterProfile, or a Cluster of Cluster API.
const InventoryAnnotation = Prefix + "inventory"

// ApproveAnnotation on a FederatedCluster approves the deletion of the copies that the deletion guard holds back. Its
// value is status.deletionsHeld.token of the cluster, or othersToken. It approves exactly the copies that the token was
// shown for.
const ApproveAnnotation = Prefix + "approve-deletions"

// ApprovePlacementAnnotation on a PropagationPolicy or ClusterPropagationPolicy approves a change of the placement of
// its objects that waits for approval. On a Propagation it approves the change for that object only. Its value is
// status.placementHeld.token of the policy, or status.held.token of the Propagation: a random value that exists while
// the change waits, and works once.
const ApprovePlacementAnnotation = Prefix + "approve-placement"

// ReleaseKeptAnnotation "true" on a FederatedCluster that leaves the fleet turns the copies that hold data into plain
// objects of the cluster: volumes, and all other copies that need an approval because of their data. They stay, without
// the marks of copies.
const ReleaseKeptAnnotation = Prefix + "release-kept"

// ApproveReferencesAnnotation on an override policy approves the references that the policy adds to objects. When a
// user sets a new value, the webhook checks whether that user may read the references, as for the author of the policy.
// The value has no meaning.
const ApproveReferencesAnnotation = Prefix + "approve-references"

// Finalizer keeps a FederatedCluster until every copy on it is deleted. Earlier versions of Refract also put it on
// Propagations.
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
