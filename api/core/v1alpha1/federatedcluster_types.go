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

	// Spec says how the cluster is reached.
	// +optional
	Spec FederatedClusterSpec `json:"spec,omitempty"`

	// Status is what was observed of the cluster.
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

// FederatedClusterSpec says how a member cluster is reached.
type FederatedClusterSpec struct {
	// APIEndpoint is the URL of the cluster's API server: https://HOST:PORT. Nothing is
	// sent to it unless the Secret says the same, in its annotation refract.dev/endpoint
	// or as the server of its kubeconfig.
	APIEndpoint string `json:"apiEndpoint"`

	// Insecure skips the verification of the API server's certificate, if the Secret has
	// the annotation refract.dev/insecure: "true", or a kubeconfig that skips it.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// UseServiceAccountToken says that the credentials are the token of a service
	// account rather than a client certificate.
	// +optional
	UseServiceAccountToken bool `json:"useServiceAccount,omitempty"`

	// SecretRef names the Secret with the credentials, in the system namespace.
	SecretRef LocalSecretReference `json:"secretRef"`

	// Taints keep objects that do not tolerate them from the cluster.
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
	// ClusterJoined: the credentials are complete and the cluster was reached
	// with them once.
	ClusterJoined ClusterConditionType = "Joined"
	// ClusterReady: the API server says that it is ready to serve.
	ClusterReady ClusterConditionType = "Ready"
	// ClusterOffline: the API server cannot be reached.
	ClusterOffline ClusterConditionType = "Offline"
	// ClusterAuthorized: the credentials may do everything that was needed so far.
	// Its message names what is missing.
	ClusterAuthorized ClusterConditionType = "Authorized"
	// ClusterDeletionsHeld: more copies are to go at once than the guard lets pass
	// unasked. Its message says what status.deletionsHeld does, and how to approve it.
	ClusterDeletionsHeld ClusterConditionType = "DeletionsHeld"
	// ClusterReadable is False while the cluster answers with more than is taken from a
	// member. Its message names what there is too much of, and the limit. A cluster that
	// never did has no such condition.
	ClusterReadable ClusterConditionType = "Readable"
	// ClusterCredentialsExpiring: the credentials end within two weeks, and Refract cannot
	// renew them. Its message says when, and why not. A cluster whose credentials never
	// were so has no such condition.
	ClusterCredentialsExpiring ClusterConditionType = "CredentialsExpiring"
	// ClusterInInventory: an inventory of the hub lists the cluster, and says how it is
	// reached. A cluster that somebody joined has no such condition.
	ClusterInInventory ClusterConditionType = "InInventory"
)

// ReasonGone is the reason of the condition InInventory of a cluster that is not listed any
// more: it stays a member until somebody takes it out.
const ReasonGone = "Gone"

// Reasons of the condition Ready of a FederatedCluster through which nothing is written or deleted.
const (
	// ReasonDuplicateCluster: another FederatedCluster, which the message names, is served for the same cluster.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonRenamed: another FederatedCluster has taken the place of this one.
	ReasonRenamed = "Renamed"
)

// ClusterCondition is a condition of a cluster.
type ClusterCondition struct {
	// Type of the condition.
	Type ClusterConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastProbeTime is when the condition was last found to have changed in any
	// of its fields.
	LastProbeTime metav1.Time `json:"lastProbeTime"`
	// LastTransitionTime is when the status last changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason is one word in CamelCase.
	Reason string `json:"reason"`
	// Message is for people.
	Message string `json:"message"`
}

// FederatedClusterStatus is what was observed of a cluster.
type FederatedClusterStatus struct {
	// Conditions: Joined, Ready, Offline, Authorized, DeletionsHeld, Readable,
	// CredentialsExpiring and InInventory.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []ClusterCondition `json:"conditions,omitempty"`

	// ClusterUID is the UID of the cluster's namespace kube-system. Two FederatedClusters with
	// the same UID are two names for one cluster, of which one is served.
	// +optional
	ClusterUID types.UID `json:"clusterUID,omitempty"`

	// ClusterClaim is the rank of this name among the names of the cluster: the lowest is
	// served. It is 1 for a cluster with one name, and absent until the name has claimed the UID.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ClusterClaim int64 `json:"clusterClaim,omitempty"`

	// Resources are sums over the cluster's nodes.
	// +optional
	Resources Resources `json:"resources,omitempty"`

	// APIResourceTypes are the types that the cluster serves, but not in the version that the
	// hub prefers, with each version in which it serves them. Other types are not listed. Copies
	// of a listed type are sent in the first version of the hub that is listed.
	// +optional
	APIResourceTypes []APIResource `json:"apiResourceTypes,omitempty"`

	// PendingDeletions are copies on the cluster that are still to be deleted, and of which the
	// hub has neither the object nor a Propagation any more, as their namespace was deleted. Of
	// more than 500, the others are not listed: after a restart they count as unknown to the hub.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	PendingDeletions []PendingDeletion `json:"pendingDeletions,omitempty"`

	// DeletionsHeld are the deletions that wait for approval; absent if none do. The condition
	// DeletionsHeld says the same in words.
	// +optional
	DeletionsHeld *DeletionsHeld `json:"deletionsHeld,omitempty"`

	// JoinPerformed says whether the cluster was prepared when it joined.
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
	// UID of the hub's object that it is a copy of. The copy of another object is not meant.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Cause is why it is to be deleted: a reason of the condition SourceGone of a Propagation.
	Cause string `json:"cause"`
}

// DeletionsHeld are deletions of copies that wait for approval.
type DeletionsHeld struct {
	// Token approves all of them, as the value of the annotation refract.dev/approve-deletions. A part
	// of it is random, and it approves once.
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`

	// OthersToken approves those that hold no data; empty if all or none of them do.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OthersToken string `json:"othersToken,omitempty"`

	// Copies is how many wait.
	Copies int64 `json:"copies"`

	// Of is how many copies the cluster has.
	Of int64 `json:"of"`

	// HoldData is how many of those that wait need approval because of their data: those of volumes,
	// and those that are kept.
	// +optional
	HoldData int64 `json:"holdData,omitempty"`

	// Groups are those that wait, by namespace and cause: the largest groups.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Groups []HeldDeletions `json:"groups,omitempty"`
}

// HeldDeletions are deletions in one namespace that wait for approval, for one cause.
type HeldDeletions struct {
	// Namespace of the copies; empty for those without one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Cause in words.
	Cause string `json:"cause"`

	// Copies is how many wait.
	Copies int64 `json:"copies"`

	// Of is how many copies the cluster has in the namespace.
	Of int64 `json:"of"`
}

// Resources are sums over a cluster's nodes.
type Resources struct {
	// SchedulableNodes is the number of nodes that take pods.
	// +optional
	SchedulableNodes *int64 `json:"schedulableNodes,omitempty"`
	// Allocatable is the sum of what those nodes can give to pods.
	// +optional
	Allocatable map[corev1.ResourceName]resource.Quantity `json:"allocatable,omitempty"`
	// Available is what of it no pod has requested.
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
