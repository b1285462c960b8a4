package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is refract.dev/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "refract.dev", Version: "v1beta1"}

// KindServiceInjectionPolicy is the kind of a policy, as in the kind field of a manifest.
const KindServiceInjectionPolicy = "ServiceInjectionPolicy"

// Prefix is the prefix of the labels and annotations of this group.
const Prefix = "refract.dev/"

// Annotations on pods.
const (
	// ServicePrefix is the prefix of the annotation that lists the policies of a service that were applied to a pod.
	// The rest of the key is the name of the service. The value is the names of the policies, separated by commas, in
	// the order of application.
	ServicePrefix = "serviceinjectionpolicy.k8s.io/"
	// NoService replaces the name of the service for policies without one. No Service can have this name.
	NoService = "no_service"
	// InjectionAnnotation is the record of the items that were injected into a pod, as JSON.
	InjectionAnnotation = Prefix + "injection"
	// InjectAnnotation "false" excludes a pod from injection.
	InjectAnnotation = Prefix + "inject"
	// ExcludeAnnotation "true" also excludes a pod, as it did for PodPreset.
	ExcludeAnnotation = "podpreset.admission.kubernetes.io/exclude"
)

// Annotations on workloads.
const (
	// HashAnnotation on a pod template is the hash of the items that are injected into its pods. Refract sets it so
	// that the controller of the workload recreates the pods.
	HashAnnotation = Prefix + "injection-hash"
	// RolloutAnnotation "false" on a workload (not on its template) leaves the recreation of its pods to its owner.
	RolloutAnnotation = Prefix + "rollout"
)

// Annotations on policies that control the recreation of pods.
const (
	// PausedAnnotation "true" pauses the rollout: no further workload is changed.
	PausedAnnotation = Prefix + "rollout-paused"
	// ApproveRolloutAnnotation starts a rollout with the strategy Manual. Its value is the approved hash from the
	// status of the policy.
	ApproveRolloutAnnotation = Prefix + "approve-rollout"
	// ResumeAnnotation resumes a halted rollout. Its value is the hash in the status of the policy at the time of the halt.
	ResumeAnnotation = Prefix + "resume-rollout"
)

// Annotations on a Service that add items to a policy with implicit: true.
const (
	// EnvAnnotation is a JSON object that maps names of environment variables to values.
	EnvAnnotation = Prefix + "env"
	// EnvFromAnnotation lists secret/NAME and configmap/NAME, separated by commas.
	EnvFromAnnotation = Prefix + "env-from"
	// MountAnnotation lists secret/NAME:PATH and configmap/NAME:PATH, each optionally followed by :ro, separated by commas.
	MountAnnotation = Prefix + "mount"
	// PrefixAnnotation is the prefix of the names that DeriveAnnotation generates.
	PrefixAnnotation = Prefix + "prefix"
	// DeriveAnnotation lists the variables that are derived from the Service itself: host, port.
	DeriveAnnotation = Prefix + "derive"
)

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ServiceInjectionPolicy{}, &ServiceInjectionPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
