package convert

import (
	"cmp"
	"fmt"
	"slices"
)

// writer converts changes to edits, so that unchanged text stays byte for byte. It places the commas.
type writer struct {
	source  *source
	changes *changes
	arena   *arena
}

// write adds the edits for removals and new values, and sorts all edits. The sort is stable, because several members
// may be inserted after one member.
func (w writer) write() error {
	w.remove()
	if w.changes.inserts {
		if err := w.insert(nodeRoot); err != nil {
			return err
		}
	}
	slices.SortStableFunc(w.changes.edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// remove adds an edit for each removed member and one comma: the comma before the member or, if no member before it
// stays, the comma after it.
func (w writer) remove() {
	c := w.changes
	slices.SortFunc(c.deleted, func(a, b int) int { return cmp.Compare(w.source.nodes[a].key, w.source.nodes[b].key) })
	for i, n := range c.deleted {
		f := &w.source.nodes[n]
		if !w.leads(i) {
			c.edits = append(c.edits, edit{start: f.before, end: f.end})
			continue
		}
		end := f.next
		if end < 0 {
			end = f.end
		}
		c.edits = append(c.edits, edit{start: f.key, end: end})
	}
}

// leads reports whether all members before a removed member are also removed. In that case the end of each of them is
// the field before of the next one.
func (w writer) leads(i int) bool {
	deleted := w.changes.deleted
	for {
		f := &w.source.nodes[deleted[i]]
		if f.before < 0 {
			return true
		}
		j := i - 1
		for j >= 0 && w.source.nodes[deleted[j]].end != f.before {
			j--
		}
		if j < 0 || w.source.plan.nodes[deleted[j]].parent != w.source.plan.nodes[deleted[i]].parent {
			return false
		}
		i = j
	}
}

// insert adds members after the last member of an object, in the order of the plan. The source has the object.
func (w writer) insert(n int) error {
	p, c := w.source.plan, w.changes
	f := &w.source.nodes[n]
	comma := f.members > c.removedFrom(n)
	for _, child := range p.nodes[n].children {
		if c.puts[child] == nil {
			continue
		}
		m := &w.source.nodes[child]
		switch {
		case !m.present || slices.Contains(c.deleted, child):
			member := w.arena.room()
			if comma {
				member = append(member, ',')
			}
			member = w.arena.keep(w.build(append(member, p.nodes[child].quoted...), child))
			c.edits = append(c.edits, edit{start: f.last, end: f.last, text: member})
			comma = true
		case m.kind == '{':
			if err := w.insert(child); err != nil {
				return err
			}
		case m.kind == 'n': // Null becomes an object.
			c.replace(child, w.arena.keep(w.build(w.arena.room(), child)))
		default:
			return at(p.nodes[child].path,
				fmt.Errorf("want an object for a value of %s, got %s", p.from, describe(m.kind)))
		}
	}
	return nil
}

// build appends the new value of a node that the source does not have.
func (w writer) build(dst []byte, n int) []byte {
	p, puts := w.source.plan, w.changes.puts
	if !isBelow(puts[n]) {
		return append(dst, puts[n]...)
	}
	dst = append(dst, '{')
	comma := false
	for _, child := range p.nodes[n].children {
		if puts[child] == nil {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = w.build(append(dst, p.nodes[child].quoted...), child)
	}
	return append(dst, '}')
}

// arena allocates memory for many small texts. The memory of a text is never reused, because the answer still refers to
// it while the converter processes the next request.
type arena struct {
	free []byte // The length is 0; the capacity is unused.
	next int
}

// room returns unused memory of length 0 for a text. It returns the same memory again until keep is called.
func (a *arena) room() []byte {
	const least, first, most = 256, 1 << 10, 64 << 10
	if cap(a.free) < least {
		a.next = min(max(a.next*2, first), most)
		a.free = make([]byte, 0, a.next)
	}
	return a.free
}

// keep marks the memory of a text as used, and returns the text. The caller has appended the text to the result of
// room. If the text did not fit, append has allocated other memory for it.
func (a *arena) keep(text []byte) []byte {
	if n := len(text); n > 0 && n <= cap(a.free) && &text[0] == &a.free[:1][0] {
		a.free = a.free[n:n]
		return text[:n:n]
	}
	return text
}
