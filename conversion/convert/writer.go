package convert

import (
	"cmp"
	"fmt"
	"slices"
)

// writer converts changes to edits of the text, so that unchanged text stays byte for byte. Its only decisions are
// about commas.
type writer struct {
	source  *source
	changes *changes
	arena   *arena
}

// write completes the edits of the changes, and sorts them. Edits at the same offset stay in planned order, since
// several members may be inserted after one member.
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

// remove removes members, each with one comma: the comma before it, or the comma after it if no earlier member remains.
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

// leads reports whether all members before a deleted one are deleted, too. Such members are adjacent: the end of each
// is the before of the next.
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

// insert adds members to an object that is present: after its last member, in the order of the plan.
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
		case m.kind == 'n': // A null parent becomes an object.
			c.replace(child, w.arena.keep(w.build(w.arena.room(), child)))
		default:
			return at(p.nodes[child].path,
				fmt.Errorf("want an object for a value of %s, got %s", p.from, describe(m.kind)))
		}
	}
	return nil
}

// build appends the value that is put at an absent node.
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

// arena allocates memory for many small texts. Referenced texts stay valid: an answer refers to them while the
// converter already serves another request.
type arena struct {
	free []byte // Its length is 0; its capacity is free.
	next int
}

// room returns free memory of length 0 to append to. It returns the same memory until keep is called.
func (a *arena) room() []byte {
	const least, first, most = 256, 1 << 10, 64 << 10
	if cap(a.free) < least {
		a.next = min(max(a.next*2, first), most)
		a.free = make([]byte, 0, a.next)
	}
	return a.free
}

// keep keeps a text that was appended to the memory of room, and returns it. A text that outgrew that memory already
// has its own memory.
func (a *arena) keep(text []byte) []byte {
	if n := len(text); n > 0 && n <= cap(a.free) && &text[0] == &a.free[:1][0] {
		a.free = a.free[n:n]
		return text[:n:n]
	}
	return text
}
