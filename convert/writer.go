package convert

import (
	"cmp"
	"fmt"
	"slices"
)

// writer turns changes into edits of the text, so that what nobody changed stays as it
// stands, byte for byte. It decides nothing but where commas are.
type writer struct {
	source  *source
	changes *changes
	arena   *arena
}

// write completes the edits of the changes, and orders them. Edits that begin at the same
// byte stay in the order that they were planned in: several members may be put behind one.
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

// remove takes members away, each with one comma: the one before it, or the one behind it if
// no member before it remains.
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

// leads reports whether all members before a deleted one are deleted, too. Those are next to
// each other: each ends where the one behind it says that the one before it does.
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

// insert adds members to the object at a node, which is there: behind its last one, in the
// order of the plan.
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
		case m.kind == 'n': // A parent that is null is made an object.
			c.replace(child, w.arena.keep(w.build(w.arena.room(), child)))
		default:
			return at(p.nodes[child].path,
				fmt.Errorf("want an object to put a value of %s into, got %s", p.from, describe(m.kind)))
		}
	}
	return nil
}

// build appends what is put at a node that is not there.
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

// arena is memory for many small texts, which stay as long as anybody needs them: an answer
// refers to them after the converter has gone on to another request.
type arena struct {
	free []byte // Has no length, but a capacity.
	next int
}

// room returns memory to append to, with no length. It is the same until keep is called.
func (a *arena) room() []byte {
	const least, first, most = 256, 1 << 10, 64 << 10
	if cap(a.free) < least {
		a.next = min(max(a.next*2, first), most)
		a.free = make([]byte, 0, a.next)
	}
	return a.free
}

// keep keeps what was appended to the memory that room returned, and returns it. What has
// grown out of that memory has memory of its own already.
func (a *arena) keep(text []byte) []byte {
	if n := len(text); n > 0 && n <= cap(a.free) && &text[0] == &a.free[:1][0] {
		a.free = a.free[n:n]
		return text[:n:n]
	}
	return text
}
