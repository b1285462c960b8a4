// Package inject applies ServiceInjectionPolicies to pods. Its input is compiled policies and the JSON of a pod. Its
// output is a JSON patch with only "add" operations, and a report. The report has the additions of each policy, and the
// reason for each skipped policy.
//
// The pod is never decoded into Go types, so the package preserves fields that it does not know. The result depends
// only on the pod and the policies, not on the order of the arguments. A second injection into the same pod adds
// nothing.
package inject

import (
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
)

// Reasons for skipping a policy whose selector matches the pod.
const (
	ReasonEnvConflict     = "EnvConflict"     // A container has another value of a variable.
	ReasonEnvFromConflict = "EnvFromConflict" // A container uses the same source with other settings.
	ReasonVolumeConflict  = "VolumeConflict"  // The pod has another volume of the same name.
	ReasonMountConflict   = "MountConflict"   // A container has another mount at the same path.
	ReasonVolumeMissing   = "VolumeMissing"   // Neither the policy nor the pod has the volume of a mount.
	ReasonNoContainer     = "NoContainer"     // The pod has no container that the policy chooses.
	ReasonAudit           = "Audit"           // The policy's mode is Audit.
	ReasonOptedOut        = "OptedOut"        // An annotation opts the pod out.
	ReasonMirrorPod       = "MirrorPod"       // The pod is a mirror pod: a kubelet created it from a file.
	ReasonUnsupported     = "Unsupported"     // An ephemeral container cannot have the item.
	ReasonTooMuchWork     = "TooMuchWork"     // The pod and its policies exceed the work limit of a pod.
	ReasonTooLarge        = "TooLarge"        // The pod would be too large to be stored.
	ReasonNoRecord        = "NoRecord"        // The pod has no record, so its items may be from an earlier generation of the policy.
)

// Applied is a policy that applies to a pod, with its additions. The lists do not contain items that the pod already
// had.
type Applied struct {
	Policy *Policy
	// Env, EnvFrom and Mounts name the additions to containers. Volumes names the additions to the pod. Each list has
	// each name once, in the order of the policy. A name in EnvFrom is PREFIX:KIND/NAME, and a name in Mounts is a
	// path.
	Env, EnvFrom, Volumes, Mounts []string
	// Containers are the names of the containers that have the items of the policy, in the order of the pod. It is nil
	// if all containers and init containers have them.
	Containers []string
}

// Skipped is a policy that was skipped for a pod.
type Skipped struct {
	Policy *Policy
	// Reason is one of the constants of this package.
	Reason string
	// Message describes the cause and its place for users.
	Message string
	// Path is the JSON pointer to the place in the pod that conflicts; may be empty.
	Path string
}

// Result is the result of an injection into a pod.
type Result struct {
	// Patch is a JSON patch (RFC 6902) that has only "add" operations, and always applies to the given pod. It is nil
	// without additions.
	Patch []byte
	// Hash covers the policies that apply to the pod and the content that they inject; empty if no policy applies.
	Hash string
	// TemplateHash is the pod's annotation refract.dev/injection-hash, which comes from its pod template; empty if the
	// pod has no such annotation.
	TemplateHash string
	// Applied are the policies that apply, in the order of application.
	Applied []Applied
	// Skipped are the policies that do not apply, in the order of application. It includes policies of the mode Audit:
	// one that would apply has ReasonAudit, and its message lists the additions.
	Skipped []Skipped
	// Rejected is the reason to reject the pod: it conflicts with a policy whose onConflict is Reject. If Rejected is
	// not nil, Skipped also contains it, and Patch and Applied are nil.
	Rejected *Skipped
	// Changes are the individual additions, in the order of the patch, each with its policy. Only [Set.Explain] fills
	// them.
	Changes []tree.Change
}

// State is the state of a pod for one policy.
type State string

// States of a running pod for a policy that selects it.
const (
	// StateInjected: the pod has the items of the policy, injected by the policy or from its own manifest.
	StateInjected State = "Injected"
	// StateStale: a pod that is created now would get other items.
	StateStale State = "Stale"
	// StateSkipped: the policy is skipped for the pod.
	StateSkipped State = "Skipped"
	// StateExcluded: the pod has opted out or is a mirror pod.
	StateExcluded State = "Excluded"
)

// PodStatus is the status of a pod for one policy that selects it.
type PodStatus struct {
	Policy *Policy
	State  State
	// Reason and Message explain every state except StateInjected.
	Reason, Message string
}

// Examination is the status of a running pod for the policies of its namespace.
type Examination struct {
	// Hash is the hash that a new pod would get, without the recorded additions. Recorded is the hash in the pod's
	// record; empty without a record.
	Hash, Recorded string
	// Statuses has one entry for each policy that selects the pod, in the order of application.
	Statuses []PodStatus
}

// Stale reports whether a new pod would get other items. Items of a deleted policy do not make a pod stale, because
// nothing is removed from running pods.
func (e *Examination) Stale() bool {
	for i := range e.Statuses {
		if e.Statuses[i].State == StateStale {
			return true
		}
	}
	return false
}

// Record is the annotation refract.dev/injection of a pod.
type Record struct {
	// Version is the version of the format, 1.
	Version int `json:"v"`
	// Hash is the Hash of [Result].
	Hash string `json:"hash"`
	// Containers are the names of the containers and init containers at the time of the injection, if a policy applied.
	// All other containers of the pod were added by later webhooks.
	Containers []string `json:"c,omitempty"`
	// Applied are the policies that applied, with their additions.
	Applied []RecordApplied `json:"applied,omitempty"`
	// Skipped are the policies that were skipped.
	Skipped []RecordSkipped `json:"skipped,omitempty"`
	// Trimmed is true if the lists were left out of the record, because all annotations together must not exceed 256
	// KiB.
	Trimmed bool `json:"trimmed,omitempty"`
}

// RecordApplied is a policy of a [Record] that applied.
type RecordApplied struct {
	Policy     string   `json:"p"`
	Generation int64    `json:"gen,omitempty"`
	Hash       string   `json:"h"`
	Env        []string `json:"env,omitempty"`
	EnvFrom    []string `json:"from,omitempty"`
	Volumes    []string `json:"vol,omitempty"`
	Mounts     []string `json:"mnt,omitempty"`
	// Containers are the names of the containers that have the policy's items; empty if all have them.
	Containers []string `json:"in,omitempty"`
	// Had are exceptions to the lists above: listed items that a container already had, so that the policy added them
	// only to other containers. Each has the form CONTAINER:env:NAME, CONTAINER:volumeMounts:PATH and so on.
	Had []string `json:"had,omitempty"`
}

// RecordSkipped is a policy of a [Record] that was skipped.
type RecordSkipped struct {
	Policy  string `json:"p"`
	Reason  string `json:"r"`
	Message string `json:"why,omitempty"`
}

// kind is the kind of the policies.
const kind = refractv1beta1.KindServiceInjectionPolicy
