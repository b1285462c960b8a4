package inject

import "slices"

// past is a record, of which anything is found at once: nobody knows who has written it.
type past struct {
	Record

	policies   map[string]*RecordApplied // By name, once somebody has asked for one.
	containers map[string]bool
}

// of returns what a record says of a policy that holds; nil if it says nothing.
func (r *past) of(p *Policy) *RecordApplied {
	if r.policies == nil {
		r.policies = make(map[string]*RecordApplied, len(r.Applied))
		for i := range slices.Backward(r.Applied) { // The first one counts.
			r.policies[r.Applied[i].Policy] = &r.Applied[i]
		}
	}
	return r.policies[p.Name()]
}

// current returns what a record says of a policy, if the policy injects today what it
// did then.
func (r *past) current(p *Policy) *RecordApplied {
	if a := r.of(p); a != nil && a.Hash == p.hash {
		return a
	}
	return nil
}

// previous is what a pod's record says of a policy that was applied to it, with the
// content that it has today. The zero memory says nothing.
type previous struct {
	record     *past
	of         *RecordApplied // Nil if it says nothing.
	names      [4]map[string]bool
	had        map[string]bool
	containers map[string]bool
}

// previous returns what a record says of a policy; r may be nil.
func (r *past) previous(p *Policy) previous {
	if r == nil {
		return previous{}
	}
	return previous{record: r, of: r.current(p)}
}

// few is how many names are searched one by one.
const few = 16

// lists reports whether the policy has added an item, to one container at least.
func (m *previous) lists(of itemKind, id string) bool {
	return m.of != nil && contains(m.of.list(of), &m.names[of], id)
}

// gave reports whether an item, which is there, has come from the policy; c is nil for
// a volume.
func (m *previous) gave(c *container, of itemKind, id string) bool {
	if !m.lists(of, id) {
		return false
	}
	return c == nil || m.reached(c) && !contains(m.of.Had, &m.had, hadKey(c.name, of, id))
}

// sources are the policies of a record, by what they have added.
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

// gave reports whether an item, which is there, has come from any policy.
func (g *sources) gave(c *container, of itemKind, id string) bool {
	return slices.ContainsFunc(g[of][id], func(m *previous) bool { return m.gave(c, of, id) })
}

// ours reports whether an entry, which is not what the policy injects that is being
// considered, was injected all the same: the policy was applied before, to this
// container or the pod, and the item has come from it or from another. Webhooks that
// come after us change such things, too. A record that was trimmed does not say.
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

// contains reports whether a list has a name; of a long list it makes a set, once.
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

// knows reports whether a container was there when the record was written, as far as
// it says.
func (r *past) knows(c *container) bool {
	return len(r.Containers) == 0 || contains(r.Containers, &r.containers, c.name)
}

// reached reports whether a container was among those that have what the policy
// injects.
func (m *previous) reached(c *container) bool {
	return m.record.knows(c) && (len(m.of.Containers) == 0 || contains(m.of.Containers, &m.containers, c.name))
}
