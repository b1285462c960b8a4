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
)

// ServiceInjectionPolicy says what the consumers of a service need: environment
// variables, volumes and mounts, which pods of its namespace that carry certain
// labels get when they are created. Pods that are there already are recreated by
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

	// Spec says what is injected into which pods.
	Spec ServiceInjectionPolicySpec `json:"spec"`

	// Status says which pods have it.
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

// ServiceInjectionPolicySpec says what is injected into which pods. The first six
// fields are those of the proposal.
//
// +kubebuilder:validation:XValidation:rule="has(self.service) == has(oldSelf.service) && (!has(self.service) || self.service == oldSelf.service)",message="service is immutable: delete the policy and create another"
// +kubebuilder:validation:XValidation:rule="(has(self.env) && size(self.env) > 0) || (has(self.envFrom) && size(self.envFrom) > 0) || (has(self.volumes) && size(self.volumes) > 0) || (has(self.volumeMounts) && size(self.volumeMounts) > 0) || (has(self.implicit) && self.implicit)",message="there must be at least one of env, envFrom, volumes and volumeMounts, or a service with implicit: true"
// +kubebuilder:validation:XValidation:rule="!has(self.implicit) || !self.implicit || has(self.service)",message="implicit: true needs a service, whose annotations say what to inject"
type ServiceInjectionPolicySpec struct {
	// Service is the name of the Service of the namespace that the pods consume. It
	// names the annotation that says so on a pod, and need not exist unless implicit
	// is true. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Service string `json:"service,omitempty"`

	// Selector chooses pods of the policy's namespace by their labels; {} chooses all
	// of them. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="selector is immutable: delete the policy and create another"
	Selector *metav1.LabelSelector `json:"selector"`

	// Env is appended to the environment variables of every chosen container.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`

	// EnvFrom is appended to the sources of environment variables of every chosen
	// container.
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

	// VolumeMounts is appended to the mounts of every chosen container. Each names a
	// volume of this policy or of the pod.
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=mountPath
	// +optional
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// Containers chooses containers of a pod; absent, all but ephemeral ones.
	// +optional
	Containers *ContainerScope `json:"containers,omitempty"`

	// EnvPosition is where env goes: Append behind the variables of the container, or
	// Prepend before them, so that they can use these as $(NAME).
	// +kubebuilder:default=Append
	// +optional
	EnvPosition EnvPosition `json:"envPosition,omitempty"`

	// OnConflict is what becomes of a pod that says something else than the policy
	// about one of its items: Skip leaves the whole policy out for it, Reject refuses
	// it.
	// +kubebuilder:default=Skip
	// +optional
	OnConflict OnConflict `json:"onConflict,omitempty"`

	// Mode is Enforce, or Audit to have reported what would be injected, and nothing
	// changed.
	// +kubebuilder:default=Enforce
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// Implicit takes over what the annotations of the Service say, too. What stands
	// here wins over what comes from there by the same name.
	// +optional
	Implicit bool `json:"implicit,omitempty"`

	// Rollout says how pods that are there already are recreated.
	// +kubebuilder:default={}
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`
}

// The rule stands apart because gofmt makes one quote of the two in a doc comment.
//
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.value) || self.value == ''",message="value and valueFrom exclude each other"

// EnvVar is an environment variable, as in a container.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// Value is the value; $(NAME) stands for that of a variable before it. A number
	// without quotes is taken for its text.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Value EnvValue `json:"value,omitempty"`

	// ValueFrom is where the value comes from.
	// +optional
	ValueFrom *corev1.EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvValue is a text for which a whole number may stand in a manifest.
type EnvValue string

// mostExact is the greatest whole number that no program on the way rounds: many read
// numbers as float64.
const mostExact = 1<<53 - 1

// number is what JSON takes for one; whole is one that is written out.
var (
	number = regexp.MustCompile(`^-?[0-9]`)
	whole  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// UnmarshalJSON takes a string, or a whole number for its digits. A number that may
// have been rounded on its way is refused: nobody knows its digits any more.
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

// beyond reports whether a number of JSON may have been rounded to a whole one.
func beyond(text string) bool {
	f, err := strconv.ParseFloat(text, 64)
	return err != nil || math.Abs(f) > mostExact
}

// ContainerScope chooses containers of a pod by their names, in which * stands
// for any characters, and by their kind.
type ContainerScope struct {
	// Include are the names of containers to choose; empty means all.
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	// +optional
	Include []string `json:"include,omitempty"`

	// Exclude are names of containers to leave out of those.
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	// +optional
	Exclude []string `json:"exclude,omitempty"`

	// InitContainers is whether init containers, sidecars among them, are chosen like
	// others; absent means they are.
	// +kubebuilder:default=true
	// +optional
	InitContainers *bool `json:"initContainers,omitempty"`

	// EphemeralContainers is whether containers for debugging are, which are added to
	// a pod that runs.
	// +optional
	EphemeralContainers bool `json:"ephemeralContainers,omitempty"`
}

// EnvPosition is where environment variables are injected.
//
// +kubebuilder:validation:Enum=Append;Prepend
type EnvPosition string

// Where environment variables are injected.
const (
	EnvAppend  EnvPosition = "Append"
	EnvPrepend EnvPosition = "Prepend"
)

// OnConflict is what becomes of a pod that conflicts with a policy.
//
// +kubebuilder:validation:Enum=Skip;Reject
type OnConflict string

// What becomes of a pod that conflicts.
const (
	ConflictSkip   OnConflict = "Skip"
	ConflictReject OnConflict = "Reject"
)

// Mode is whether a policy takes effect.
//
// +kubebuilder:validation:Enum=Enforce;Audit
type Mode string

// Whether a policy takes effect.
const (
	ModeEnforce Mode = "Enforce"
	ModeAudit   Mode = "Audit"
)

// Rollout says how existing pods are recreated.
type Rollout struct {
	// Strategy is Rolling; Manual, to wait until somebody approves; or None.
	// +kubebuilder:default=Rolling
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// MaxConcurrent is how many workloads are rolled at a time, once the first of them
	// is available again.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrent int32 `json:"maxConcurrent,omitempty"`

	// MinReadySeconds is for how many seconds a workload has to be available before
	// the next is touched.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// RolloutStrategy is how existing pods are recreated.
//
// +kubebuilder:validation:Enum=Rolling;Manual;None
type RolloutStrategy string

// How existing pods are recreated.
const (
	RolloutRolling RolloutStrategy = "Rolling"
	RolloutManual  RolloutStrategy = "Manual"
	RolloutNone    RolloutStrategy = "None"
)

// InjectedItems are what is injected.
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

// ServiceInjectionPolicyStatus says which pods have what the policy injects.
type ServiceInjectionPolicyStatus struct {
	// ObservedGeneration is the generation that the rest is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Hash is of what the policy injects. It changes with that and with nothing else.
	// +optional
	Hash string `json:"hash,omitempty"`

	// Effective is what is injected in the end, if implicit is true: what stands in
	// the spec, completed by the Service's annotations.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Effective *InjectedItems `json:"effective,omitempty"`

	// FromService is what the Service's annotations say, if implicit is true.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	FromService *InjectedItems `json:"fromService,omitempty"`

	// Matched is how many pods the selector chooses that have not ended. All counts
	// below are of these.
	// +optional
	Matched int32 `json:"matched"`
	// Injected is how many have what the policy injects.
	// +optional
	Injected int32 `json:"injected"`
	// Stale is how many do not have it and would if they were created now.
	// +optional
	Stale int32 `json:"stale"`
	// Skipped is how many the policy is left out for: they conflict with it.
	// +optional
	Skipped int32 `json:"skipped"`
	// Excluded is how many have opted out.
	// +optional
	Excluded int32 `json:"excluded"`
	// Manual is how many of the stale ones nobody recreates but their owner: bare
	// pods, those of Jobs, and those of workloads that wait for their owner.
	// +optional
	Manual int32 `json:"manual"`

	// Workloads names those that need attention, the worst first.
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Workloads []WorkloadStatus `json:"workloads,omitempty"`

	// Rollout is how far the recreation of pods has come.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Conditions are Accepted, whether the policy is in effect; ServiceFound, for
	// implicit; ReferencesResolved, whether what it names exists; RolledOut, whether
	// all pods have it that should.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadStatus is a workload some of whose pods do not have what the policy
// injects, and why.
type WorkloadStatus struct {
	// Kind of the workload; Pod for one that nothing owns.
	Kind string `json:"kind"`
	// Name of the workload.
	Name string `json:"name"`
	// Pods is how many this is about.
	Pods int32 `json:"pods"`
	// Reason is one word, as in a condition.
	Reason string `json:"reason"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutStatus is how far the recreation of pods has come.
type RolloutStatus struct {
	// Hash is the policy's with which the rollout is done.
	Hash string `json:"hash"`
	// Phase is where it stands.
	Phase RolloutPhase `json:"phase"`
	// Workloads is how many there are to be rolled or were rolled with this hash.
	Workloads int32 `json:"workloads"`
	// Done is how many of them are.
	Done int32 `json:"done"`
	// Current are those that roll now, KIND/NAME.
	// +listType=atomic
	// +optional
	Current []string `json:"current,omitempty"`
	// Message says why the rollout does not go on, if it does not.
	// +optional
	Message string `json:"message,omitempty"`
}

// RolloutPhase is where a rollout stands.
//
// +kubebuilder:validation:Enum=Pending;Blocked;Canary;Rolling;Paused;Halted;AwaitingApproval;Complete
type RolloutPhase string

// Where a rollout stands.
const (
	PhasePending          RolloutPhase = "Pending"          // Not begun: pods are being looked at.
	PhaseBlocked          RolloutPhase = "Blocked"          // Something must be there first; nothing was touched.
	PhaseCanary           RolloutPhase = "Canary"           // The first workload rolls.
	PhaseRolling          RolloutPhase = "Rolling"          // The others do.
	PhasePaused           RolloutPhase = "Paused"           // Somebody has paused it.
	PhaseHalted           RolloutPhase = "Halted"           // A workload did not come up again.
	PhaseAwaitingApproval RolloutPhase = "AwaitingApproval" // The strategy is Manual.
	PhaseComplete         RolloutPhase = "Complete"         // Nothing is left to be done.
)

// Conditions of a policy.
const (
	ConditionAccepted           = "Accepted"
	ConditionServiceFound       = "ServiceFound"
	ConditionReferencesResolved = "ReferencesResolved"
	ConditionRolledOut          = "RolledOut"
)
