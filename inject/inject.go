// Package inject gives pods what the consumers of a service need, as
// ServiceInjectionPolicies say: compiled policies and the JSON of a pod go in; a
// JSON patch of additions alone, and a report of who added what and why the rest
// was left out, come out.
//
// The pod is never decoded into types, so that fields which this package does not
// know survive. The same pod and policies always give the same answer, whatever
// order the policies are given in; injecting into a pod that was injected already
// adds nothing.
package inject

import (
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
)

// Why a policy is left out for a pod that its selector chooses.
const (
	ReasonEnvConflict     = "EnvConflict"     // A container has another value of a variable.
	ReasonEnvFromConflict = "EnvFromConflict" // A container takes the same source otherwise.
	ReasonVolumeConflict  = "VolumeConflict"  // The pod has another volume of the name.
	ReasonMountConflict   = "MountConflict"   // A container has something else mounted there.
	ReasonVolumeMissing   = "VolumeMissing"   // Neither policy nor pod has the volume of a mount.
	ReasonNoContainer     = "NoContainer"     // The policy chooses none of the pod's containers.
	ReasonAudit           = "Audit"           // The policy's mode is Audit.
	ReasonOptedOut        = "OptedOut"        // An annotation of the pod says so.
	ReasonMirrorPod       = "MirrorPod"       // A kubelet made the pod, not the API server.
	ReasonUnsupported     = "Unsupported"     // An ephemeral container cannot have it.
	ReasonTooMuchWork     = "TooMuchWork"     // All policies together are more than a pod may be.
	ReasonTooLarge        = "TooLarge"        // The pod would be too large to be stored.
	ReasonNoRecord        = "NoRecord"        // What the pod has may be of another generation.
)

// Applied is a policy that holds for a pod, and what it added. What the pod had
// already is not in the lists.
type Applied struct {
	Policy *Policy
	// Env, EnvFrom and Mounts name what was added to containers, Volumes what was
	// added to the pod; each once, in the order of the policy. EnvFrom are
	// PREFIX:KIND/NAME, Mounts are paths.
	Env, EnvFrom, Volumes, Mounts []string
	// Containers name those that have what the policy injects, in the order of the pod;
	// nil if all of its containers and init containers do.
	Containers []string
}

// Skipped is a policy that was left out for a pod.
type Skipped struct {
	Policy *Policy
	// Reason is one of the constants of this package.
	Reason string
	// Message says what, and where, for people.
	Message string
	// Path is the JSON pointer of the place in the pod that is in the way; may be
	// empty.
	Path string
}

// Result is what becomes of a pod.
type Result struct {
	// Patch is a JSON patch (RFC 6902) of operations "add" alone, which cannot fail on
	// the pod it was made for; nil if there is nothing to add.
	Patch []byte
	// Hash is of the policies that hold for the pod and of what they inject; empty if
	// none does.
	Hash string
	// TemplateHash is what the annotation refract.dev/injection-hash of the pod says,
	// which it has from the template it was made of; empty if it has none.
	TemplateHash string
	// Applied are the policies that hold, in the order of application.
	Applied []Applied
	// Skipped are those that do not, in the same order. Those of the mode Audit that
	// would hold are among them, with ReasonAudit and a message that says what they
	// would add.
	Skipped []Skipped
	// Rejected is why the pod is to be refused: a conflict with a policy whose
	// onConflict is Reject; it is among Skipped, too. Patch and Applied are nil then. Nil if the pod is not to be refused.
	Rejected *Skipped
	// Changes are the additions one by one, in the order of the patch, each with its
	// policy. Filled by [Set.Explain] alone.
	Changes []tree.Change
}

// State is whether a pod has what a policy injects.
type State string

// States of a pod that is there, for a policy that selects it.
const (
	// StateInjected: it has what the policy injects, from the policy or of itself.
	StateInjected State = "Injected"
	// StateStale: it would get something else if it were created now.
	StateStale State = "Stale"
	// StateSkipped: the policy is left out for it.
	StateSkipped State = "Skipped"
	// StateExcluded: it has opted out, or is a mirror pod.
	StateExcluded State = "Excluded"
)

// PodStatus is the status of a pod for one policy that selects it.
type PodStatus struct {
	Policy *Policy
	State  State
	// Reason and Message say why, unless the state is StateInjected.
	Reason, Message string
}

// Examination is the status of a pod that is there for the policies.
type Examination struct {
	// Hash is that of a pod like this one if it were created now, without what
	// policies have added to it; Recorded is the one in its record, empty without one.
	Hash, Recorded string
	// Statuses has one for each policy that selects it, in the order of application.
	Statuses []PodStatus
}

// Stale reports whether the pod would get something else if it were created now.
// That it has what a policy injected that is deleted since does not make it so:
// nothing is taken away from a pod that runs.
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
	// Version of the format, 1.
	Version int `json:"v"`
	// Hash is that of [Result].
	Hash string `json:"hash"`
	// Containers name the containers and init containers that the pod had, if a policy
	// holds: what another has was made by somebody else.
	Containers []string `json:"c,omitempty"`
	// Applied are the policies that hold and what they added.
	Applied []RecordApplied `json:"applied,omitempty"`
	// Skipped are those that were left out.
	Skipped []RecordSkipped `json:"skipped,omitempty"`
	// Trimmed says that the lists were left out: annotations must not exceed 256 KiB
	// together.
	Trimmed bool `json:"trimmed,omitempty"`
}

// RecordApplied is a policy of a [Record] that holds.
type RecordApplied struct {
	Policy     string   `json:"p"`
	Generation int64    `json:"gen,omitempty"`
	Hash       string   `json:"h"`
	Env        []string `json:"env,omitempty"`
	EnvFrom    []string `json:"from,omitempty"`
	Volumes    []string `json:"vol,omitempty"`
	Mounts     []string `json:"mnt,omitempty"`
	// Containers name those that have what the policy injects, unless all do.
	Containers []string `json:"in,omitempty"`
	// Had are items that containers had of themselves although they are in the lists,
	// for others got them: CONTAINER:env:NAME, and so on.
	Had []string `json:"had,omitempty"`
}

// RecordSkipped is a policy of a [Record] that was left out.
type RecordSkipped struct {
	Policy  string `json:"p"`
	Reason  string `json:"r"`
	Message string `json:"why,omitempty"`
}

// kind is the kind of policies.
const kind = refractv1beta1.KindServiceInjectionPolicy
