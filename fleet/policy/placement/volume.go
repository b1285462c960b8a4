package placement

import "k8s.io/apimachinery/pkg/runtime/schema"

// IsVolume reports whether objects of this type represent data that are deleted with them.
func IsVolume(of schema.GroupResource) bool {
	return of.Group == "" && (of.Resource == "persistentvolumeclaims" || of.Resource == "persistentvolumes")
}
