package member

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/placement"
)

// Propagates reports whether objects of a kind can travel from the hub to members:
// they may be placed, and an API server with these verbs can find and write them.
func Propagates(kind schema.GroupKind, verbs []string) bool {
	if !placement.Travels(kind) {
		return false
	}
	for _, verb := range []string{"list", "watch", "patch", "delete"} {
		if !slices.Contains(verbs, verb) {
			return false
		}
	}
	return true
}
