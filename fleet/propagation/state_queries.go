package propagation

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func (s *state) index(key Key, e *objectState, names []tree.Policy) {
	for _, ref := range e.names {
		delete(s.users[ref], key)
		if len(s.users[ref]) == 0 {
			delete(s.users, ref)
		}
	}
	e.names = names
	for _, ref := range names {
		if s.users[ref] == nil {
			s.users[ref] = map[Key]bool{}
		}
		s.users[ref][key] = true
	}
}

// usersOf returns the objects that name a policy.
func (s *state) usersOf(ref tree.Policy) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.users[ref]))
}

// count returns how many objects name a policy.
func (s *state) count(ref tree.Policy) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.users[ref])
}

// decisions returns the number of decisions so far, including forgotten objects.
func (s *state) decisions() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq
}

// desired returns the desired state of the key, or nil.
func (s *state) desired(key Key) *desiredState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		return e.desired
	}
	return nil
}

// clusterStatus returns the last result of the desired states on the cluster.
func (s *state) clusterStatus(key Key, cluster string) (clusterStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return clusterStatus{}, false
	}
	r, ok := e.statuses[cluster]
	return r, ok
}

// concerns reports whether the cluster has, or may have, a copy.
func (s *state) concerns(key Key, cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	return e != nil && e.concerns(cluster)
}

// concerns reports whether the cluster has, or may have, a copy.
func (e *objectState) concerns(cluster string) bool {
	_, has := e.statuses[cluster]
	_, placed := placement.Find(e.previous.placed, cluster)
	return has || placed
}

// without returns the targets without the cluster. It does not modify its argument.
func without(targets []placement.Target, cluster string) []placement.Target {
	at, ok := placement.Find(targets, cluster)
	if !ok {
		return targets
	}
	return slices.Delete(slices.Clone(targets), at, at+1)
}

// leave removes a cluster that is no member any more. It returns the keys with a copy there. The results of decisions
// that began before are not recorded any more: they may place objects on the cluster, or have its row from before a
// restart.
func (s *state) leave(cluster string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.naming++
	var keys []Key
	for key, e := range s.objects {
		_, reported := e.statuses[cluster]
		_, placed := placement.Find(e.previous.placed, cluster)
		if !reported && !placed {
			continue
		}
		if reported {
			s.copies.change(key.Namespace, cluster, e.desired.targets[cluster] != nil, false)
		}
		delete(e.statuses, cluster)
		e.previous.placed = without(e.previous.placed, cluster)
		e.count()
		keys = append(keys, key)
	}
	return keys
}

// forget drops the key if the desired state is still p. It returns the followers and scaled workloads, and the
// policies that the object named.
func (s *state) forget(key Key, p *desiredState) (followers []Key, policies []tree.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.desired != p {
		return nil, nil
	}
	s.seq++
	s.dropBodies(e)
	s.copies.retarget(key.Namespace, e, nil)
	s.copies.add(key.Namespace, e.statuses, copyCount{reported: -1})
	followers = append(s.setFollowers(key, e, nil), s.setScaled(key, e, &desiredState{})...)
	policies = e.names
	s.index(key, e, nil)
	delete(s.objects, key)
	delete(s.bare, key)
	if s.nothing != nil {
		s.nothing[key] = true // The Propagation may stay for a while, or as long as another program has a finalizer on it.
	}
	return followers, policies
}

// keys returns all keys.
func (s *state) keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.objects))
}

// unknown returns the number of keys that still need their first decision.
func (s *state) unknown(keys []Key) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if s.objects[key] == nil && !s.nothing[key] {
			n++
		}
	}
	return n
}

// on returns the keys that have, may have, or are to have a copy on the cluster.
func (s *state) on(cluster string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []Key
	for key, e := range s.objects {
		_, reported := e.statuses[cluster]
		if reported || e.desired.targets[cluster] != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// holds returns the number of known copies on the cluster, by namespace.
func (s *state) holds(cluster string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for namespace, c := range s.copies[cluster] {
		if c.reported > 0 {
			n[namespace] = c.reported
		}
	}
	return n
}

// deleted reports whether all objects of the keys were deleted on request of a user. It is false for no keys.
func (s *state) deleted(keys []Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		e, departed := s.objects[key], s.gone.byKey[key]
		asked := departed.asked
		if e != nil {
			asked = e.desired.gone && e.desired.cause.asked()
		}
		if !asked {
			return false
		}
	}
	return len(keys) > 0
}

// needs reports whether the cluster has a copy in the namespace, or is to have one.
func (s *state) needs(cluster, namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies[cluster][namespace] != (copyCount{})
}
