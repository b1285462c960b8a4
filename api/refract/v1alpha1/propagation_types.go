package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Propagation reports the state of a namespaced object of the hub on its clusters: one row for each member cluster that
// has a copy, is to get one, or is still to lose one. Only Refract writes it.
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

	// Spec identifies the object.
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

// ClusterPropagation reports the state of a cluster-scoped object of the hub on its clusters, like Propagation for
// namespaced objects.
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

	// Spec identifies the object.
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

// PropagationSpec identifies the object that the Propagation reports on.
type PropagationSpec struct {
	// Source is the object. A namespaced object is in the namespace of the Propagation.
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
	// ConditionSynced is True if every placed cluster has the intended content. Otherwise its reason is that of the
	// first obstacle.
	ConditionSynced = "Synced"
	// ConditionReady is True if the object is synced and ready on every placed cluster.
	ConditionReady = "Ready"
	// ConditionSourceGone is True while copies are to be deleted because the object does not exist, or no longer has a
	// propagation label or a leader (an object that it travels with). Its reason is the cause: Deleted (a user deleted
	// the object), LeaderDeleted (users deleted all its leaders), OwnerDeleted (the object was deleted by a request,
	// perhaps together with its owner), Withdrawn (its label, or the reference to it, was removed), NamespaceDeleted or
	// TypeDeleted (the object was deleted together with its namespace or type), Missing (the object disappeared while
	// no watch ran), or Forgotten (the hub does not know the object).
	ConditionSourceGone = "SourceGone"
	// ConditionProgressing is True while a rollout advances or waits.
	ConditionProgressing = "Progressing"
	// ConditionStalled is True while a rollout is halted or reverted: until a user edits the object or a policy, or
	// resumes the rollout.
	ConditionStalled = "Stalled"
)

// PropagationStatus is the report about one object.
type PropagationStatus struct {
	// ObservedGeneration is the generation of the object that the report describes; 0 for kinds without generations.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Placed is the number of clusters that are to have the object.
	Placed int32 `json:"placed"`

	// Synced is the number of clusters that have the intended content.
	Synced int32 `json:"synced"`

	// Ready is the number of clusters on which the object is ready: its controller there has reached the state that the
	// spec asks for. An object of a kind without a controller is ready once it exists.
	// +optional
	Ready int32 `json:"ready"`

	// VariantCount is the number of distinct contents on the placed clusters.
	VariantCount int32 `json:"variantCount"`

	// PropagationPolicy is the policy that placed the object.
	// +optional
	PropagationPolicy *PolicyReference `json:"propagationPolicy,omitempty"`

	// OverridePolicies are the policies of the last rendering of the object, in their order of effect.
	// +optional
	// +listType=atomic
	OverridePolicies []PolicyReference `json:"overridePolicies,omitempty"`

	// DeletedPolicies are deleted override policies that the object still names and was once rendered with. Their
	// changes have been taken back.
	// +optional
	// +listType=atomic
	DeletedPolicies []PolicyReference `json:"deletedPolicies,omitempty"`

	// Warnings that apply to all clusters.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`

	// PlacementHash is the hash of the facts that count for the placement according to the policy's reschedulePolicy. A
	// change of the hash causes a new decision. Empty for a policy without reschedulePolicy.
	// +optional
	PlacementHash string `json:"placementHash,omitempty"`

	// ChosenBy is the policy that selected the clusters by name or by label, without its generation. It is absent if the
	// object is placed on all clusters. If that policy no longer names or selects clusters, the object waits for an
	// approval before it gets further clusters.
	// +optional
	ChosenBy *PolicyReference `json:"chosenBy,omitempty"`

	// Held is a change of the placement that waits for an approval.
	// +optional
	Held *HeldPlacement `json:"held,omitempty"`

	// Follows are the leaders of the object: the objects that refer to it, and that it travels with. Only the first
	// 1,000 are listed.
	// +optional
	// +listType=atomic
	Follows []FollowedObject `json:"follows,omitempty"`

	// Rollout is the progress of the last change of an object that obeys a rollout policy.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Conditions: Synced and Ready; SourceGone while copies of a missing object are being removed; Progressing and
	// Stalled for an object that obeys a rollout policy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Clusters has a row for each cluster, by name. With more than 100 clusters, rows with equal content are in Alike
	// instead. (The list is atomic because the managed fields of a granular list would be larger than the list.)
	// +optional
	// +listType=atomic
	Clusters []ClusterStatus `json:"clusters,omitempty"`

	// Alike has the rows with equal content, one for each group of clusters.
	// +optional
	// +listType=atomic
	Alike []AlikeClusters `json:"alike,omitempty"`

	// Variants are the distinct contents, by hash, with their differences from the object of the hub. At most 16 are listed.
	// +optional
	// +listType=map
	// +listMapKey=hash
	Variants []VariantStatus `json:"variants,omitempty"`
}

// HeldPlacement is a change of a placement that waits for an approval. Until then the object stays on its clusters.
type HeldPlacement struct {
	// Number identifies the change: it is computed from the policy and the clusters that the policy chooses. Any client
	// can compute it, so it approves nothing.
	Number string `json:"number"`
	// Token approves the change for this object, as the value of the annotation refract.dev/approve-placement of the
	// Propagation. It is random and works once.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token,omitempty"`
	// PolicyToken approves the change for all objects with the same PolicyToken, as the value of the same annotation on
	// the policy, while status.placementHeld of the policy has this token.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	PolicyToken string `json:"policyToken,omitempty"`
	// Leaves are the clusters that would lose the object, by name.
	// +optional
	// +listType=atomic
	Leaves []string `json:"leaves,omitempty"`
	// Joins are the clusters that would get the object, by name.
	// +optional
	// +listType=atomic
	Joins []string `json:"joins,omitempty"`
}

// PolicyReference names one generation of a policy.
type PolicyReference struct {
	// Kind of the policy.
	Kind string `json:"kind"`
	// Namespace of the policy; empty for a cluster-scoped policy.
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

// ClusterState is the state of an object on one cluster.
//
// +kubebuilder:validation:Enum=Synced;Pending;Failed;Drifted;Offline;Deleting
type ClusterState string

// States of an object on a cluster.
const (
	// StateSynced: the cluster has the intended content.
	StateSynced ClusterState = "Synced"
	// StatePending: the write is in progress, or waits.
	StatePending ClusterState = "Pending"
	// StateFailed: the object could not be rendered or written. The cluster keeps its content.
	StateFailed ClusterState = "Failed"
	// StateDrifted: the copy was changed on the cluster, and is not corrected yet.
	StateDrifted ClusterState = "Drifted"
	// StateOffline: the cluster cannot be reached, and keeps its content.
	StateOffline ClusterState = "Offline"
	// StateDeleting: the copy is to be deleted, and still exists.
	StateDeleting ClusterState = "Deleting"
)

// ReasonAwaitingApproval is the reason of a row whose copy is deleted only after an approval.
const ReasonAwaitingApproval = "AwaitingApproval"

// ClusterStatus is the report about one cluster.
type ClusterStatus struct {
	// Name of the cluster.
	Name string `json:"name"`

	// State of the object on the cluster.
	State ClusterState `json:"state"`

	// Reason of a state other than Synced, in CamelCase.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message for users: the problem, its place, and the remedy.
	// +optional
	Message string `json:"message,omitempty"`

	// Revision that the cluster has rejected; set only during a rollout.
	// +optional
	Revision string `json:"revision,omitempty"`

	// Generation of the hub's object whose content the cluster has.
	// +optional
	Generation int64 `json:"generation,omitempty"`

	// Hash of the content of the cluster.
	// +optional
	Hash string `json:"hash,omitempty"`

	// Replicas is the share of the cluster, for a workload whose replicas are divided.
	// +optional
	Replicas *int64 `json:"replicas,omitempty"`

	// Fields is a hash of the set of fields that Refract owned in the copy after the last write, together with the time
	// of that write according to the cluster's API server. A copy with another set or time has drifted.
	// +optional
	Fields string `json:"fields,omitempty"`

	// Adopted is true if the object existed before it became a copy.
	// +optional
	Adopted bool `json:"adopted,omitempty"`

	// Readiness of the object on the cluster.
	// +optional
	Readiness Readiness `json:"readiness,omitempty"`

	// ReadinessMessage says why the object is not ready.
	// +optional
	ReadinessMessage string `json:"readinessMessage,omitempty"`

	// ReadySince is the time when the copy became ready with its present content. The copy has been ready since then. The
	// field is set only while a rollout waits for the copy.
	// +optional
	ReadySince *metav1.MicroTime `json:"readySince,omitempty"`

	// Run is the run of a Job on the cluster; set only for Jobs that have begun. For each UID on the hub, a Job runs
	// once on each cluster.
	// +optional
	Run *RunStatus `json:"run,omitempty"`

	// Drift is the last change on the cluster that Refract corrected.
	// +optional
	Drift *DriftStatus `json:"drift,omitempty"`

	// Policies with at least one rule for this cluster, with the generation that was used.
	// +optional
	// +listType=atomic
	Policies []PolicyReference `json:"policies,omitempty"`

	// Warnings about overrides that had no effect on this cluster.
	// +optional
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// AlikeClusters is one row for several clusters with the same content of the row.
type AlikeClusters struct {
	// Row is the row of each of these clusters, without the name.
	Row ClusterStatus `json:"row"`
	// Names of the clusters, sorted.
	// +listType=atomic
	Names []string `json:"names"`
}

// Readiness is the readiness of an object on a cluster.
//
// +kubebuilder:validation:Enum=Ready;InProgress;Failed;Unknown
type Readiness string

// Values of Readiness.
const (
	// ReadinessReady: the object has reached the state that its spec asks for.
	ReadinessReady Readiness = "Ready"
	// ReadinessInProgress: the controllers of the cluster are still working on the object.
	ReadinessInProgress Readiness = "InProgress"
	// ReadinessFailed: the cluster reports that the object cannot become ready.
	ReadinessFailed Readiness = "Failed"
	// ReadinessUnknown: the readiness cannot be determined.
	ReadinessUnknown Readiness = "Unknown"
)

// RunStatus is the run of a Job on a cluster.
type RunStatus struct {
	// Source is the UID of the Job on the hub.
	Source types.UID `json:"source"`

	// Outcome is Complete or Failed after the run. It is Unknown if the Job has disappeared from the cluster and
	// Refract did not see its end; Refract does not run it again. Empty during the run.
	// +optional
	Outcome RunOutcome `json:"outcome,omitempty"`

	// Time of the end of the run, according to the cluster; absent if unknown.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// RunOutcome is the result of the run of a Job.
//
// +kubebuilder:validation:Enum=Complete;Failed;Unknown
type RunOutcome string

// Outcomes of a run.
const (
	// OutcomeComplete: the Job has the condition Complete.
	OutcomeComplete RunOutcome = "Complete"
	// OutcomeFailed: the Job has the condition Failed.
	OutcomeFailed RunOutcome = "Failed"
	// OutcomeUnknown: the Job has disappeared, and Refract did not see its end.
	OutcomeUnknown RunOutcome = "Unknown"
)

// DriftStatus describes changes of a copy on its cluster that Refract corrected.
type DriftStatus struct {
	// Count is the number of corrections of this copy.
	Count int64 `json:"count"`
	// Time of the last correction.
	Time metav1.Time `json:"time"`
	// Fields that were changed or removed, such as .spec.replicas or .spec.template.spec.containers[name="web"].image.
	// Empty if the copy was deleted, or was changed while no watch ran. At most 16 are listed.
	// +optional
	// +listType=atomic
	Fields []string `json:"fields,omitempty"`
	// Manager is the field manager of the change, if known.
	// +optional
	Manager string `json:"manager,omitempty"`
	// Deleted is true if the copy was deleted.
	// +optional
	Deleted bool `json:"deleted,omitempty"`
}

// VariantStatus describes one of the distinct contents on the clusters.
type VariantStatus struct {
	// Hash of the content.
	Hash string `json:"hash"`

	// Clusters is the number of clusters with this content.
	Clusters int32 `json:"clusters"`

	// Changes by the override policies to the object, in order, one line each: PATH: BEFORE → AFTER (POLICY rule N
	// OVERRIDER[ITEM]). Values of Secrets are masked, long values are cut. At most 64 are listed.
	// +optional
	// +listType=atomic
	Changes []string `json:"changes,omitempty"`
}
