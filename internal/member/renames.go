package member

import (
	"maps"
	"sync"
	"sync/atomic"
)

// names say by which names clusters are assigned to replicas, and which names were given up for others. The zero value
// knows of none. It is read without a lock.
type names struct {
	// renaming is held from when the FederatedClusters are read until what they say of names is done: what was read earlier is
	// done earlier, and nothing is written under a new name before all has ended under the old one.
	renaming sync.Mutex

	mu    sync.Mutex // Of those that write.
	known atomic.Pointer[knownNames]
}

// knownNames are not modified.
type knownNames struct {
	shards     map[string]string // Of names that are assigned as others are.
	successors map[string]string // Of names that were given up.
}

func (n *names) load() *knownNames {
	if k := n.known.Load(); k != nil {
		return k
	}
	return &knownNames{}
}

func (n *names) change(with func(*knownNames)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.load()
	now := &knownNames{shards: maps.Clone(was.shards), successors: maps.Clone(was.successors)}
	if now.shards == nil {
		now.shards, now.successors = map[string]string{}, map[string]string{}
	}
	with(now)
	n.known.Store(now)
}

// assign records by which name a cluster is assigned, and reports whether that is news.
func (n *names) assign(name, shard string) bool {
	if n.shard(name) == shard {
		return false
	}
	n.change(func(k *knownNames) {
		if k.shards[name] = shard; shard == name {
			delete(k.shards, name)
		}
	})
	return true
}

func (n *names) shard(name string) string {
	if shard, ok := n.load().shards[name]; ok {
		return shard
	}
	return name
}

func (n *names) successor(name string) string { return n.load().successors[name] }

// succeed records that a name was given up for another, and reports whether that is new.
func (n *names) succeed(from, to string) bool {
	if n.successor(from) == to {
		return false
	}
	n.change(func(k *knownNames) {
		k.successors[from] = to
		delete(k.successors, to)
	})
	return true
}

// appear records that a FederatedCluster has come that may have the name of one that was there before.
func (n *names) appear(name string) {
	if n.successor(name) != "" {
		n.change(func(k *knownNames) { delete(k.successors, name) })
	}
}

// Shard returns the name by which a cluster is assigned to a replica: the two names of a cluster that is being renamed
// have the same.
func (s *Set) Shard(name string) string { return s.names.shard(name) }

// Successor returns the name under which a cluster is served whose name was given up; empty for all other names.
func (s *Set) Successor(name string) string {
	successors := s.names.load().successors
	to := successors[name]
	for range successors { // A cluster may be renamed again before the first name is gone.
		next := successors[to]
		if next == "" {
			break
		}
		to = next
	}
	return to
}

// Hidden reports whether the hub has a cluster of this name on which nothing is placed: it is not served under this name, as far as
// it is known here.
func (s *Set) Hidden(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.hidden
}

// rename has a cluster be served under another name from here on, and returns when all work under the first one has ended. The lock
// names.renaming must be held.
func (s *Set) rename(from, to string) {
	if !s.names.succeed(from, to) {
		return
	}
	s.mu.Lock()
	if j := s.members[to]; j != nil {
		j.hidden = false
	}
	s.publish()
	s.mu.Unlock()
	s.Disown(from)
	if s.OnRename != nil {
		s.OnRename(from, to)
	}
	s.OnChange(from)
}
