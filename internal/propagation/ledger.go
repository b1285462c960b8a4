package propagation

import (
	"maps"
	"slices"
	"sync"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// ledger holds, for each object, the plan and what came of it on each cluster.
// It is the only state of the controllers, and made anew after a restart.
type ledger struct {
	mu      sync.Mutex
	entries map[Key]*entry
	users   map[tree.Policy]map[Key]bool // The objects that name a policy.
	seq     int64
}

type entry struct {
	plan   *plan
	rows   map[string]row // By cluster.
	memory memory
	names  []tree.Policy // Policies that the object names.
}

// row is what came of a plan on one cluster.
type row struct {
	refractv1alpha1.ClusterStatus

	seq int64 // Of the plan.
	// absent is whether the cluster holds no copy and is to hold none.
	absent bool
}

func newLedger() *ledger {
	return &ledger{entries: map[Key]*entry{}, users: map[tree.Policy]map[Key]bool{}}
}

// recall returns what is remembered of the key.
func (l *ledger) recall(key Key) (memory, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return memory{}, false
	}
	return e.memory, true
}

// put records a plan. It returns the clusters for which the plan has to be carried
// out, those that are to have a copy and those that may have one; and the
// policies whose users are others now.
func (l *ledger) put(key Key, p *plan, was memory, names []tree.Policy) (clusters []string, policies []tree.Policy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		e = &entry{rows: map[string]row{}, memory: was}
		for _, name := range was.leaving {
			e.rows[name] = row{ClusterStatus: refractv1alpha1.ClusterStatus{
				Name: name, State: refractv1alpha1.StateDeleting, Reason: reasonNoLongerPlaced,
			}}
		}
		l.entries[key] = e
	}
	l.seq++
	p.seq = l.seq
	concerned := map[string]bool{}
	for _, name := range e.memory.placed {
		concerned[name] = true
	}
	for name := range e.rows {
		concerned[name] = true
	}
	for name := range p.targets {
		concerned[name] = true
	}
	e.plan = p
	e.memory = p.remember(e.memory)
	if !slices.Equal(e.names, names) {
		policies = slices.Concat(e.names, names)
		l.index(key, e, names)
	}
	return slices.Sorted(maps.Keys(concerned)), policies
}

func (l *ledger) index(key Key, e *entry, names []tree.Policy) {
	for _, ref := range e.names {
		delete(l.users[ref], key)
		if len(l.users[ref]) == 0 {
			delete(l.users, ref)
		}
	}
	e.names = names
	for _, ref := range names {
		if l.users[ref] == nil {
			l.users[ref] = map[Key]bool{}
		}
		l.users[ref][key] = true
	}
}

// usersOf returns the objects that name a policy.
func (l *ledger) usersOf(ref tree.Policy) []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.users[ref]))
}

// plan returns the plan of the key, or nil.
func (l *ledger) plan(key Key) *plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return e.plan
	}
	return nil
}

// row returns what came of the plans on the cluster so far.
func (l *ledger) row(key Key, cluster string) (row, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return row{}, false
	}
	r, ok := e.rows[cluster]
	return r, ok
}

// concerns reports whether the cluster has, or may have, a copy.
func (l *ledger) concerns(key Key, cluster string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return false
	}
	_, reported := e.rows[cluster]
	return reported || slices.Contains(e.memory.placed, cluster)
}

// report records what came of the plan with this number on the cluster. It
// returns whether all clusters have reported on the newest plan.
func (l *ledger) report(key Key, cluster string, r row) (settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return false
	}
	if r.absent {
		delete(e.rows, cluster)
		if at := slices.Index(e.memory.placed, cluster); at >= 0 && e.plan.targets[cluster] == nil {
			e.memory.placed = slices.Delete(slices.Clone(e.memory.placed), at, at+1)
		}
	} else {
		e.rows[cluster] = r
	}
	if e.plan.gone {
		return len(e.rows)+len(e.memory.placed) == 0
	}
	for name := range e.plan.targets {
		if e.rows[name].seq != e.plan.seq {
			return false
		}
	}
	return true
}

// snapshot returns the plan and the rows of the key.
func (l *ledger) snapshot(key Key) (p *plan, rows map[string]row, placed []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return nil, nil, nil, false
	}
	return e.plan, maps.Clone(e.rows), e.memory.placed, true
}

// leave forgets the cluster, which is no member any more.
func (l *ledger) leave(cluster string) []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []Key
	for key, e := range l.entries {
		_, reported := e.rows[cluster]
		at := slices.Index(e.memory.placed, cluster)
		if !reported && at < 0 {
			continue
		}
		delete(e.rows, cluster)
		if at >= 0 {
			e.memory.placed = slices.Delete(slices.Clone(e.memory.placed), at, at+1)
		}
		keys = append(keys, key)
	}
	return keys
}

// forget drops the key when the plan is still p.
func (l *ledger) forget(key Key, p *plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil || e.plan != p {
		return
	}
	l.index(key, e, nil)
	delete(l.entries, key)
}

// keys returns all keys.
func (l *ledger) keys() []Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.entries))
}
