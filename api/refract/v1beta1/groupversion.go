package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is refract.dev/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "refract.dev", Version: "v1beta1"}

// KindServiceInjectionPolicy is the kind of a policy, as it stands in a manifest.
const KindServiceInjectionPolicy = "ServiceInjectionPolicy"

// Prefix is what the labels and annotations of this group begin with.
const Prefix = "refract.dev/"

// Annotations on pods.
const (
	// ServicePrefix begins the key of the annotation that says which policies were
	// applied to a pod: the rest is the name of the policies' service, and the value
	// their names joined by a comma, in the order of application.
	ServicePrefix = "serviceinjectionpolicy.k8s.io/"
	// NoService takes the place of the service's name for policies without one. No
	// Service can have this name.
	NoService = "no_service"
	// InjectionAnnotation is the record of what was injected into a pod, as JSON.
	InjectionAnnotation = Prefix + "injection"
	// InjectAnnotation "false" leaves a pod as it is.
	InjectAnnotation = Prefix + "inject"
	// ExcludeAnnotation "true" does the same, as it did for PodPreset.
	ExcludeAnnotation = "podpreset.admission.kubernetes.io/exclude"
)

// Annotations on workloads.
const (
	// HashAnnotation on a pod template is the hash of what is injected into its pods.
	// It is set to have the workload's controller recreate them.
	HashAnnotation = Prefix + "injection-hash"
	// RolloutAnnotation "false" on a workload, not on its template, leaves the
	// recreation of its pods to its owner.
	RolloutAnnotation = Prefix + "rollout"
)

// Annotations on policies, by which people steer the recreation of pods.
const (
	// PausedAnnotation "true" has no further workload touched.
	PausedAnnotation = Prefix + "rollout-paused"
	// ApproveRolloutAnnotation has a rollout of the strategy Manual begin; its value is
	// the hash in the policy's status that is approved.
	ApproveRolloutAnnotation = Prefix + "approve-rollout"
	// ResumeAnnotation has a halted rollout go on; its value is the hash in the
	// policy's status with which it was halted.
	ResumeAnnotation = Prefix + "resume-rollout"
)

// Annotations on a Service, from which a policy with implicit: true is completed.
const (
	// EnvAnnotation is a JSON object of names and values of environment variables.
	EnvAnnotation = Prefix + "env"
	// EnvFromAnnotation lists secret/NAME and configmap/NAME, joined by commas.
	EnvFromAnnotation = Prefix + "env-from"
	// MountAnnotation lists secret/NAME:PATH and configmap/NAME:PATH, each with :ro
	// behind it if wanted, joined by commas.
	MountAnnotation = Prefix + "mount"
	// PrefixAnnotation is put before the names that DeriveAnnotation makes.
	PrefixAnnotation = Prefix + "prefix"
	// DeriveAnnotation lists what is to be derived from the Service itself: host, port.
	DeriveAnnotation = Prefix + "derive"
)

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ServiceInjectionPolicy{}, &ServiceInjectionPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
