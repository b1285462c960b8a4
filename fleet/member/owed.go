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
// from before a restart, and no other object on the hub records them. An entry in the status of a replaced name has the
// name that is served instead.
func (s *Set) Owed(key Key) map[string]corev1alpha1.PendingDeletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := s.owed[key]
	owed := maps.Clone(listed)
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		to := s.Successor(name)
		if to == "" {
			continue
		}
		delete(owed, name)
		if _, has := owed[to]; !has {
			owed[to] = listed[name]
		}
	}
	return owed
}

// OwedBy returns the pending deletions of a cluster: those in the status of the name, and those that only the status of
// a name has that it replaced. The result is shared and must not be modified.
func (s *Set) OwedBy(name string) []corev1alpha1.PendingDeletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	var owed []corev1alpha1.PendingDeletion
	if j := s.members[name]; j != nil {
		owed = j.owed
	}
	known := map[Key]bool{}
	for _, former := range slices.Sorted(maps.Keys(s.names.load())) {
		j := s.members[former]
		if j == nil || s.Successor(former) != name {
			continue
		}
		for i := range j.owed {
			key := OwedKey(&j.owed[i])
			if _, own := s.owed[key][name]; !own && !known[key] {
				owed, known[key] = append(slices.Clip(owed), j.owed[i]), true
			}
		}
	}
	return owed
}

// AllOwed returns the copies with pending deletions.
func (s *Set) AllOwed() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.owed))
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
