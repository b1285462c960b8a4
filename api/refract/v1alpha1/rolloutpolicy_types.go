package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Labels that name what a change obeys.
const (
	// RolloutPolicyLabel on a hub object names a RolloutPolicy in its namespace. It has no
	// meaning on a cluster-scoped object.
	RolloutPolicyLabel = Prefix + "rollout-policy-name"
	// ClusterRolloutPolicyLabel on a hub object names a ClusterRolloutPolicy. On a Namespace
	// it names one that all objects of the namespace obey: a floor.
	ClusterRolloutPolicyLabel = Prefix + "cluster-rollout-policy-name"
)

// Annotations on a Propagation by which people steer the rollout of its object. They are
// there, and not on the object, because whoever may write the object need not be allowed
// to release it.
const (
	// PausedAnnotation "true" has no further cluster touched.
	PausedAnnotation = Prefix + "rollout-paused"
	// ApproveRolloutAnnotation approves what a rollout waits for; its value is
	// status.rollout.awaits.
	ApproveRolloutAnnotation = Prefix + "approve-rollout"
	// ResumeAnnotation has a halted or reverted rollout tried again; its value is
	// status.rollout.awaits.
	ResumeAnnotation = Prefix + "resume-rollout"
)

// RolloutPolicy says how a change of an object goes out: to which clusters first, when to
// go on, and what to do when it fails. An object of its namespace chooses it by the label
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

	// Spec says how a change goes out.
	Spec RolloutPolicySpec `json:"spec"`

	// Status says of which objects.
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

// ClusterRolloutPolicy is a RolloutPolicy for cluster-scoped objects, for objects of every
// namespace that name it, and for all objects of a Namespace that does.
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

	// Spec says how a change goes out.
	Spec ClusterRolloutPolicySpec `json:"spec"`

	// Status says of which objects.
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

// ClusterRolloutPolicySpec is a RolloutPolicySpec, and what a floor says besides.
type ClusterRolloutPolicySpec struct {
	RolloutPolicySpec `json:",inline"`

	// AllowNarrower is whether objects of a namespace that this is the floor of may name
	// another policy. Then both hold: the waves are those of the floor, and inside each
	// those of the object's policy. Otherwise the floor alone holds.
	// +optional
	AllowNarrower bool `json:"allowNarrower,omitempty"`
}

// RolloutPolicySpec says how a change goes out.
type RolloutPolicySpec struct {
	// Waves are the clusters that get a change together, in their order. A cluster is in the
	// first wave that takes it; those in none come last, in a wave of their own. A wave is
	// over when every cluster in it that can be reached is done.
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=name
	// +optional
	Waves []RolloutWave `json:"waves,omitempty"`

	// Health says when a cluster has failed.
	// +optional
	Health *RolloutHealth `json:"health,omitempty"`

	// OnFailure says what comes of clusters that fail.
	// +optional
	OnFailure *RolloutOnFailure `json:"onFailure,omitempty"`

	// Budgets bound how many clusters with one value of a label are not ready at any time
	// because of a change, over all waves.
	// +kubebuilder:validation:MaxItems=10
	// +listType=map
	// +listMapKey=label
	// +optional
	Budgets []RolloutBudget `json:"budgets,omitempty"`

	// MaxChange bounds what goes out without an approval.
	// +optional
	MaxChange *RolloutMaxChange `json:"maxChange,omitempty"`
}

// RolloutWave is a set of clusters that get a change together.
type RolloutWave struct {
	// Name of the wave.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// TargetClusters says which clusters are in it, as in a rule of an OverridePolicy.
	// Absent or empty, all that are in no wave before.
	// +optional
	TargetClusters *corev1alpha1.TargetClusters `json:"targetClusters,omitempty"`

	// Strategy is Rolling, or Manual to wait until somebody approves.
	// +kubebuilder:default=Rolling
	// +optional
	Strategy WaveStrategy `json:"strategy,omitempty"`

	// MaxConcurrent is how many clusters of the wave may have the change and not be done: a
	// number, or a percentage of the wave's clusters, of which it is at least one. Absent, all.
	// +kubebuilder:validation:XIntOrString
	// +optional
	MaxConcurrent *intstr.IntOrString `json:"maxConcurrent,omitempty"`

	// MinReadySeconds is for how many seconds a copy has to be ready with the new content,
	// without a break, until its cluster is done.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// WaveStrategy is whether a wave waits for an approval.
//
// +kubebuilder:validation:Enum=Rolling;Manual
type WaveStrategy string

// Whether a wave waits.
const (
	WaveRolling WaveStrategy = "Rolling"
	WaveManual  WaveStrategy = "Manual"
)

// RolloutHealth says when a cluster has failed.
type RolloutHealth struct {
	// TimeoutSeconds is after how many seconds a cluster has failed that is not ready.
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`

	// CEL is an expression that has to be true of the copy, as the cluster has it, beside what
	// its status says by itself: object.status.conditions.exists(c, c.type == 'SmokeTest' &&
	// c.status == 'True'). An error, as for a field that is not there, is not true. It is asked
	// while a rollout is under way. Of a Secret it sees neither values nor annotations.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	CEL string `json:"cel,omitempty"`
}

// RolloutOnFailure says what comes of clusters that fail.
type RolloutOnFailure struct {
	// MaxFailures is how many clusters may fail in a rollout before it is stopped.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxFailures int32 `json:"maxFailures,omitempty"`

	// Action is Halt, to touch no further cluster; or Revert, to bring every cluster back
	// to what it had.
	// +kubebuilder:default=Halt
	// +optional
	Action FailureAction `json:"action,omitempty"`
}

// FailureAction is what comes of a rollout that fails.
//
// +kubebuilder:validation:Enum=Halt;Revert
type FailureAction string

// What comes of a rollout that fails.
const (
	ActionHalt   FailureAction = "Halt"
	ActionRevert FailureAction = "Revert"
)

// RolloutBudget bounds how many clusters with one value of a label are not ready.
type RolloutBudget struct {
	// Label is the key of a label of clusters. One without it is in no such bound.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label"`

	// MaxUnavailable is how many clusters with one value of it may be not ready.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxUnavailable int32 `json:"maxUnavailable"`
}

// RolloutMaxChange bounds what goes out without an approval.
type RolloutMaxChange struct {
	// Clusters is how many may get another content without one.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Clusters int32 `json:"clusters"`
}

// RolloutPolicyStatus says of which objects a policy says how they change.
type RolloutPolicyStatus struct {
	// ObservedGeneration is the generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Objects is how many obey the policy.
	// +optional
	Objects int64 `json:"objects"`

	// Phases are how many of them stand where.
	// +optional
	Phases RolloutPhases `json:"phases"`

	// Conditions: Accepted says whether the policy is valid. One that is not has nothing
	// released.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutPhases count objects by where their rollout stands.
type RolloutPhases struct {
	// Progressing are those that change.
	Progressing int64 `json:"progressing"`
	// Waiting are those that wait for something.
	Waiting int64 `json:"waiting"`
	// Stopped are those that are halted or reverted, or are being reverted.
	Stopped int64 `json:"stopped"`
	// Complete are those that are everywhere as they should be.
	Complete int64 `json:"complete"`
}

// RolloutPhase is where the rollout of an object stands.
//
// +kubebuilder:validation:Enum=Progressing;Waiting;Halted;Reverting;Stalled;Reverted;Complete
type RolloutPhase string

// Where the rollout of an object stands.
const (
	RolloutProgressing RolloutPhase = "Progressing" // Clusters get the target.
	RolloutWaiting     RolloutPhase = "Waiting"     // It waits for what the message says.
	RolloutHalted      RolloutPhase = "Halted"      // Clusters failed; no other is touched.
	RolloutReverting   RolloutPhase = "Reverting"   // Clusters failed; all get back what they had.
	RolloutStalled     RolloutPhase = "Stalled"     // Clusters failed, and their former content is not stored, or they refuse it: an administrator has to act.
	RolloutReverted    RolloutPhase = "Reverted"    // All have it back that can be reached.
	RolloutComplete    RolloutPhase = "Complete"    // Every cluster has the target.
)

// Revision is what the content of an object was rendered from, at one time.
type Revision struct {
	// Name is the hash of the rest, but for generations. It begins with k if content that the role view
	// does not read is part of it: that goes into it by names that a key makes.
	Name string `json:"name"`
	// Generation of the object; 0 for kinds without one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Object is the name of the ControllerRevision that holds the object: in its namespace, or in the
	// system namespace for what the role view does not read.
	Object string `json:"object"`
	// Policies are the override policies, in their order of effect.
	// +optional
	// +listType=atomic
	Policies []PolicyRevision `json:"policies,omitempty"`
	// Followers are what travels with the object and changes with it, sorted: what it refers to
	// and obeys no rollout policy itself.
	// +optional
	// +listType=atomic
	Followers []FollowerRevision `json:"followers,omitempty"`
	// Allowed is whether it was found that the policies may have the object refer to what they
	// bring in.
	// +optional
	Allowed bool `json:"allowed,omitempty"`
}

// FollowerRevision is what travels with an object, as it was at one time.
type FollowerRevision struct {
	// Resource is its type, RESOURCE[.GROUP].
	Resource string `json:"resource"`
	// Name of it, in the namespace of the object.
	Name string `json:"name"`
	// Generation of it; 0 for kinds without one.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Object is the name of the ControllerRevision that holds it, where that of an object of its
	// kind is.
	Object string `json:"object"`
	// Policies are its override policies, in their order of effect.
	// +optional
	// +listType=atomic
	Policies []PolicyRevision `json:"policies,omitempty"`
}

// PolicyRevision is an override policy as it was at one time.
type PolicyRevision struct {
	PolicyReference `json:",inline"`

	// Revision is the name of the ControllerRevision that holds it: in the namespace of the object, or in the
	// system namespace for a policy without one.
	Revision string `json:"revision"`
}

// ObeyedPolicy is a rollout policy as it was at one time.
type ObeyedPolicy struct {
	PolicyReference `json:",inline"`

	// UID of the policy. A policy of the same name and generation with another UID is another policy: the rollout begins
	// at the first wave again.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// RolloutStatus is how far a change of an object has come. What of it decides which cluster
// has which revision is written before any cluster is touched.
type RolloutStatus struct {
	// Policies are the rollout policies that it obeys: the floor of the namespace first.
	// +optional
	// +listType=atomic
	Policies []ObeyedPolicy `json:"policies,omitempty"`

	// UID of the object that it is about; another of the name begins anew.
	// +optional
	UID types.UID `json:"uid,omitempty"`

	// Phase is where it stands.
	Phase RolloutPhase `json:"phase"`

	// Message says what it waits for, or why it was stopped.
	// +optional
	Message string `json:"message,omitempty"`

	// Awaits is the value that an annotation has to have by which somebody approves what it
	// waits for, or has it tried again.
	// +optional
	Awaits string `json:"awaits,omitempty"`

	// Target is what all clusters are to get.
	Target Revision `json:"target"`

	// LastGood is what every cluster had when a rollout was complete for the last time. A
	// cluster that is in none of the lists below has that; the target if the phase is Complete. If
	// its name is "found", there is no record of it: each cluster keeps its present content.
	LastGood Revision `json:"lastGood"`

	// Superseded is a target before this one that some clusters got.
	// +optional
	Superseded *Revision `json:"superseded,omitempty"`

	// Attempt counts the rollouts of the object, and how often one was tried again.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// Nonce is a random part of what Awaits says. Each attempt has its own, and each approval that is
	// used replaces it. So an approval cannot be given in advance, or used twice.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Nonce string `json:"nonce,omitempty"`

	// Opened is how many waves may have the target.
	// +optional
	Opened int32 `json:"opened,omitempty"`

	// Began is when the target became that.
	// +optional
	Began *metav1.MicroTime `json:"began,omitempty"`

	// Waves are a line for each wave that has clusters whose content the target changes.
	// +optional
	// +listType=atomic
	Waves []WaveStatus `json:"waves,omitempty"`

	// Current are clusters that have the target and are not done.
	// +optional
	// +listType=atomic
	Current []ReleasedCluster `json:"current,omitempty"`

	// Done are clusters that have the target and are done, sorted.
	// +optional
	// +listType=atomic
	Done []string `json:"done,omitempty"`

	// Failed are clusters that have the target and failed, by name. While a rollout is reverted, and
	// then, they are those that failed.
	// +optional
	// +listType=atomic
	Failed []FailedCluster `json:"failed,omitempty"`

	// OnSuperseded are clusters that have the superseded target, sorted.
	// +optional
	// +listType=atomic
	OnSuperseded []string `json:"onSuperseded,omitempty"`

	// Reverting are clusters that had a target and have not got back the last good revision yet, sorted.
	// +optional
	// +listType=atomic
	Reverting []string `json:"reverting,omitempty"`

	// Offline are clusters that are skipped as they cannot be reached, sorted.
	// +optional
	// +listType=atomic
	Offline []string `json:"offline,omitempty"`
}

// WaveStatus is how far a wave has come.
type WaveStatus struct {
	// Name of the wave; of the floor's and the object's with a slash between them where both
	// hold. Empty for the clusters that are in none.
	// +optional
	Name string `json:"name,omitempty"`
	// Clusters is how many clusters it has whose content the target changes.
	Clusters int32 `json:"clusters"`
	// Done is how many of them are done.
	// +optional
	Done int32 `json:"done,omitempty"`
	// Failed is how many of them have failed.
	// +optional
	Failed int32 `json:"failed,omitempty"`
	// Since is when it began.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
}

// ReleasedCluster is a cluster that has the target and is not done.
type ReleasedCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Since is when the time began that it has to become ready in; absent while the cluster
	// cannot be reached.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Ready is since when its copy has been ready with the target's content.
	// +optional
	Ready *metav1.MicroTime `json:"ready,omitempty"`
}

// FailedCluster is a cluster that failed.
type FailedCluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Message says why; absent beyond the first clusters.
	// +optional
	Message string `json:"message,omitempty"`
}
