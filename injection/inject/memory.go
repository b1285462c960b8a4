package inject

import "slices"

// past is a pod's record with indexes. Any user may write a record of any size, and the indexes keep its lookups fast.
type past struct {
	Record

	policies   map[string]*RecordApplied // By name; created on first use.
	containers map[string]bool
}

// of returns the entry of a policy in the record; nil if it has none.
func (r *past) of(p *Policy) *RecordApplied {
	if r.policies == nil {
		r.policies = make(map[string]*RecordApplied, len(r.Applied))
		for i := range slices.Backward(r.Applied) { // Of entries with the same name, the first one counts.
			r.policies[r.Applied[i].Policy] = &r.Applied[i]
		}
	}
	return r.policies[p.Name()]
}

// current returns the entry of a policy in the record; nil if the content of the policy has changed since the
// injection.
func (r *past) current(p *Policy) *RecordApplied {
	if a := r.of(p); a != nil && a.Hash == p.hash {
		return a
	}
	return nil
}

// previous is the entry of a policy in the pod's record. The zero value stands for no entry, or for an entry with
// another content of the policy.
type previous struct {
	record     *past
	of         *RecordApplied // Nil without an entry.
	names      [4]map[string]bool
	had        map[string]bool
	containers map[string]bool
}

// previous returns the entry of a policy. The receiver may be nil.
func (r *past) previous(p *Policy) previous {
	if r == nil {
		return previous{}
	}
	return previous{record: r, of: r.current(p)}
}

// few is the largest number of names that are searched without an index.
const few = 16

// lists reports whether the entry lists an item as added to at least one container or to the pod.
func (m *previous) lists(of itemKind, id string) bool {
	return m.of != nil && contains(m.of.list(of), &m.names[of], id)
}

// gave reports whether the policy added an item that exists in the container or, if c is nil, in the pod.
func (m *previous) gave(c *container, of itemKind, id string) bool {
	if !m.lists(of, id) {
		return false
	}
	return c == nil || m.reached(c) && !contains(m.of.Had, &m.had, hadKey(c.name, of, id))
}

// sources finds the policies of a record by the items that they added.
type sources [4]map[string][]*previous

func (r *past) sources() *sources {
	var g sources
	for i := range r.Applied {
		m := &previous{record: r, of: &r.Applied[i]}
		for _, of := range [...]itemKind{envItem, envFromItem, volumeItem, mountItem} {
			for _, id := range m.of.list(of) {
				if g[of] == nil {
					g[of] = map[string][]*previous{}
				}
				g[of][id] = append(g[of][id], m)
			}
		}
	}
	return &g
}

// gave reports whether any policy of the record added an existing item.
func (g *sources) gave(c *container, of itemKind, id string) bool {
	return slices.ContainsFunc(g[of][id], func(m *previous) bool { return m.gave(c, of, id) })
}

// ours reports whether a later webhook has changed an injected entry. Such an entry is no conflict, although it differs
// from the item of the policy that is being considered. ours returns true only if the record says both of this: this
// policy, with its current content, was applied to the container or pod, and this policy or another one added the
// entry. A trimmed record lists no items, so ours returns false.
func (d *injection) ours(e *entry, c *container, of itemKind) bool {
	m := &d.previous
	if m.of == nil || e.by != nil || c != nil && !m.reached(c) {
		return false
	}
	if d.sources == nil {
		d.sources = d.before.sources()
	}
	d.work += len(d.sources[of][e.id])
	return d.sources.gave(c, of, e.id)
}

// contains reports whether a list contains a name. For a long list it creates a set once.
func contains(list []string, set *map[string]bool, name string) bool {
	if len(list) <= few {
		return slices.Contains(list, name)
	}
	if *set == nil {
		*set = make(map[string]bool, len(list))
		for _, s := range list {
			(*set)[s] = true
		}
	}
	return (*set)[name]
}

// knows reports whether the container existed when the record was written; true if the record does not list containers.
func (r *past) knows(c *container) bool {
	return len(r.Containers) == 0 || contains(r.Containers, &r.containers, c.name)
}

// reached reports whether the container had the policy's items after the recorded injection.
func (m *previous) reached(c *container) bool {
	return m.record.knows(c) && (len(m.of.Containers) == 0 || contains(m.of.Containers, &m.containers, c.name))
}
