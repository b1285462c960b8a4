package convert

import (
	"cmp"
	"slices"
)

// SpokeParent says that only the spoke has an object at this place, as the parent of values
// for which there are conversions. On the way to the hub it goes with the last of them;
// on the way back it comes with the first. If none of them would bring it back, as with an
// empty object or one of which all is kept in the annotation, it is kept there, too. It
// stays if something is left in it that no conversion names. It may be inside another
// parent.
func SpokeParent(place string) Conversion { return parent(place, spokeSide) }

// HubParent is [SpokeParent] for an object that only the hub has.
func HubParent(place string) Conversion { return parent(place, hubSide) }

// SpokeRequires says that the spoke requires the object at this place, which both versions
// have: if nothing is left in it on the way to the spoke it stays, as {}.
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

// addParent adds a parent that one of the versions has. Nodes inside others come behind these,
// so that parents ordered by their nodes have the outer ones first.
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

// parents decides which of the objects that values are in come, stay and go. Nobody has
// converted these: they are made when a value moves into them, and go when nothing is left
// in them. So it takes care that each of them comes back as it was: one that would not come
// back with its values, or would go with them, is kept in the annotation.
type parents struct {
	source     *source
	changes    *changes
	complement *complement
	comparer   *comparer
}

// comeBack puts the parents back that were kept, so that what was in them can be: those of
// which a value is kept that begins with this byte, an object or null.
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

// leave takes the parents away that only the version before has and that nothing is left in,
// the inner ones first. One that comes back with a value that moved out of it is not kept.
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

// keepEmpty keeps the objects that were empty before values moved into them. On the way back
// they would go with these.
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
			for n >= p.fixed && !r.source.nodes[n].present { // It was made for the value, in one that may have been empty.
				n = p.nodes[n].parent
			}
			m := &r.source.nodes[n]
			if n < p.fixed || m.kind != '{' || m.members > 0 || r.changes.puts[to] == nil {
				continue
			}
			if p.nodes[n].comesBack || r.restoredIn(n) { // It stays anyway.
				continue
			}
			if place := p.nodes[n].path; !r.complement.keeps(place) { // Another value may have moved into it, too.
				r.complement.keepAbsent(place, emptyObject)
			}
		}
	}
}

// prune takes the objects away that nothing is left in, and that only the version that the
// object had has values in: they were made for these. Where a value comes back to from the
// annotation alone, nothing else would make them. A partial object has what its manager
// has applied, whatever the version requires.
func (r *parents) prune() {
	if len(r.changes.deleted) == 0 {
		return
	}
	p := r.source.plan
	for n := len(p.nodes) - 1; n >= p.fixed; n-- { // Children come behind their parents.
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

// wasEmpty reports whether the object at a node was empty before the values moved into it
// that it has.
func (r *parents) wasEmpty(n int) bool {
	e := r.complement.entryOfAbsent(r.source.plan.nodes[n].path)
	return e != nil && isEmptyObject(e.value)
}

// restoredIn reports whether a value comes into the object at a node from the annotation. It
// will be in the annotation alone on the way back, and have the object stay.
func (r *parents) restoredIn(n int) bool {
	restored := func(f field) bool { return r.isRestored(&f, n) }
	return slices.ContainsFunc(r.source.plan.fields, restored) || slices.ContainsFunc(r.source.plan.fills, restored)
}

// isRestored reports whether a value comes into the object at a node from the annotation: it
// is put there, is nowhere in the source, and is no default.
func (r *parents) isRestored(f *field, n int) bool {
	return !r.source.hasAny(f.from.nodes) && slices.ContainsFunc(f.to.nodes, func(to int) bool {
		put := r.changes.puts[to]
		return put != nil && r.source.plan.isIn(to, n) && (f.fill == nil || !r.comparer.equal(put, f.fill))
	})
}

// movesOut reports whether a value in the object at a node is elsewhere in the wanted
// version, from where it comes back.
func (r *parents) movesOut(n int) bool {
	return slices.ContainsFunc(r.source.plan.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && r.changes.putsAny(f.to.nodes)
	})
}

// keepsIn reports whether something in the object at a node is nowhere in the wanted
// version. Parents behind i have been seen to.
func (r *parents) keepsIn(n, i int) bool {
	p := r.source.plan
	inside := slices.ContainsFunc(p.fields, func(f field) bool {
		return r.source.hasAnyIn(f.from.nodes, n) && !r.changes.putsAny(f.to.nodes)
	})
	return inside || slices.ContainsFunc(p.leaving[i+1:], func(f field) bool {
		return p.isIn(f.from.nodes[0], n) && r.complement.keeps(f.from.place)
	})
}

// movedAway reports whether what was in the object at a node, which both versions have, is
// elsewhere in the wanted version, so that it comes back from there: nothing was taken away
// but defaults, and no parent in it is kept.
func (r *parents) movedAway(n int) bool {
	p := r.source.plan
	return r.changes.puts[n] == nil && r.movesOut(n) &&
		!slices.ContainsFunc(p.fields, func(f field) bool { return r.isNowhere(&f, n) }) &&
		!slices.ContainsFunc(p.leaving, func(f field) bool { return r.isLeft(&f, n) })
}

// isNowhere reports whether a value in the object at a node is not in the wanted version,
// and is no default that it gets again.
func (r *parents) isNowhere(f *field, n int) bool {
	if !r.source.hasAnyIn(f.from.nodes, n) || r.changes.putsAny(f.to.nodes) {
		return false
	}
	if len(f.to.nodes) > 0 || f.fill == nil {
		return true
	}
	return !r.comparer.equal(r.source.value(f.from.nodes[0]), f.fill) // It is one node, which is present.
}

// isLeft reports whether a parent in the object at a node was empty, or is kept.
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
