package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Labels that name the rollout policies of an object.
const (
	// RolloutPolicyLabel on an object of the hub names a RolloutPolicy in its namespace. It has no effect on a
	// cluster-scoped object.
	RolloutPolicyLabel = Prefix + "rollout-policy-name"
	// ClusterRolloutPolicyLabel on an object of the hub names a ClusterRolloutPolicy. On a Namespace it names a floor:
	// a policy that all objects of the namespace obey.
	ClusterRolloutPolicyLabel = Prefix + "cluster-rollout-policy-name"
)

// Annotations on a Propagation that control the rollout of its object. They are not on the object, because the right to
// write the object need not include the right to release it.
const (
	// PausedAnnotation "true" pauses the rollout: no further cluster gets the change.
	PausedAnnotation = Prefix + "rollout-paused"
	// ApproveRolloutAnnotation approves the next step of a waiting rollout. Its value is status.rollout.awaits.
	ApproveRolloutAnnotation = Prefix + "approve-rollout"
	// ResumeAnnotation retries a halted or reverted rollout. Its value is status.rollout.awaits.
	ResumeAnnotation = Prefix + "resume-rollout"
)

// RolloutPolicy controls how a change of an object reaches its clusters: the order of the clusters, the conditions for
// the next step, and the reaction to failures. Objects of its namespace name it in the label
// refract.dev/rollout-policy-name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rp
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Progressing",type=integer,JSONPath=`.status.phases.progressing`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.phases.waiting`
// +kubebuilder:printcolumn:name="Stopped",type=integer,JSONPath=`.status.phases.stopped`
// +kubebuilder:printcolumn:name="Complete",type=integer,JSONPath=`.status.phases.complete`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the rollout of a change.
	Spec RolloutPolicySpec `json:"spec"`

	// Status counts the objects of the policy by the phase of their rollouts.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitempty"`
}

// RolloutPolicyList is a list of RolloutPolicy.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []RolloutPolicy `json:"items"`
}

// ClusterRolloutPolicy is a RolloutPolicy for cluster-scoped objects and objects of any namespace that name it, and for
// all objects of a Namespace that names it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=crp
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Progressing",type=integer,JSONPath=`.status.phases.progressing`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.phases.waiting`
// +kubebuilder:printcolumn:name="Stopped",type=integer,JSONPath=`.status.phases.stopped`
// +kubebuilder:printcolumn:name="Complete",type=integer,JSONPath=`.status.phases.complete`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Accepted")].message`
type ClusterRolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the rollout of a change.
	Spec ClusterRolloutPolicySpec `json:"spec"`

	// Status counts the objects of the policy by the phase of their rollouts.
	// +optional
	Status RolloutPolicyStatus `json:"status,omitempty"`
}

// ClusterRolloutPolicyList is a list of ClusterRolloutPolicy.
//
// +kubebuilder:object:root=true
type ClusterRolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []ClusterRolloutPolicy `json:"items"`
}

// ClusterRolloutPolicySpec is a RolloutPolicySpec with a field for floors.
type ClusterRolloutPolicySpec struct {
	RolloutPolicySpec `json:",inline"`

	// AllowNarrower allows objects of a namespace with this floor to name another policy. Then both apply: the waves
	// are those of the floor, and each is divided into the waves of the object's policy. Otherwise only the floor
	// applies.
	// +optional
	AllowNarrower bool `json:"allowNarrower,omitempty"`
}

// RolloutPolicySpec describes the rollout of a change.
type RolloutPolicySpec struct {
	// Waves are groups of clusters, in the order of the rollout. A cluster is in the first wave that selects it.
	// Clusters in no wave form the last wave. A wave ends when every reachable cluster in it is done.
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=name
	// +optional
	Waves []RolloutWave `json:"waves,omitempty"`

	// Health defines when a cluster has failed.
	// +optional
	Health *RolloutHealth `json:"health,omitempty"`

	// OnFailure is the reaction to failed clusters.
	// +optional
	OnFailure *RolloutOnFailure `json:"onFailure,omitempty"`

	// Budgets limit the number of clusters with the same value of a label that are not ready because of a change, at
	// any time and across all waves.
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=label
	// +optional
	Budgets []RolloutBudget `json:"budgets,omitempty"`

	// MaxChange limits the number of clusters that get a change without an approval.
	// +optional
	MaxChange *RolloutMaxChange `json:"maxChange,omitempty"`
}

// RolloutWave is a group of clusters that get a change together.
type RolloutWave struct {
	// Name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// TargetClusters selects the clusters of the wave, as in a rule of an OverridePolicy. If it is absent or empty, the
	// wave contains all clusters that are in no earlier wave.
	// +optional
	TargetClusters *corev1alpha1.TargetClusters `json:"targetClusters,omitempty"`

	// Strategy is Rolling, or Manual to wait for an approval.
	// +kubebuilder:default=Rolling
	// +optional
	Strategy WaveStrategy `json:"strategy,omitempty"`

	// MaxConcurrent is the maximum number of clusters of the wave that have the change and are not done: a number, or a
	// percentage of the clusters of the wave, but at least one. Absent means all.
	// +kubebuilder:validation:XIntOrString
	// +optional
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// MinReadySeconds is the number of seconds for which a copy must be ready with the new content, without
	// interruption, before its cluster is done.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// WaveStrategy decides whether a wave waits for an approval.
//
// +kubebuilder:validation:Enum=Rolling;Manual
type WaveStrategy string

// Strategies of a wave.
const (
	WaveRolling WaveStrategy = "Rolling"
	WaveManual  WaveStrategy = "Manual"
)

// RolloutHealth defines when a cluster has failed.
type RolloutHealth struct {
	// TimeoutSeconds is the number of seconds after which a cluster that is not ready has failed.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// CEL is an additional condition for readiness: an expression on the copy as read from the cluster, such as
	// object.status.conditions.exists(c, c.type == 'SmokeTest' && c.status == 'True'). The copy is ready only if the
	// expression is true. An error, as for a missing field, counts as false. The expression is evaluated during a
	// rollout. For a Secret it sees neither values nor annotations.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	CEL string `json:"cel,omitempty"`
}

// RolloutOnFailure is the reaction to failed clusters.
type RolloutOnFailure struct {
	// MaxFailures is the number of clusters that may fail before the rollout stops.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxFailures int32 `json:"maxFailures,omitempty"`

	// Action is Halt, to change no further cluster, or Revert, to restore the former content on every cluster.
	// +kubebuilder:default=Halt
	// +optional
	Action FailureAction `json:"action,omitempty"`
}

// FailureAction is the reaction to a failed rollout.
//
// +kubebuilder:validation:Enum=Halt;Revert
type FailureAction string

// Reactions to a failed rollout.
const (
	ActionHalt   FailureAction = "Halt"
	ActionRevert FailureAction = "Revert"
)

// RolloutBudget limits the number of clusters with the same value of a label that are not ready.
type RolloutBudget struct {
	// Label is the key of a cluster label. The budget does not apply to clusters without this label.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label"`

	// MaxUnavailable is the maximum number of clusters with the same value of the label that are not ready.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxUnavailable int32 `json:"maxUnavailable"`
}

// RolloutMaxChange limits the number of clusters that get a change without an approval.
type RolloutMaxChange struct {
	// Clusters is the maximum number of clusters that get new content without an approval.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Clusters int32 `json:"clusters"`
}

// RolloutPolicyStatus counts the objects that obey a policy.
type RolloutPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Objects is the number of objects that obey the policy.
	// +optional
	Objects int64 `json:"objects"`

	// Phases counts these objects by the phase of their rollout.
	// +optional
	Phases RolloutPhases `json:"phases"`

	// Conditions: Accepted is True if the policy is valid. While it is invalid, no change is released.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutPhases counts objects by the phase of their rollout. The API server sets missing counts to 0, because
// Refract's patches contain only the changed ones.
type RolloutPhases struct {
	// Progressing is the number of objects with a rollout in progress.
	// +kubebuilder:default=0
	Progressing int64 `json:"progressing"`
	// Waiting is the number of objects with a waiting rollout.
	// +kubebuilder:default=0
	Waiting int64 `json:"waiting"`
	// Stopped is the number of objects whose rollout is halted, stalled or reverted, or is being reverted.
	// +kubebuilder:default=0
	Stopped int64 `json:"stopped"`
	// Complete is the number of objects whose rollout is complete.
	// +kubebuilder:default=0
	Complete int64 `json:"complete"`
}

// RolloutPhase is the phase of the rollout of an object.
//
// +kubebuilder:validation:Enum=Progressing;Waiting;Halted;Reverting;Stalled;Reverted;Complete
type RolloutPhase string

// Phases of the rollout of an object.
const (
	RolloutProgressing RolloutPhase = "Progressing" // Clusters get the target.
	RolloutWaiting     RolloutPhase = "Waiting"     // The rollout waits; its message has the reason.
	RolloutHalted      RolloutPhase = "Halted"      // Clusters failed; no further cluster is changed.
	RolloutReverting   RolloutPhase = "Reverting"   // Clusters failed; all get back their former content.
	RolloutStalled     RolloutPhase = "Stalled"     // Clusters failed, and their former content is not stored or they reject it: an administrator has to act.
	RolloutReverted    RolloutPhase = "Reverted"    // All reachable clusters have their former content again.
	RolloutComplete    RolloutPhase = "Complete"    // Every cluster has the target.
)

// Revision identifies the objects that the content of an object was rendered from at one time.
type Revision struct {
	// Name is the hash of the other fields, except the generations. It begins with k if a part of the revision is not
	// readable for the role view: the names of such parts, which the hash covers, are computed with a key.
	Name string `json:"name"`
	// Generation of the object; 0 for kinds without one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Object is the name of the ControllerRevision with the object. It is in the namespace of the object, or in the
	// system namespace for kinds that the role view does not read.
	Object string `json:"object"`
	// Policies are the override policies, in their order of effect.
	// +optional
	// +listType=atomic
	Policies []PolicyRevision `json:"policies,omitempty"`
	// Followers are the objects that travel and change with the object, sorted: objects that it refers to and
	// that obey no rollout policy themselves.
	// +optional
	// +listType=atomic
	Followers []FollowerRevision `json:"followers,omitempty"`
	// Allowed is true if Refract has found that the policies may add their references to the object.
	// +optional
	Allowed bool `json:"allowed,omitempty"`
}

// FollowerRevision is a follower at one time.
type FollowerRevision struct {
	// Resource is the plural name of its type: RESOURCE[.GROUP].
	Resource string `json:"resource"`
	// Name of the follower, which is in the namespace of the object.
	Name string `json:"name"`
	// Generation of the follower; 0 for kinds without one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Object is the name of the ControllerRevision with the follower, in the same namespace as for another object of its kind.
	Object string `json:"object"`
	// Policies are the override policies of the follower, in their order of effect.
	// +optional
	// +listType=atomic
	Policies []PolicyRevision `json:"policies,omitempty"`
}

// PolicyRevision is an override policy at one time.
type PolicyRevision struct {
	PolicyReference `json:",inline"`

	// Revision is the name of the ControllerRevision with the policy. It is in the namespace of the object, or in the
	// system namespace for a cluster-scoped policy.
	Revision string `json:"revision"`
}

// ObeyedPolicy is a rollout policy at one time.
type ObeyedPolicy struct {
	PolicyReference `json:",inline"`

	// UID of the policy. A policy of the same name and generation with another UID is another policy: the rollout
	// starts again at the first wave.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// RolloutStatus is the progress of a change of an object. Its facts that decide which cluster has which revision are
// written before any cluster is changed.
type RolloutStatus struct {
	// Policies are the rollout policies that the object obeys: the floor of the namespace first.
	// +optional
	// +listType=atomic
	Policies []ObeyedPolicy `json:"policies,omitempty"`

	// UID of the object. For an object of the same name with another UID the rollout starts again.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// Phase of the rollout.
	Phase RolloutPhase `json:"phase"`

	// Message is the reason why the rollout waits or was stopped.
	// +optional
	Message string `json:"message,omitempty"`

	// Awaits is the value of the annotation that approves the next step, or retries the rollout.
	// +optional
	Awaits string `json:"awaits,omitempty"`

	// Target is the revision that all clusters are to get.
	Target Revision `json:"target"`

	// LastGood is the revision that every cluster had when a rollout was last complete. Clusters in none of the lists
	// below have it, or the target if the phase is Complete. If its name is "found", no revision is recorded: each
	// cluster keeps its present content.
	LastGood Revision `json:"lastGood"`

	// Superseded is a previous target that some clusters got.
	// +optional
	Superseded *Revision `json:"superseded,omitempty"`

	// Attempt counts the rollouts of the object and their retries.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// Nonce is a random part of Awaits. Each attempt has a new one, and each used approval replaces it. So an approval
	// cannot be given in advance or used twice.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Nonce string `json:"nonce,omitempty"`

	// Opened is the number of waves that may have the target.
	// +optional
	Opened int32 `json:"opened,omitempty"`

	// Began is the time when the revision became the target.
	// +optional
	Began *metav1.MicroTime `json:"began,omitempty"`

	// Waves has an entry for each wave that contains clusters whose content the target changes.
	// +optional
	// +listType=atomic
	Waves []WaveStatus `json:"waves,omitempty"`

	// Current are the clusters that have the target and are not done.
	// +optional
	// +listType=atomic
	Current []ReleasedCluster `json:"current,omitempty"`

	// Done are the clusters that have the target and are done, sorted.
	// +optional
	// +listType=atomic
	Done []string `json:"done,omitempty"`

	// Failed are the clusters that have the target and failed, by name. During and after a revert, they are the
	// clusters that failed before.
	// +optional
	// +listType=atomic
	Failed []FailedCluster `json:"failed,omitempty"`

	// OnSuperseded are the clusters that have the superseded target, sorted.
	// +optional
	// +listType=atomic
	OnSuperseded []string `json:"onSuperseded,omitempty"`

	// Reverting are the clusters that had a target and have not got back the last good revision yet, sorted.
	// +optional
	// +listType=atomic
	Reverting []string `json:"reverting,omitempty"`

	// Offline are the clusters that are skipped because they cannot be reached, sorted.
	// +optional
	// +listType=atomic
	Offline []string `json:"offline,omitempty"`
}

// WaveStatus is the progress of a wave.
type WaveStatus struct {
	// Name of the wave. If a floor and the policy of the object both apply, it consists of both names, separated by a
	// slash. Empty for the wave of the clusters that no wave selects.
	// +optional
	Name string `json:"name,omitempty"`
	// Clusters is the number of clusters in the wave whose content the target changes.
	Clusters int32 `json:"clusters"`
	// Done is the number of these clusters that are done.
	// +optional
	Done int32 `json:"done,omitempty"`
	// Failed is the number of these clusters that have failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Since is the time when the wave began.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
}

// ReleasedCluster is a cluster that has the target and is not done.
type ReleasedCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Since is the start of TimeoutSeconds of the policy; absent while the cluster cannot be reached.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Ready is the time since which the copy has been ready with the content of the target.
	// +optional
	Ready *metav1.MicroTime `json:"ready,omitempty"`
	// Copy identifies the copy that has been ready since then, and its last write: UID@TIME. After another write the time
	// begins again.
	// +optional
	Copy string `json:"copy,omitempty"`
}

// FailedCluster is a cluster that failed.
type FailedCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Message is the reason; absent beyond the first clusters.
	// +optional
	Message string `json:"message,omitempty"`
}
