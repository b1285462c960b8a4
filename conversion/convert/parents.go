package convert

import (
	"cmp"
	"slices"
)

// SpokeParent declares an object that only the spoke has, as the parent of converted values. On the way to the hub, the
// object is removed with its last value. On the way back, the first value creates it again. If the object is empty, or
// the annotation keeps all its values, no value would create it. So the annotation keeps the object as well. An object
// with members that no conversion names stays. The object may be inside another parent.
func SpokeParent(place string) Conversion { return parent(place, spokeSide) }

// HubParent is [SpokeParent] for an object that only the hub has.
func HubParent(place string) Conversion { return parent(place, hubSide) }

// SpokeRequires declares that the schema of the spoke requires the object at this place, which both versions have. If
// the object becomes empty on the way to the spoke, it stays, as {}.
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

// addParent adds a parent that only one of the versions has. The parents are sorted by node, so the outer ones come
// first: a node has a higher index than its parent.
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

// parents decides which parents of values are created, kept and removed. A parent has no conversion of its own: a value
// that moves into a missing parent creates it, and an empty parent is removed. So the annotation keeps a parent that no
// value would create again, or that would be removed with its values.
type parents struct {
	source     *source
	changes    *changes
	complement *complement
	comparer   *comparer
}

// comeBack restores those kept parents whose kept value begins with this byte. It runs before values are put into them.
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

// leave removes the empty parents that only the source version has, inner ones first. The annotation keeps such a
// parent unless a value that moved out of it will create it again.
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

// keepEmpty keeps each object that was empty before a value moved into it. Otherwise the conversion back would remove
// the object with the value.
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
			for n >= p.fixed && !r.source.nodes[n].present { // The parent was created for the value. The object around it may have been empty.
				n = p.nodes[n].parent
			}
			m := &r.source.nodes[n]
			if n < p.fixed || m.kind != '{' || m.members > 0 || r.changes.puts[to] == nil {
				continue
			}
			if p.nodes[n].comesBack || r.restoredIn(n) { // It stays in any case.
				continue
			}
			if place := p.nodes[n].path; !r.complement.keeps(place) { // Another value may also have moved into it.
				r.complement.keepAbsent(place, emptyObject)
			}
		}
	}
}

// prune removes the objects that have become empty. The conversion back creates them again with their values. An object
// stays if the target version has values in it, unless its whole content moved elsewhere. It also stays if a value of
// it is only in the annotation, because the conversion back would not create the object. A partial object has only the
// fields that its manager has applied, so required objects are removed as well.
func (r *parents) prune() {
	if len(r.changes.deleted) == 0 {
		return
	}
	p := r.source.plan
	for n := len(p.nodes) - 1; n >= p.fixed; n-- { // Children have higher indexes than their parents.
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

// wasEmpty reports whether the object at a node was empty before values moved into it.
func (r *parents) wasEmpty(n int) bool {
	e := r.complement.entryOfAbsent(r.source.plan.nodes[n].path)
	return e != nil && isEmptyObject(e.value)
}

// restoredIn reports whether a value from the annotation is restored into the object at a node. The conversion back
// moves this value only into the annotation, so the object must stay.
func (r *parents) restoredIn(n int) bool {
	restored := func(f field) bool { return r.isRestored(&f, n) }
	return slices.ContainsFunc(r.source.plan.fields, restored) || slices.ContainsFunc(r.source.plan.fills, restored)
}

// isRestored reports whether the value of a field is restored from the annotation into the object at a node: the value
// is put there, it is not in the source, and it is not the default.
func (r *parents) isRestored(f *field, n int) bool {
	return !r.source.hasAny(f.from.nodes) && slices.ContainsFunc(f.to.nodes, func(to int) bool {
		put := r.changes.puts[to]
		return put != nil && r.source.plan.isIn(to, n) && (f.fill == nil || !r.comparer.equal(put, f.fill))
	})
}

// movesOut reports whether a value of the object at a node moves to a place in the target version. The conversion back
// will move it back.
func (r *parents) movesOut(n int) bool {
	return slices.ContainsFunc(r.source.plan.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && r.changes.putsAny(f.to.nodes)
	})
}

// keepsIn reports whether a value of the object at a node has no place in the target version. The parents after index i
// have already been processed.
func (r *parents) keepsIn(n, i int) bool {
	p := r.source.plan
	inside := slices.ContainsFunc(p.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && !r.changes.putsAny(f.to.nodes)
	})
	return inside || slices.ContainsFunc(p.leaving[i+1:], func(f field) bool {
		return p.isIn(f.from.nodes[0], n) && r.complement.keeps(f.from.place)
	})
}

// movedAway reports whether the whole content of the object at a node moves to other places of the target version, so
// that the conversion back restores it. Both versions have the object. Only defaults may be removed from it, and no
// parent inside it may be kept.
func (r *parents) movedAway(n int) bool {
	p := r.source.plan
	return r.changes.puts[n] == nil && r.movesOut(n) &&
		!slices.ContainsFunc(p.fields, func(f field) bool { return r.isNowhere(&f, n) }) &&
		!slices.ContainsFunc(p.leaving, func(f field) bool { return r.isLeft(&f, n) })
}

// isNowhere reports whether a value of the object at a node has no place in the target version and will not come back
// as a default.
func (r *parents) isNowhere(f *field, n int) bool {
	if !r.source.hasAnyIn(f.from.nodes, n) || r.changes.putsAny(f.to.nodes) {
		return false
	}
	if len(f.to.nodes) > 0 || f.fill == nil {
		return true
	}
	return !r.comparer.equal(r.source.value(f.from.nodes[0]), f.fill) // The value has one node, and the source has it.
}

// isLeft reports whether a parent inside the object at a node was empty or is kept.
func (r *parents) isLeft(f *field, n int) bool {
	m := &r.source.nodes[f.from.nodes[0]]
	return m.present && r.source.plan.isIn(f.from.nodes[0], n) && (m.members == 0 || r.complement.keeps(f.from.place))
}

// isIn reports whether a node is inside another one, at any depth.
func (p *plan) isIn(n, outer int) bool {
	for n != nodeRoot {
		if n = p.nodes[n].parent; n == outer {
			return true
		}
	}
	return false
}
