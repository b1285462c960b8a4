package member

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Propagates reports whether objects of a type can travel from the hub to
// members: it must be possible to find and to write them, and they must not be
// what a cluster says about itself.
func Propagates(resource schema.GroupResource, verbs []string) bool {
	switch resource.Group {
	case corev1alpha1.GroupVersion.Group, refractv1alpha1.GroupVersion.Group, "coordination.k8s.io", "events.k8s.io", "metrics.k8s.io":
		return false
	case "":
		if resource.Resource == "events" {
			return false
		}
	}
	for _, verb := range []string{"list", "watch", "patch", "delete"} {
		if !slices.Contains(verbs, verb) {
			return false
		}
	}
	return true
}
