package member

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource returns in which version the copies of a type are watched; ok is false
// if they are not.
func (m *Member) Resource(resource schema.GroupResource) (gvr schema.GroupVersionResource, ok bool) {
	t := m.typed(resource)
	if t == nil {
		return gvr, false
	}
	return t.gvr, true
}

// Names returns the names of all clusters of the hub, sorted, those that leave
// included.
func (s *Set) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.members))
}
