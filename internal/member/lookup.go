package member

import (
	"maps"
	"slices"
	"time"

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

// renew has the member connected to anew: nothing that was known of it holds any
// more.
func (s *Set) renew(m *Member) {
	s.mu.Lock()
	if j := s.members[m.Name]; j != nil && j.member == m {
		j.config = nil
	}
	s.mu.Unlock()
	s.Recheck(m.Name)
}

// watchRetry is the longest that a watch that failed rests. The default of half a
// minute would have what happened on a member that was away for seconds go unseen
// for as long.
const watchRetry = 5 * time.Second
