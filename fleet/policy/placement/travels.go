package placement

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/policy/podtemplate"
)

// Travels reports whether objects of a kind can be placed on clusters at all. Objects that describe a cluster itself,
// and objects that control placement, stay on the hub. Among Refract's own kinds, only policies for the pods of a
// cluster are placed.
func Travels(kind schema.GroupKind) bool {
	switch kind.Group {
	case corev1alpha1.GroupVersion.Group, "coordination.k8s.io", "events.k8s.io", "metrics.k8s.io":
		return false
	case refractv1beta1.GroupVersion.Group:
		return kind.Kind == refractv1beta1.KindServiceInjectionPolicy
	case "":
		return kind.Kind != "Event"
	default:
		return true
	}
}

// Follows reports whether objects of a kind can travel with a workload. The kind can be placed and is not a workload
// itself, so that no other objects travel with such an object.
func Follows(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Kind: "ReplicationController"}, schema.GroupKind{Kind: "PodTemplate"}:
		return false
	default:
		return Travels(kind) && podtemplate.Of(kind) == nil
	}
}
