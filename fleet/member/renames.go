package member

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// names has the replaced names. The zero value is empty. Readers need no lock.
type names struct {
	// renaming is held from the reading of the FederatedClusters until their names are recorded, so that an older list
	// is never recorded after a newer one. It is not held during requests, because a slow cluster must not delay
	// others.
	renaming sync.Mutex

	mu     sync.Mutex                        // The lock of the writers.
	known  atomic.Pointer[map[string]string] // The successors of replaced names; never modified.
	ending []*handover                       // Oldest first.
}

// handover is a name that was replaced while work under it was in progress. No writes are made under the new name until
// that work has ended.
type handover struct {
	from, to string
	done     chan struct{}
}

func (e *handover) concerns(name string) bool { return e.from == name || e.to == name }

// load returns the successors of replaced names.
func (n *names) load() map[string]string {
	if known := n.known.Load(); known != nil {
		return *known
	}
	return nil
}

func (n *names) change(with func(successors map[string]string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := maps.Clone(n.load())
	if now == nil {
		now = map[string]string{}
	}
	with(now)
	n.known.Store(&now)
}

func (n *names) successor(name string) string { return n.load()[name] }

// succeed records that a name was replaced by another. It returns the handover, or nil if the replacement is not new.
func (n *names) succeed(from, to string) *handover {
	if n.successor(from) == to {
		return nil
	}
	e := &handover{from, to, make(chan struct{})}
	n.change(func(successors map[string]string) {
		successors[from] = to
		delete(successors, to)
		n.ending = append(n.ending, e)
	})
	return e
}

// endings returns the unfinished handovers of a name, oldest first. If the argument before is not nil, it returns only
// those that are older than this handover.
func (n *names) endings(name string, before *handover) (older []*handover) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.ending {
		if e == before {
			break
		}
		if e.concerns(name) {
			older = append(older, e)
		}
	}
	return older
}

// wait waits until all handovers of a name have ended.
func (n *names) wait(ctx context.Context, name string) error {
	for _, e := range n.endings(name, nil) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.done:
		}
	}
	return nil
}

func (n *names) ended(e *handover) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending = slices.DeleteFunc(n.ending, func(o *handover) bool { return o == e })
	close(e.done)
}

// appear records that a name is not replaced: a new FederatedCluster may have the name of an earlier one, or the name
// is served again.
func (n *names) appear(name string) {
	if n.successor(name) != "" {
		n.change(func(successors map[string]string) { delete(successors, name) })
	}
}

// Successor returns the name that is served instead of a replaced name; "" for all other names.
func (s *Set) Successor(name string) string {
	successors := s.names.load()
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

// Hidden reports whether the hub has a FederatedCluster of this name that gets no placements, because it is not known
// to be the served name of its cluster.
func (s *Set) Hidden(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	return j != nil && j.hidden
}

// rename records that a cluster is now served under another name. It returns the handover for [Set.end]; nil if the
// rename is known already. The lock names.renaming must be held.
func (s *Set) rename(from, to string) *handover {
	e := s.names.succeed(from, to)
	if e == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[to]; j != nil {
		j.hidden = false
	}
	s.publish()
	return e
}

// reinstate serves a replaced name again, because its successor is gone or now belongs to another cluster. It reports
// whether the name was replaced. The lock names.renaming must be held.
func (s *Set) reinstate(name string) bool {
	if s.names.successor(name) == "" {
		return false
	}
	s.names.appear(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.members[name]; j != nil {
		j.hidden = false
	}
	s.publish()
	return true
}

// end ends all work under a replaced name, and returns when it has ended. The lock names.renaming must not be held.
func (s *Set) end(e *handover) {
	defer s.names.ended(e)
	for _, name := range []string{e.from, e.to} { // The renames of a cluster are carried out in the order of their discovery.
		for _, older := range s.names.endings(name, e) {
			<-older.done
		}
	}
	s.Disown(e.from)
	if s.OnRename != nil {
		s.OnRename(e.from, e.to)
	}
	s.OnChange(e.from)
}
