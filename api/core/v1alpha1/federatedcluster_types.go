package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FederatedCluster is a member cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=fcluster
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Joined",type=string,JSONPath=`.status.conditions[?(@.type=="Joined")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type FederatedCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec contains the address and the credentials of the cluster.
	// +optional
	Spec FederatedClusterSpec `json:"spec,omitempty"`

	// Status is the observed state of the cluster.
	// +optional
	Status FederatedClusterStatus `json:"status,omitempty"`
}

// FederatedClusterList is a list of FederatedCluster.
//
// +kubebuilder:object:root=true
type FederatedClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the clusters.
	Items []FederatedCluster `json:"items"`
}

// FederatedClusterSpec contains the address, the credentials and the taints of a member cluster.
type FederatedClusterSpec struct {
	// APIEndpoint is the URL of the cluster's API server: https://HOST:PORT. Refract connects only if the Secret
	// contains the same URL, in its annotation refract.dev/endpoint or as the server of its kubeconfig.
	APIEndpoint string `json:"apiEndpoint"`

	// Insecure skips the verification of the API server's certificate. The Secret must allow this, by the annotation
	// refract.dev/insecure: "true" or by a kubeconfig that skips the verification.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// UseServiceAccountToken selects the token of a service account as the credentials, rather than a client certificate.
	// +optional
	UseServiceAccountToken bool `json:"useServiceAccount,omitempty"`

	// SecretRef names the Secret with the credentials, in the system namespace.
	SecretRef LocalSecretReference `json:"secretRef"`

	// Taints keep objects without a matching toleration off the cluster.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:XValidation:rule="self.all(t, size(t.key) > 0 && t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="a taint needs a key and the effect NoSchedule, PreferNoSchedule or NoExecute"
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// LocalSecretReference names a Secret in the system namespace.
type LocalSecretReference struct {
	// Name of the Secret.
	Name string `json:"name"`
}

// ClusterConditionType is the type of a cluster's condition.
type ClusterConditionType string

// Conditions of a cluster.
const (
	// ClusterJoined: the credentials are complete, and Refract has reached the cluster with them at least once.
	ClusterJoined ClusterConditionType = "Joined"
	// ClusterReady: the API server reports that it is ready to serve.
	ClusterReady ClusterConditionType = "Ready"
	// ClusterOffline: the API server cannot be reached.
	ClusterOffline ClusterConditionType = "Offline"
	// ClusterAuthorized: the credentials have allowed every request so far. Its message names the missing rights.
	ClusterAuthorized ClusterConditionType = "Authorized"
	// ClusterDeletionsHeld: more copies are to be deleted at once than the deletion guard allows without an approval.
	// Its message summarizes status.deletionsHeld and shows how to approve the deletions.
	ClusterDeletionsHeld ClusterConditionType = "DeletionsHeld"
	// ClusterReadable is False while the answers of the cluster exceed a limit for members. Its message names the
	// excess and the limit. The condition is absent until the first excess.
	ClusterReadable ClusterConditionType = "Readable"
	// ClusterCredentialsExpiring: the credentials expire within two weeks, and Refract cannot renew them. Its message
	// has the time and the reason. The condition is absent until this first happens.
	ClusterCredentialsExpiring ClusterConditionType = "CredentialsExpiring"
	// ClusterInInventory: an inventory of the hub lists the cluster with its address and credentials. The condition is
	// absent on clusters that a user joined.
	ClusterInInventory ClusterConditionType = "InInventory"
)

// ReasonGone is the reason of the condition InInventory when the inventory no longer lists the cluster. The cluster
// stays a member until a user removes it.
const ReasonGone = "Gone"

// Reasons of the condition Ready of a FederatedCluster that Refract does not use for writes and deletions.
const (
	// ReasonDuplicateCluster: Refract uses another FederatedCluster for the same cluster. The message names it.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonRenamed: another FederatedCluster has replaced this one.
	ReasonRenamed = "Renamed"
)

// ClusterCondition is a condition of a cluster.
type ClusterCondition struct {
	// Type of the condition.
	Type ClusterConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastProbeTime is the time of the last change of any field of the condition.
	LastProbeTime metav1.Time `json:"lastProbeTime"`
	// LastTransitionTime is the time of the last change of the status.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason is one word in CamelCase.
	Reason string `json:"reason"`
	// Message is an explanation for users.
	Message string `json:"message"`
}

// FederatedClusterStatus is the observed state of a cluster.
type FederatedClusterStatus struct {
	// Conditions: Joined, Ready, Offline, Authorized, DeletionsHeld, Readable,
	// CredentialsExpiring and InInventory.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []ClusterCondition `json:"conditions,omitempty"`

	// ClusterUID is the UID of the cluster's namespace kube-system. Two FederatedClusters with the same UID are two
	// names for one cluster; Refract uses only one of them.
	// +optional
	ClusterUID types.UID `json:"clusterUID,omitempty"`

	// ClusterClaim is the rank of this name among the names of the cluster. Refract uses the name with the lowest rank.
	// It is 1 for a cluster with one name, and absent until the name has claimed the UID.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ClusterClaim int64 `json:"clusterClaim,omitempty"`

	// Resources are sums over the cluster's nodes.
	// +optional
	Resources Resources `json:"resources,omitempty"`

	// APIResourceTypes lists the types that the cluster serves, but not in the version that the hub prefers, with an
	// entry for each served version. Other types are not listed. Refract sends copies of a listed type in the first of
	// the hub's versions that has an entry.
	// +optional
	APIResourceTypes []APIResource `json:"apiResourceTypes,omitempty"`

	// PendingDeletions are copies on the cluster that are still to be deleted, although neither their object nor its
	// Propagation exists on the hub, because their namespace was deleted. At most 500 are listed. After a restart,
	// Refract treats the others as unknown to the hub.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	PendingDeletions []PendingDeletion `json:"pendingDeletions,omitempty"`

	// DeletionsHeld describes the deletions that wait for an approval; absent if no deletion waits. The condition
	// DeletionsHeld has the same content as text.
	// +optional
	DeletionsHeld *DeletionsHeld `json:"deletionsHeld,omitempty"`

	// JoinPerformed is true once the cluster has been ready.
	// +optional
	JoinPerformed bool `json:"joinPerformed,omitempty"`
}

// MaxPendingDeletions bounds the list of pending deletions of a cluster.
const MaxPendingDeletions = 500

// PendingDeletion is a copy that is still to be deleted.
type PendingDeletion struct {
	// Resource is the type: RESOURCE, or RESOURCE.GROUP.
	Resource string `json:"resource"`
	// Namespace of the copy; empty if it has none.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the copy.
	Name string `json:"name"`
	// UID of the hub's object. A copy of an object with another UID is not deleted.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Cause of the deletion: a reason of the condition SourceGone of a Propagation.
	Cause string `json:"cause"`
}

// DeletionsHeld describes deletions of copies that wait for an approval.
type DeletionsHeld struct {
	// Token approves all of these deletions, as the value of the annotation refract.dev/approve-deletions. It has a
	// random part and works once.
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`

	// OthersToken approves only the deletions of copies without data; empty if all or none of the copies hold data.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OthersToken string `json:"othersToken,omitempty"`

	// Copies is the number of copies whose deletion waits.
	Copies int64 `json:"copies"`

	// Of is the number of all copies on the cluster.
	Of int64 `json:"of"`

	// HoldData is the number of copies whose deletion waits because of their data: volumes, and copies that are to be kept.
	// +optional
	HoldData int64 `json:"holdData,omitempty"`

	// Groups are the largest groups of waiting deletions, by namespace and cause.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Groups []HeldDeletions `json:"groups,omitempty"`
}

// HeldDeletions describes the deletions in one namespace that wait for an approval, for one cause.
type HeldDeletions struct {
	// Namespace of the copies; empty for cluster-scoped copies.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Cause of the deletions, as text.
	Cause string `json:"cause"`

	// Copies is the number of copies whose deletion waits.
	Copies int64 `json:"copies"`

	// Of is the number of all copies in the namespace on this cluster.
	Of int64 `json:"of"`
}

// Resources are sums over a cluster's nodes.
type Resources struct {
	// SchedulableNodes is the number of nodes that accept pods.
	// +optional
	SchedulableNodes *int64 `json:"schedulableNodes,omitempty"`
	// Allocatable is the sum of the allocatable resources of these nodes.
	// +optional
	Allocatable map[corev1.ResourceName]resource.Quantity `json:"allocatable,omitempty"`
	// Available is Allocatable minus the requests of all pods.
	// +optional
	Available map[corev1.ResourceName]resource.Quantity `json:"available,omitempty"`
}

// APIResource is a type that a cluster serves.
type APIResource struct {
	// Group of the type; empty for the core group.
	// +optional
	Group string `json:"group,omitempty"`
	// Version of the type.
	Version string `json:"version"`
	// Kind of the type.
	Kind string `json:"kind"`
	// PluralName is the resource name of the type.
	PluralName string `json:"pluralName"`
	// Scope is Namespaced or Cluster.
	Scope string `json:"scope"`
}
