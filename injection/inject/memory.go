package inject

import "slices"

// past is a record with indexes. The indexes keep lookups fast in a record of any size, because any user may have
// written it.
type past struct {
	Record

	policies   map[string]*RecordApplied // By name; created on first use.
	containers map[string]bool
}

// of returns the entry of a policy in the record; nil if it has none.
func (r *past) of(p *Policy) *RecordApplied {
	if r.policies == nil {
		r.policies = make(map[string]*RecordApplied, len(r.Applied))
		for i := range slices.Backward(r.Applied) { // The first entry of a name counts.
			r.policies[r.Applied[i].Policy] = &r.Applied[i]
		}
	}
	return r.policies[p.Name()]
}

// current returns the entry of a policy in the record if the policy still has the recorded content.
func (r *past) current(p *Policy) *RecordApplied {
	if a := r.of(p); a != nil && a.Hash == p.hash {
		return a
	}
	return nil
}

// previous is the entry of a policy in the pod's record, for its current content. The zero value has no entry.
type previous struct {
	record     *past
	of         *RecordApplied // Nil without an entry.
	names      [4]map[string]bool
	had        map[string]bool
	containers map[string]bool
}

// previous returns the entry of a policy; r may be nil.
func (r *past) previous(p *Policy) previous {
	if r == nil {
		return previous{}
	}
	return previous{record: r, of: r.current(p)}
}

// few is the largest number of names that are searched one by one.
const few = 16

// lists reports whether the policy has added an item to at least one container or to the pod.
func (m *previous) lists(of itemKind, id string) bool {
	return m.of != nil && contains(m.of.list(of), &m.names[of], id)
}

// gave reports whether an existing item comes from the policy; c is nil for a volume.
func (m *previous) gave(c *container, of itemKind, id string) bool {
	if !m.lists(of, id) {
		return false
	}
	return c == nil || m.reached(c) && !contains(m.of.Had, &m.had, hadKey(c.name, of, id))
}

// sources are the policies of a record, indexed by the items that they added.
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

// gave reports whether an existing item comes from any policy.
func (g *sources) gave(c *container, of itemKind, id string) bool {
	return slices.ContainsFunc(g[of][id], func(m *previous) bool { return m.gave(c, of, id) })
}

// ours reports whether an entry was injected although it differs from the item of the policy that is being considered,
// because a later webhook has changed it. This requires that the policy was applied before to this container or pod
// with its current content, and that the item comes from this policy or another one. A trimmed record has no items, so
// ours returns false.
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

// reached reports whether the policy's items were in the container.
func (m *previous) reached(c *container) bool {
	return m.record.knows(c) && (len(m.of.Containers) == 0 || contains(m.of.Containers, &m.containers, c.name))
}
