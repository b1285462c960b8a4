package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Propagation reports where a namespaced object of the hub is: one row for each
// member cluster that has it, should have it, or still has to lose it. It is
// written by Refract alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=prop
// +kubebuilder:printcolumn:name="Placed",type=integer,JSONPath=`.status.placed`
// +kubebuilder:printcolumn:name="Synced",type=integer,JSONPath=`.status.synced`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Variants",type=integer,JSONPath=`.status.variantCount`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].message`
type Propagation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which object is reported on.
	Spec PropagationSpec `json:"spec"`

	// Status is the report.
	// +optional
	Status PropagationStatus `json:"status,omitempty"`
}

// PropagationList is a list of Propagation.
//
// +kubebuilder:object:root=true
type PropagationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the reports.
	Items []Propagation `json:"items"`
}

// ClusterPropagation reports where a cluster-scoped object of the hub is, as
// Propagation does for namespaced ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cprop
// +kubebuilder:printcolumn:name="Placed",type=integer,JSONPath=`.status.placed`
// +kubebuilder:printcolumn:name="Synced",type=integer,JSONPath=`.status.synced`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Variants",type=integer,JSONPath=`.status.variantCount`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].reason`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Synced")].message`
type ClusterPropagation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which object is reported on.
	Spec PropagationSpec `json:"spec"`

	// Status is the report.
	// +optional
	Status PropagationStatus `json:"status,omitempty"`
}

// ClusterPropagationList is a list of ClusterPropagation.
//
// +kubebuilder:object:root=true
type ClusterPropagationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the reports.
	Items []ClusterPropagation `json:"items"`
}

// PropagationSpec says which object is reported on.
type PropagationSpec struct {
	// Source is the object, in the namespace of the Propagation.
	Source SourceReference `json:"source"`
}

// SourceReference names an object of the hub.
type SourceReference struct {
	// APIVersion of the object: GROUP/VERSION, or VERSION in the core group.
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Resource is the plural name of the object's type.
	Resource string `json:"resource"`
	// Name of the object.
	Name string `json:"name"`
	// UID of the object.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// Conditions of a Propagation.
const (
	// ConditionSynced is True when every placed cluster holds what belongs there.
	// While it is False, its reason is that of the first thing in the way.
	ConditionSynced = "Synced"
	// ConditionReady is True when the object is synced and ready on every placed
	// cluster.
	ConditionReady = "Ready"
	// ConditionSourceGone is True while copies of an object are to go that is not
	// there, or does not ask to be propagated any more. Its reason is why: Deleted
	// (a user deleted it by a call), LeaderDeleted (its leaders were deleted by calls),
	// OwnerDeleted (it was deleted by a call, perhaps together with its owner), Withdrawn (its label, or what referred to it, is
	// gone), NamespaceDeleted or TypeDeleted (it went with that), Missing (it went
	// while nobody watched), or Forgotten (the hub does not know it).
	ConditionSourceGone = "SourceGone"
	// ConditionProgressing is True while a rollout goes on, or waits for something.
	ConditionProgressing = "Progressing"
	// ConditionStalled is True when a rollout was halted or reverted, until somebody edits
	// the object or a policy, or has it tried again.
	ConditionStalled = "Stalled"
)

// PropagationStatus is the report on one object.
type PropagationStatus struct {
	// ObservedGeneration is the generation of the source object that the report
	// is about; 0 for kinds without one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Placed is the number of clusters that should have the object.
	Placed int32 `json:"placed"`

	// Synced is the number of clusters that hold what belongs there.
	Synced int32 `json:"synced"`

	// Ready is the number of clusters on which the object is ready: its controller
	// there has brought about what it asks for. A kind that nothing acts on is
	// ready as soon as it is there.
	// +optional
	Ready int32 `json:"ready"`

	// VariantCount is the number of distinct contents over the placed clusters.
	VariantCount int32 `json:"variantCount"`

	// PropagationPolicy is the policy that placed the object.
	// +optional
	PropagationPolicy *PolicyReference `json:"propagationPolicy,omitempty"`

	// OverridePolicies are the policies that the object was last rendered with,
	// in their order of effect.
	// +optional
	// +listType=atomic
	OverridePolicies []PolicyReference `json:"overridePolicies,omitempty"`

	// DeletedPolicies are override policies that the object names and was once
	// rendered with, and that are gone: what they changed was taken back.
	// +optional
	// +listType=atomic
	DeletedPolicies []PolicyReference `json:"deletedPolicies,omitempty"`

	// Warnings that concern every cluster.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`

	// PlacementHash is the hash of what the placement was decided on, as far as the
	// policy's reschedulePolicy says that it counts: when that changes the placement
	// is decided anew. Empty for a policy that says nothing about it.
	// +optional
	PlacementHash string `json:"placementHash,omitempty"`

	// ChosenBy is the policy that chose the clusters by name or by label, without generation;
	// absent if the object is placed on all clusters. If that policy names and selects none any
	// more, the object waits for approval before it comes to further clusters.
	// +optional
	ChosenBy *PolicyReference `json:"chosenBy,omitempty"`

	// Held is a change of the placement that waits for approval.
	// +optional
	Held *HeldPlacement `json:"held,omitempty"`

	// Follows are the objects that refer to this one, and with which it travels: the first 1,000 of them.
	// +optional
	// +listType=atomic
	Follows []FollowedObject `json:"follows,omitempty"`

	// Rollout is how far the last change has come, of an object that obeys a rollout policy.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Conditions: Synced and Ready; SourceGone while copies of an object that is gone are
	// being removed; Progressing and Stalled of an object that obeys a rollout policy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Clusters has a row for each cluster concerned, by name. With more than 100
	// clusters, those of which the same is to be said are in Alike instead. (The list
	// is atomic, so that the record of who manages its fields does not outgrow it.)
	// +optional
	// +listType=atomic
	Clusters []ClusterStatus `json:"clusters,omitempty"`

	// Alike are clusters of which the same is to be said.
	// +optional
	// +listType=atomic
	Alike []AlikeClusters `json:"alike,omitempty"`

	// Variants are the distinct contents, by hash, with what made them differ
	// from the source object. At most 16 are listed.
	// +optional
	// +listType=map
	// +listMapKey=hash
	Variants []VariantStatus `json:"variants,omitempty"`
}

// HeldPlacement is a change of a placement that waits for approval. Until then the object stays
// where it is.
type HeldPlacement struct {
	// Number stands for the change: for the policy as it is, and for the clusters that it chooses. Anybody can
	// compute it, so it approves nothing.
	Number string `json:"number"`
	// Token approves the change for this object, as the value of the annotation refract.dev/approve-placement
	// of the Propagation. It is random, and approves once.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`
	// PolicyToken approves the change for all objects that have it, as the value of the same annotation of the policy,
	// while status.placementHeld of the policy has it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PolicyToken string `json:"policyToken,omitempty"`
	// Leaves are the clusters that the object would leave, by name.
	// +optional
	// +listType=atomic
	Leaves []string `json:"leaves,omitempty"`
	// Joins are the clusters that the object would come to, by name.
	// +optional
	// +listType=atomic
	Joins []string `json:"joins,omitempty"`
}

// PolicyReference names a policy at one of its generations.
type PolicyReference struct {
	// Kind of the policy.
	Kind string `json:"kind"`
	// Namespace of the policy; empty for a cluster-scoped one.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the policy.
	Name string `json:"name"`
	// Generation of the policy.
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// FollowedObject names an object of the same namespace.
type FollowedObject struct {
	// Resource is the plural name of the object's type: RESOURCE, or RESOURCE.GROUP.
	Resource string `json:"resource"`
	// Name of the object.
	Name string `json:"name"`
}

// ClusterState says how it stands with an object on one cluster.
//
// +kubebuilder:validation:Enum=Synced;Pending;Failed;Drifted;Offline;Deleting
type ClusterState string

// States of an object on a cluster.
const (
	// StateSynced: the cluster holds what belongs there.
	StateSynced ClusterState = "Synced"
	// StatePending: the write is under way or waits for something.
	StatePending ClusterState = "Pending"
	// StateFailed: the object could not be rendered or written; the cluster keeps
	// what it had.
	StateFailed ClusterState = "Failed"
	// StateDrifted: the copy was changed on the cluster and is not corrected yet.
	StateDrifted ClusterState = "Drifted"
	// StateOffline: the cluster cannot be reached; it keeps what it had.
	StateOffline ClusterState = "Offline"
	// StateDeleting: the copy is to go and is still there.
	StateDeleting ClusterState = "Deleting"
)

// ReasonAwaitingApproval is the reason of a row whose copy is deleted only after an approval.
const ReasonAwaitingApproval = "AwaitingApproval"

// ClusterStatus is the row of one cluster.
type ClusterStatus struct {
	// Name of the cluster.
	Name string `json:"name"`

	// State in one word.
	State ClusterState `json:"state"`

	// Reason for a state other than Synced, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for people: what is wrong, where, and what to do.
	// +optional
	Message string `json:"message,omitempty"`

	// Revision that the cluster did not take; only while a rollout goes on.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Generation of the source object that the cluster holds.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// Hash of the content that the cluster holds.
	// +optional
	Hash string `json:"hash,omitempty"`

	// Replicas is the cluster's share of a workload that is divided.
	// +optional
	Replicas *int64 `json:"replicas,omitempty"`

	// Fields is the hash of the set of fields that Refract owned in the copy after
	// it was last written, and the time that its API server gave to that. A copy with
	// another set, or another time, has drifted.
	// +optional
	Fields string `json:"fields,omitempty"`

	// Adopted is whether the object was there before it became a copy.
	// +optional
	Adopted bool `json:"adopted,omitempty"`

	// Readiness of the object on the cluster.
	// +optional
	Readiness Readiness `json:"readiness,omitempty"`

	// ReadinessMessage says why the object is not ready.
	// +optional
	ReadinessMessage string `json:"readinessMessage,omitempty"`

	// ReadySince is since when the copy has been ready with the content that the cluster
	// holds, without a break; only while a rollout waits for it.
	// +optional
	ReadySince *metav1.MicroTime `json:"readySince,omitempty"`

	// Run is the run of a Job on the cluster; only for Jobs, and once it has begun. A Job runs
	// once on each cluster for each UID on the hub.
	// +optional
	Run *RunStatus `json:"run,omitempty"`

	// Drift is what was changed on the cluster, and corrected, the last time.
	// +optional
	Drift *DriftStatus `json:"drift,omitempty"`

	// Policies of which at least one rule holds for this cluster, with the
	// generation that was used.
	// +optional
	// +listType=atomic
	Policies []PolicyReference `json:"policies,omitempty"`

	// Warnings about overrides that had nothing to act on here.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// AlikeClusters is one row for several clusters.
type AlikeClusters struct {
	// Row is what is said of each of them, without its name.
	Row ClusterStatus `json:"row"`
	// Names of the clusters, sorted.
	// +listType=atomic
	Names []string `json:"names"`
}

// Readiness says whether an object has become on a cluster what it asks for.
//
// +kubebuilder:validation:Enum=Ready;InProgress;Failed;Unknown
type Readiness string

// What is said of an object's readiness.
const (
	// ReadinessReady: what the object asks for is there.
	ReadinessReady Readiness = "Ready"
	// ReadinessInProgress: the cluster is at work on it.
	ReadinessInProgress Readiness = "InProgress"
	// ReadinessFailed: the cluster says that it cannot be.
	ReadinessFailed Readiness = "Failed"
	// ReadinessUnknown: it cannot be told.
	ReadinessUnknown Readiness = "Unknown"
)

// RunStatus is the run of a Job on a cluster.
type RunStatus struct {
	// Source is the UID of the Job on the hub.
	Source types.UID `json:"source"`

	// Outcome is Complete or Failed when the run is over. It is Unknown when the Job is no longer
	// on the cluster and its end was not seen: Refract does not run it again. Empty while it runs.
	// +optional
	Outcome RunOutcome `json:"outcome,omitempty"`

	// Time at which the run ended, as the cluster says; empty if that is not known.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// RunOutcome says how the run of a Job ended.
//
// +kubebuilder:validation:Enum=Complete;Failed;Unknown
type RunOutcome string

// Outcomes of a run.
const (
	// OutcomeComplete: the Job has the condition Complete.
	OutcomeComplete RunOutcome = "Complete"
	// OutcomeFailed: the Job has the condition Failed.
	OutcomeFailed RunOutcome = "Failed"
	// OutcomeUnknown: the Job vanished, and its end was not seen.
	OutcomeUnknown RunOutcome = "Unknown"
)

// DriftStatus is a change of a copy on its cluster that was corrected.
type DriftStatus struct {
	// Count of the corrections of this copy.
	Count int64 `json:"count"`
	// Time of the last one.
	Time metav1.Time `json:"time"`
	// Fields that had been changed or removed, as .spec.replicas or
	// .spec.template.spec.containers[name="web"].image; empty if the copy had been
	// deleted, or was changed while nobody watched. At most 16 are listed.
	// +optional
	// +listType=atomic
	Fields []string `json:"fields,omitempty"`
	// Manager is the field manager that had changed them, if it is known.
	// +optional
	Manager string `json:"manager,omitempty"`
	// Deleted is whether the copy had been deleted.
	// +optional
	Deleted bool `json:"deleted,omitempty"`
}

// VariantStatus is one of the distinct contents that clusters hold.
type VariantStatus struct {
	// Hash of the content.
	Hash string `json:"hash"`

	// Clusters is the number of clusters with this content.
	Clusters int32 `json:"clusters"`

	// Changes that the override policies made to the source object, in order, one
	// line each: PATH: BEFORE → AFTER (POLICY rule N OVERRIDER[ITEM]). Values of
	// Secrets are masked, long values cut. At most 64 are listed.
	// +optional
	// +listType=atomic
	Changes []string `json:"changes,omitempty"`
}
