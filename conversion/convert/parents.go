package convert

import (
	"cmp"
	"slices"
)

// SpokeParent declares that only the spoke has an object at this place, as the parent of converted values. On the way
// to the hub, the object is removed with its last value. On the way back, the first value creates it. If the object is
// empty, or all its values are kept in the annotation, then no value would create it again. So the object is kept in
// the annotation, too. It stays if it has members that no conversion names. It may be inside another parent.
func SpokeParent(place string) Conversion { return parent(place, spokeSide) }

// HubParent is [SpokeParent] for an object that only the hub has.
func HubParent(place string) Conversion { return parent(place, hubSide) }

// SpokeRequires declares that the spoke requires the object at this place, which both versions have. If the object
// becomes empty on the way to the spoke, it stays, as {}.
func SpokeRequires(place string) Conversion { return required(place, spokeSide) }

// HubRequires is [SpokeRequires] for an object that the hub requires.
func HubRequires(place string) Conversion { return required(place, hubSide) }

func required(place string, s side) Conversion {
	c := oneSided(place, s, nil)
	c.required = true
	return c
}

func parent(place string, s side) Conversion {
	c := oneSided(place, s, nil)
	c.parent = true
	return c
}

// addParent adds a parent that one of the versions has. A node has a higher index than its parent, so parents sorted by
// node have the outer ones first.
func (p *plan) addParent(f *field) {
	byNode := func(a, b field) int {
		last := func(f field) int { return slices.Max(slices.Concat(f.from.nodes, f.to.nodes)) }
		return cmp.Compare(last(a), last(b))
	}
	if len(f.from.nodes) > 0 {
		p.leaving = append(p.leaving, *f)
		slices.SortFunc(p.leaving, byNode)
		p.stay(p.nodes[f.from.nodes[0]].parent)
		return
	}
	p.nodes[f.to.nodes[0]].returns = true
	p.stay(f.to.nodes[0])
	p.returning = append(p.returning, *f)
	slices.SortFunc(p.returning, byNode)
}

// parents decides which parents of values are added, kept and removed. Parents have no conversions: a value that moves
// into a missing parent creates it, and an emptied parent is removed. A parent that would not come back with its
// values, or would be removed with them, is therefore kept in the annotation.
type parents struct {
	source     *source
	changes    *changes
	complement *complement
	comparer   *comparer
}

// comeBack restores the kept parents whose kept value begins with this byte, an object or null, so that values can be
// put into them.
func (r *parents) comeBack(first byte, text []byte) {
	returning := r.source.plan.returning
	for i := range returning {
		n, e := returning[i].to.nodes[0], r.complement.entryOfAbsent(returning[i].to.place)
		if e == nil || e.value[0] != first || r.source.nodes[n].present || r.changes.puts[n] != nil {
			continue
		}
		if r.changes.hasParent(n) {
			r.changes.put(n, text)
		}
	}
}

// leave removes the empty parents that only the source version has, inner ones first. A parent is not kept if a value
// that moved out of it will create it again.
func (r *parents) leave() {
	p := r.source.plan
	for i := range slices.Backward(p.leaving) {
		f := &p.leaving[i]
		n := f.from.nodes[0]
		m := &r.source.nodes[n]
		if !m.present || m.kind != '{' && m.kind != 'n' || m.members != r.changes.removedFrom(n) {
			continue
		}
		returns := m.kind == '{' && r.movesOut(n) && !r.keepsIn(n, i)
		r.changes.removeParent(n)
		switch {
		case r.source.partial || returns:
		case m.kind == 'n':
			r.complement.keepAbsent(f.from.place, r.source.value(n))
		default:
			r.complement.keepAbsent(f.from.place, emptyObject)
		}
	}
}

// keepEmpty keeps the objects that were empty before values moved into them. Otherwise the conversion back would remove
// them with these values.
func (r *parents) keepEmpty() {
	if r.source.partial {
		return
	}
	p := r.source.plan
	for i := range p.fields {
		f := &p.fields[i]
		if !r.source.hasAny(f.from.nodes) {
			continue
		}
		for _, to := range f.to.nodes {
			n := p.nodes[to].parent
			for n >= p.fixed && !r.source.nodes[n].present { // It was created for the value, perhaps in an object that was empty.
				n = p.nodes[n].parent
			}
			m := &r.source.nodes[n]
			if n < p.fixed || m.kind != '{' || m.members > 0 || r.changes.puts[to] == nil {
				continue
			}
			if p.nodes[n].comesBack || r.restoredIn(n) { // It stays in any case.
				continue
			}
			if place := p.nodes[n].path; !r.complement.keeps(place) { // Another value may have moved into it, too.
				r.complement.keepAbsent(place, emptyObject)
			}
		}
	}
}

// prune removes objects that have become empty; the conversion back creates them again with their values. It keeps an
// object if the target version has values in it, unless all of its content moved elsewhere. It also keeps an object
// with a value that is only in the annotation, because the conversion back would not create the object. In a partial
// object, requirements of the version do not count: the object has only the fields that its manager has applied.
func (r *parents) prune() {
	if len(r.changes.deleted) == 0 {
		return
	}
	p := r.source.plan
	for n := len(p.nodes) - 1; n >= p.fixed; n-- { // Children come after their parents.
		m := &r.source.nodes[n]
		if m.members == 0 || m.members != r.changes.removedFrom(n) {
			continue
		}
		required := p.nodes[n].required && !r.source.partial
		if required || r.wasEmpty(n) || p.nodes[n].stays && !r.movedAway(n) || r.changes.anyGoneIn(n) {
			continue
		}
		r.changes.removeParent(n)
	}
}

// wasEmpty reports whether the object at a node was empty before its values moved into it.
func (r *parents) wasEmpty(n int) bool {
	e := r.complement.entryOfAbsent(r.source.plan.nodes[n].path)
	return e != nil && isEmptyObject(e.value)
}

// restoredIn reports whether the annotation restores a value into the object at a node. On the way back, this value
// will be only in the annotation, so the object must stay.
func (r *parents) restoredIn(n int) bool {
	restored := func(f field) bool { return r.isRestored(&f, n) }
	return slices.ContainsFunc(r.source.plan.fields, restored) || slices.ContainsFunc(r.source.plan.fills, restored)
}

// isRestored reports whether the annotation restores this value into the object at a node: the value is put there, is
// not in the source, and is not the default.
func (r *parents) isRestored(f *field, n int) bool {
	return !r.source.hasAny(f.from.nodes) && slices.ContainsFunc(f.to.nodes, func(to int) bool {
		put := r.changes.puts[to]
		return put != nil && r.source.plan.isIn(to, n) && (f.fill == nil || !r.comparer.equal(put, f.fill))
	})
}

// movesOut reports whether a value of the object at a node has another place in the target version, and so comes back
// from there.
func (r *parents) movesOut(n int) bool {
	return slices.ContainsFunc(r.source.plan.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && r.changes.putsAny(f.to.nodes)
	})
}

// keepsIn reports whether a value of the object at a node is missing in the target version. Parents after index i have
// been processed.
func (r *parents) keepsIn(n, i int) bool {
	p := r.source.plan
	inside := slices.ContainsFunc(p.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && !r.changes.putsAny(f.to.nodes)
	})
	return inside || slices.ContainsFunc(p.leaving[i+1:], func(f field) bool {
		return p.isIn(f.from.nodes[0], n) && r.complement.keeps(f.from.place)
	})
}

// movedAway reports whether the whole content of the object at a node has other places in the target version, and so
// comes back from there. Both versions have the object. Only defaults were removed from it, and no parent in it is
// kept.
func (r *parents) movedAway(n int) bool {
	p := r.source.plan
	return r.changes.puts[n] == nil && r.movesOut(n) &&
		!slices.ContainsFunc(p.fields, func(f field) bool { return r.isNowhere(&f, n) }) &&
		!slices.ContainsFunc(p.leaving, func(f field) bool { return r.isLeft(&f, n) })
}

// isNowhere reports whether a value in the object at a node is missing in the target version, and is not a default that
// the source version fills in again.
func (r *parents) isNowhere(f *field, n int) bool {
	if !r.source.hasAnyIn(f.from.nodes, n) || r.changes.putsAny(f.to.nodes) {
		return false
	}
	if len(f.to.nodes) > 0 || f.fill == nil {
		return true
	}
	return !r.comparer.equal(r.source.value(f.from.nodes[0]), f.fill) // It has one node, which is present.
}

// isLeft reports whether a parent inside the object at a node was empty, or is kept.
func (r *parents) isLeft(f *field, n int) bool {
	m := &r.source.nodes[f.from.nodes[0]]
	return m.present && r.source.plan.isIn(f.from.nodes[0], n) && (m.members == 0 || r.complement.keeps(f.from.place))
}

// isIn reports whether a node is below another one.
func (p *plan) isIn(n, outer int) bool {
	for n != nodeRoot {
		if n = p.nodes[n].parent; n == outer {
			return true
		}
	}
	return false
}
