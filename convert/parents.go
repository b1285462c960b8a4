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

// addParent adds a parent that one of the versions has.
func (p *plan) addParent(f *field) {
	byNode := func(a, b field) int {
		return cmp.Compare(slices.Max(slices.Concat(a.from, a.to)), slices.Max(slices.Concat(b.from, b.to)))
	}
	if len(f.from) > 0 {
		p.leaving = append(p.leaving, *f)
		slices.SortFunc(p.leaving, byNode)
		p.stay(p.nodes[f.from[0]].parent)
		return
	}
	p.nodes[f.to[0]].returns = true
	p.stay(f.to[0])
	p.returning = append(p.returning, *f)
	slices.SortFunc(p.returning, byNode)
}

// returnParents puts the parents back that were kept, so that what was in them can be.
func (w *converter) returnParents(p *plan) {
	for i := range p.returning {
		f := &p.returning[i]
		n := f.to[0]
		if e := w.keptParent(f); e != nil && e.value[0] == '{' && !w.nodes[n].present && w.hasParent(p, n) {
			w.put(p, n, below)
		}
	}
}

// returnNulls puts null back where it was at the places of parents.
func (w *converter) returnNulls(p *plan) {
	for i := range p.returning {
		f := &p.returning[i]
		n := f.to[0]
		if e := w.keptParent(f); e != nil && e.value[0] == 'n' && !w.nodes[n].present && w.puts[n] == nil && w.hasParent(p, n) {
			w.put(p, n, null)
		}
	}
}

func (w *converter) keptParent(f *field) *entry {
	if e := w.entryOf(f.target); e != nil && e.value != nil && e.of == absent {
		return e
	}
	return nil
}

// leaveParents takes the parents away that nothing is left in, the inner ones first.
func (w *converter) leaveParents(p *plan, partial bool) {
	for i := range slices.Backward(p.leaving) {
		f := &p.leaving[i]
		n := f.from[0]
		m := &w.nodes[n]
		switch {
		case !m.present, m.kind != '{' && m.kind != 'n', m.members != w.deletedIn(p, n):
			continue
		case m.kind == 'n':
			w.takeAway(f, w.src[m.start:m.end:m.end], partial)
			continue
		}
		returns := w.movesOut(p, n) && !w.keepsIn(p, n, i)
		w.deleted = slices.DeleteFunc(w.deleted, func(d int) bool { return p.nodes[d].parent == n })
		w.deleted = append(w.deleted, n)
		if !partial && !returns {
			w.complement.kept = append(w.complement.kept, entry{place: f.place, value: emptyObject, of: absent})
		}
	}
}

// keepEmpty keeps the objects that were empty before values moved into them. On the way back
// they would go with these.
func (w *converter) keepEmpty(p *plan) {
	for i := range p.fields {
		f := &p.fields[i]
		if !slices.ContainsFunc(f.from, func(from int) bool { return w.nodes[from].present }) {
			continue
		}
		for _, to := range f.to {
			n := p.nodes[to].parent
			for n >= p.fixed && !w.nodes[n].present { // It was made for the value, in one that may have been empty.
				n = p.nodes[n].parent
			}
			m := &w.nodes[n]
			if n < p.fixed || w.puts[to] == nil || m.kind != '{' || m.members > 0 || p.nodes[n].comesBack || w.restoredIn(p, n) {
				continue
			}
			if place := p.nodes[n].path; !slices.ContainsFunc(w.complement.kept, func(e entry) bool { return e.place == place }) {
				w.complement.kept = append(w.complement.kept, entry{place: place, value: emptyObject, of: absent})
			}
		}
	}
}

// restoredIn reports whether a value comes into the object at a node from the annotation. It
// will be in the annotation alone on the way back, and have the object stay.
func (w *converter) restoredIn(p *plan, n int) bool {
	return slices.ContainsFunc(p.fields, func(f field) bool { return w.isRestored(p, f, n) }) ||
		slices.ContainsFunc(p.fills, func(f field) bool { return w.isRestored(p, f, n) })
}

func (w *converter) isRestored(p *plan, f field, n int) bool {
	return !slices.ContainsFunc(f.from, func(from int) bool { return w.nodes[from].present }) &&
		slices.ContainsFunc(f.to, func(to int) bool {
			return w.puts[to] != nil && p.isIn(to, n) && (f.fill == nil || !w.comparer.equal(w.puts[to], f.fill))
		})
}

// wasEmpty reports whether the object at a node was empty before the values moved into it
// that it has.
func (w *converter) wasEmpty(p *plan, n int) bool {
	e := w.entryOf(p.nodes[n].path)
	return e != nil && e.of == absent && isEmptyObject(e.value)
}

// movesOut reports whether a value in the object at a node is elsewhere in the wanted
// version, from where it comes back.
func (w *converter) movesOut(p *plan, n int) bool {
	return slices.ContainsFunc(p.fields, func(f field) bool {
		return slices.ContainsFunc(f.from, func(from int) bool { return w.nodes[from].present && p.isIn(from, n) }) &&
			slices.ContainsFunc(f.to, func(to int) bool { return w.puts[to] != nil })
	})
}

// keepsIn reports whether something in the object at a node is nowhere in the wanted
// version. Parents behind i have been seen to.
func (w *converter) keepsIn(p *plan, n, i int) bool {
	inside := slices.ContainsFunc(p.fields, func(f field) bool {
		return slices.ContainsFunc(f.from, func(from int) bool { return w.nodes[from].present && p.isIn(from, n) }) &&
			!slices.ContainsFunc(f.to, func(to int) bool { return w.puts[to] != nil })
	})
	return inside || slices.ContainsFunc(p.leaving[i+1:], func(f field) bool {
		return p.isIn(f.from[0], n) && slices.ContainsFunc(w.complement.kept, func(e entry) bool { return e.place == f.place })
	})
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

// movedAway reports whether what was in the object at a node, which both versions have, is
// elsewhere in the wanted version, so that it comes back from there: nothing was taken away
// but defaults, and no parent in it is kept.
func (w *converter) movedAway(p *plan, n int) bool {
	return w.puts[n] == nil && w.movesOut(p, n) &&
		!slices.ContainsFunc(p.fields, func(f field) bool { return w.isNowhere(p, f, n) }) &&
		!slices.ContainsFunc(p.leaving, func(f field) bool { return w.isLeft(p, f, n) })
}

// isNowhere reports whether a value in the object at a node is not in the wanted version,
// and is no default that it gets again.
func (w *converter) isNowhere(p *plan, f field, n int) bool {
	if !slices.ContainsFunc(f.from, func(from int) bool { return w.nodes[from].present && p.isIn(from, n) }) ||
		slices.ContainsFunc(f.to, func(to int) bool { return w.puts[to] != nil }) {
		return false
	}
	m := &w.nodes[f.from[0]]
	again := len(f.to) == 0 && f.fill != nil && m.present && w.comparer.equal(w.src[m.start:m.end], f.fill)
	return !again
}

// isLeft reports whether a parent in the object at a node was empty, or is kept.
func (w *converter) isLeft(p *plan, f field, n int) bool {
	m := &w.nodes[f.from[0]]
	return m.present && p.isIn(f.from[0], n) &&
		(m.members == 0 || slices.ContainsFunc(w.complement.kept, func(e entry) bool { return e.place == f.place }))
}
