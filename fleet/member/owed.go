package member

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// OwedKey returns the key of the copy of a pending deletion.
func OwedKey(d *corev1alpha1.PendingDeletion) Key {
	return Key{GroupResource: schema.ParseGroupResource(d.Resource), NamespacedName: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}}
}

// Owed returns the pending deletions of a copy by cluster, from the last status of each cluster. These deletions are
// from before a restart, and no other object on the hub records them.
func (s *Set) Owed(key Key) map[string]corev1alpha1.PendingDeletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.owed[key])
}

// OwedBy returns the pending deletions of a cluster. The result is shared and must not be modified.
func (s *Set) OwedBy(name string) []corev1alpha1.PendingDeletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		return j.owed
	}
	return nil
}

// AllOwed returns the copies with pending deletions on the clusters that this replica writes to.
func (s *Set) AllOwed(writes func(name string) bool) (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, owed := range s.owed {
		for name := range owed {
			if writes(name) {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

// setOwed records the pending deletions of a cluster. It ignores the part of a list that exceeds the length which
// Refract writes. The lock must be held.
func (s *Set) setOwed(name string, j *joined, owed []corev1alpha1.PendingDeletion) {
	owed = owed[:min(len(owed), corev1alpha1.MaxPendingDeletions)]
	if slices.Equal(j.owed, owed) {
		return
	}
	for i := range j.owed {
		key := OwedKey(&j.owed[i])
		delete(s.owed[key], name)
		if len(s.owed[key]) == 0 {
			delete(s.owed, key)
		}
	}
	if s.owed == nil {
		s.owed = map[Key]map[string]corev1alpha1.PendingDeletion{}
	}
	for i := range owed {
		key := OwedKey(&owed[i])
		if s.owed[key] == nil {
			s.owed[key] = map[string]corev1alpha1.PendingDeletion{}
		}
		s.owed[key][name] = owed[i]
	}
	j.owed = slices.Clone(owed)
}
