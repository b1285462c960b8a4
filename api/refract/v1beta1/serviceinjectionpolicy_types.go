package v1beta1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ServiceInjectionPolicy lists the environment variables, volumes and mounts that the consumers of a service need. Pods
// of its namespace that the selector matches get these items when they are created. Existing pods are recreated by
// their own controllers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=serviceinjectionpolicies,shortName=sip
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matched`
// +kubebuilder:printcolumn:name="Injected",type=integer,JSONPath=`.status.injected`
// +kubebuilder:printcolumn:name="Stale",type=integer,JSONPath=`.status.stale`
// +kubebuilder:printcolumn:name="Skipped",type=integer,JSONPath=`.status.skipped`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Excluded",type=integer,priority=1,JSONPath=`.status.excluded`
// +kubebuilder:printcolumn:name="Manual",type=integer,priority=1,JSONPath=`.status.manual`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="RolledOut")].message`
type ServiceInjectionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects pods and lists the injected items.
	Spec ServiceInjectionPolicySpec `json:"spec"`

	// Status counts the pods by their state of injection.
	// +optional
	Status ServiceInjectionPolicyStatus `json:"status,omitempty"`
}

// ServiceInjectionPolicyList is a list of ServiceInjectionPolicy.
//
// +kubebuilder:object:root=true
type ServiceInjectionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// Items are the policies.
	Items []ServiceInjectionPolicy `json:"items"`
}

// ServiceInjectionPolicySpec selects pods and lists the injected items. The first six fields are those of the proposal.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) == has(oldSelf.service) && (!has(self.service) || self.service == oldSelf.service)",message="service is immutable: delete the policy and create another"
// +kubebuilder:validation:XValidation:rule="(has(self.env) && size(self.env) > 0) || (has(self.envFrom) && size(self.envFrom) > 0) || (has(self.volumes) && size(self.volumes) > 0) || (has(self.volumeMounts) && size(self.volumeMounts) > 0) || (has(self.implicit) && self.implicit)",message="there must be at least one of env, envFrom, volumes and volumeMounts, or a service with implicit: true"
// +kubebuilder:validation:XValidation:rule="!has(self.implicit) || !self.implicit || has(self.service)",message="implicit: true needs a service, whose annotations say what to inject"
type ServiceInjectionPolicySpec struct {
	// Service is the name of the Service in the namespace that the pods consume. It is a part of the key of an
	// annotation on injected pods. The Service must exist only if implicit is true. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Service string `json:"service,omitempty"`

	// Selector selects pods of the policy's namespace by their labels; {} selects all. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="selector is immutable: delete the policy and create another"
	Selector *metav1.LabelSelector `json:"selector"`

	// Env is appended to the environment variables of every selected container.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// EnvFrom is appended to the sources of environment variables of every selected container.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`

	// Volumes is appended to the volumes of the pod.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// VolumeMounts is appended to the mounts of every selected container. Each mount names a volume of this policy or
	// of the pod.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=mountPath
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// Containers selects containers of a pod; absent means all except ephemeral containers.
	// +optional
	Containers *ContainerScope `json:"containers,omitempty"`

	// EnvPosition is the position of env: Append adds it after the variables of the container; Prepend adds it before
	// them, so that they can refer to it as $(NAME).
	// +kubebuilder:default=Append
	// +optional
	EnvPosition EnvPosition `json:"envPosition,omitempty"`

	// OnConflict is the treatment of a pod that conflicts with an item of the policy: Skip does not apply the policy to
	// this pod; Reject rejects the pod.
	// +kubebuilder:default=Skip
	// +optional
	OnConflict OnConflict `json:"onConflict,omitempty"`

	// Mode is Enforce, or Audit to report the items that would be injected without changing pods.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// Implicit also injects the items in the annotations of the Service. Items of the policy take precedence over items
	// of the same name from the Service.
	// +optional
	Implicit bool `json:"implicit,omitempty"`

	// Rollout controls the recreation of existing pods.
	// +kubebuilder:default={}
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`
}

// This rule is separate because gofmt would replace its two quotes by one in a doc comment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.value) || self.value == ''",message="value and valueFrom exclude each other"

// EnvVar is an environment variable, as in a container.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Value is the value. $(NAME) refers to the value of a previous variable. A number without quotes is accepted as
	// its digits.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Value EnvValue `json:"value,omitempty"`

	// ValueFrom is the source of the value.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvValue is a string. A manifest may contain a whole number without quotes instead.
type EnvValue string

// mostExact is the largest whole number that every program between user and API server represents exactly: many read
// numbers as float64.
const mostExact = 1<<53 - 1

// number matches the start of a JSON number, whole a whole number without exponent.
var (
	number = regexp.MustCompile(`^-?[0-9]`)
	whole  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// UnmarshalJSON accepts a string, or a whole number, whose digits it keeps. It rejects a number that another program
// may have rounded, because its original digits are unknown.
func (v *EnvValue) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if number.Match(data) {
		exact, err := strconv.ParseInt(string(data), 10, 64)
		switch {
		case err == nil && -mostExact <= exact && exact <= mostExact && whole.Match(data):
			*v = EnvValue(data)
			return nil
		case beyond(string(data)):
			return fmt.Errorf("put quotes around the number: it is beyond ±%d, and digits of such may be lost on the way, got %s", mostExact, data)
		}
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("want a string or a whole number, got %s", data)
	}
	*v = EnvValue(text)
	return nil
}

// beyond reports whether a JSON number is outside of ±mostExact. Another program may have rounded such a number.
func beyond(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	return err != nil || math.Abs(f) > mostExact
}

// ContainerScope selects containers of a pod by their names and types. A name may contain the wildcard *, which matches
// any number of characters.
type ContainerScope struct {
	// Include are the names of the selected containers; empty means all.
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	// +optional
	Include []string `json:"include,omitempty"`

	// Exclude are the names of containers that are not selected.
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// InitContainers selects init containers, including sidecars, like other containers. Absent means true.
	// +kubebuilder:default=true
	// +optional
	InitContainers *bool `json:"initContainers,omitempty"`

	// EphemeralContainers also selects ephemeral containers, which are added to running pods for debugging.
	// +optional
	EphemeralContainers bool `json:"ephemeralContainers,omitempty"`
}

// EnvPosition is the position of injected environment variables.
//
// +kubebuilder:validation:Enum=Append;Prepend
type EnvPosition string

// Positions of injected environment variables.
const (
	EnvAppend  EnvPosition = "Append"
	EnvPrepend EnvPosition = "Prepend"
)

// OnConflict is the treatment of pods that conflict with a policy.
//
// +kubebuilder:validation:Enum=Skip;Reject
type OnConflict string

// Treatments of pods that conflict.
const (
	ConflictSkip   OnConflict = "Skip"
	ConflictReject OnConflict = "Reject"
)

// Mode decides whether a policy changes pods.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type Mode string

// Modes of a policy.
const (
	ModeEnforce Mode = "Enforce"
	ModeAudit   Mode = "Audit"
)

// Rollout controls the recreation of existing pods.
type Rollout struct {
	// Strategy is Rolling, Manual to wait for an approval, or None.
	// +kubebuilder:default=Rolling
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// MaxConcurrent is the maximum number of workloads that are recreated at a time, after the first of them is
	// available again.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`

	// MinReadySeconds is the number of seconds for which a workload must be available before the next one is recreated.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// RolloutStrategy is the strategy for the recreation of existing pods.
//
// +kubebuilder:validation:Enum=Rolling;Manual;None
type RolloutStrategy string

// Strategies to recreate existing pods.
const (
	RolloutRolling RolloutStrategy = "Rolling"
	RolloutManual  RolloutStrategy = "Manual"
	RolloutNone    RolloutStrategy = "None"
)

// InjectedItems are the items that are injected.
type InjectedItems struct {
	// Env are environment variables.
	// +listType=atomic
	// +optional
	Env []EnvVar `json:"env,omitempty"`
	// EnvFrom are sources of environment variables.
	// +listType=atomic
	// +optional
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Volumes are volumes of the pod.
	// +listType=atomic
	// +optional
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// VolumeMounts are mounts of the containers.
	// +listType=atomic
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// ServiceInjectionPolicyStatus counts the pods by their state of injection.
type ServiceInjectionPolicyStatus struct {
	// ObservedGeneration is the generation of the policy that the status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Hash is the hash of the injected items. It changes only with these.
	// +optional
	Hash string `json:"hash,omitempty"`

	// Effective lists the items that are injected if implicit is true: those of the spec and those of the Service's
	// annotations.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Effective *InjectedItems `json:"effective,omitempty"`

	// FromService lists the items of the Service's annotations if implicit is true.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	FromService *InjectedItems `json:"fromService,omitempty"`

	// Matched is the number of selected pods that have not ended. The counts below are parts of it.
	// +optional
	Matched int32 `json:"matched"`
	// Injected is the number of pods that have the items of the policy.
	// +optional
	Injected int32 `json:"injected"`
	// Stale is the number of pods that lack the items, and would get them if they were created now.
	// +optional
	Stale int32 `json:"stale"`
	// Skipped is the number of pods that the policy is not applied to because they conflict with it.
	// +optional
	Skipped int32 `json:"skipped"`
	// Excluded is the number of pods that have opted out.
	// +optional
	Excluded int32 `json:"excluded"`
	// Manual is the number of stale pods that only their owner recreates: bare pods, pods of Jobs, and pods of
	// workloads that wait for their owner.
	// +optional
	Manual int32 `json:"manual"`

	// Workloads lists the workloads that need attention, the worst first.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Workloads []WorkloadStatus `json:"workloads,omitempty"`

	// Rollout is the progress of the recreation of pods.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Conditions: Accepted is True if the policy is in effect; ServiceFound, only with implicit, if the Service exists;
	// ReferencesResolved if all referenced objects exist; RolledOut if all pods that should have the items have them.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadStatus is a workload with pods that lack the items of the policy, and the reason.
type WorkloadStatus struct {
	// Kind of the workload; Pod for a pod without owner.
	Kind string `json:"kind"`
	// Name of the workload.
	Name string `json:"name"`
	// Pods is the number of these pods.
	Pods int32 `json:"pods"`
	// Reason is one word, as in a condition.
	Reason string `json:"reason"`
	// Message is an explanation for users.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutStatus is the progress of the recreation of pods.
type RolloutStatus struct {
	// Hash of the policy during this rollout.
	Hash string `json:"hash"`
	// Phase of the rollout.
	Phase RolloutPhase `json:"phase"`
	// Workloads is the number of workloads that are to be recreated, or were recreated with this hash.
	Workloads int32 `json:"workloads"`
	// Done is the number of these workloads that have been recreated.
	Done int32 `json:"done"`
	// Current lists the workloads that are being recreated, as KIND/NAME.
	// +listType=atomic
	// +optional
	Current []string `json:"current,omitempty"`
	// Evicted lists the workloads in current whose pods are evicted one by one because Refract does not know their kind.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Evicted []EvictedWorkload `json:"evicted,omitempty"`
	// Message is the reason why the rollout does not advance, if it does not.
	// +optional
	Message string `json:"message,omitempty"`
}

// MaxEvicted is the maximum length of [RolloutStatus.Evicted]. It is the highest value of [Rollout.MaxConcurrent].
const MaxEvicted = 1000

// EvictedWorkload is a workload of a kind that Refract does not know, with the number of its pods before the last
// eviction. The next pod is evicted when it has as many again.
type EvictedWorkload struct {
	// APIVersion of the workload.
	APIVersion string `json:"apiVersion"`
	// Kind of the workload.
	Kind string `json:"kind"`
	// Name of the workload.
	Name string `json:"name"`
	// UID of the workload.
	UID types.UID `json:"uid"`
	// Pods is the number of its pods before the last eviction.
	Pods int32 `json:"pods"`
}

// RolloutPhase is the phase of a rollout.
//
// +kubebuilder:validation:Enum=Pending;Blocked;Canary;Rolling;Paused;Halted;AwaitingApproval;Complete
type RolloutPhase string

// Phases of a rollout.
const (
	PhasePending          RolloutPhase = "Pending"          // Not begun: the controller is examining the pods.
	PhaseBlocked          RolloutPhase = "Blocked"          // A precondition is missing; nothing has been changed.
	PhaseCanary           RolloutPhase = "Canary"           // The first workload is being recreated.
	PhaseRolling          RolloutPhase = "Rolling"          // The other workloads are being recreated.
	PhasePaused           RolloutPhase = "Paused"           // A user has paused the rollout.
	PhaseHalted           RolloutPhase = "Halted"           // A workload did not become available again.
	PhaseAwaitingApproval RolloutPhase = "AwaitingApproval" // The strategy is Manual, and an approval is missing.
	PhaseComplete         RolloutPhase = "Complete"         // No workload remains.
)

// Conditions of a policy.
const (
	ConditionAccepted           = "Accepted"
	ConditionServiceFound       = "ServiceFound"
	ConditionReferencesResolved = "ReferencesResolved"
	ConditionRolledOut          = "RolledOut"
)
