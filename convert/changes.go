package convert

import "slices"

// edit replaces a part of a document.
type edit struct {
	start, end int
	text       []byte
}

// edits are of one document, and do not overlap. Those in a part that is rendered are ordered.
type edits []edit

// render returns a part of the document as the edits that are in it make it.
func (all edits) render(document []byte, start, end int) []byte {
	size := end - start
	for _, e := range all {
		if e.start >= start && e.end <= end {
			size += len(e.text) - (e.end - e.start)
		}
	}
	out := make([]byte, 0, size)
	for _, e := range all {
		if e.start < start || e.end > end {
			continue
		}
		out = append(append(out, document[start:e.start]...), e.text...)
		start = e.end
	}
	return append(out, document[start:end]...)
}

// changes are what is to become of a source, as it is planned. Values that are replaced
// where they are become edits at once. What is taken away and what is put elsewhere stays a
// set of nodes until all is planned, since what is around it depends on the rest: parents,
// and commas. The [writer] makes edits of these.
type changes struct {
	source *source
	edits  edits
	// puts are the values to put, by node: [below] for an object that others are put into,
	// nil for nothing.
	puts [][]byte
	// inserts says that there are puts.
	inserts bool
	deleted []int
	// gone are the nodes whose values are in the annotation alone.
	gone []int
}

// reset makes the changes those of a source that was just read, of which nothing is planned.
func (c *changes) reset() {
	clear(c.puts[:len(c.source.plan.nodes)])
	c.edits, c.inserts, c.deleted, c.gone = c.edits[:0], false, c.deleted[:0], c.gone[:0]
}

// replace plans another value for a node that is there.
func (c *changes) replace(n int, text []byte) {
	f := &c.source.nodes[n]
	c.edits = append(c.edits, edit{start: f.start, end: f.end, text: text})
}

// put plans a value for a node that is not there, or that is taken away. Parents that are
// not there are made for it.
func (c *changes) put(n int, text []byte) {
	p := c.source.plan
	c.puts[n], c.inserts = text, true
	for n = p.nodes[n].parent; n != nodeRoot; n = p.nodes[n].parent {
		if c.puts[n] == nil {
			c.puts[n] = below
		}
	}
}

// below stands for an object in which something is put.
var below = []byte("{")

func isBelow(text []byte) bool { return len(text) == 1 && text[0] == '{' }

// putsAny reports whether a value is put at one of the nodes.
func (c *changes) putsAny(nodes []int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return c.puts[n] != nil })
}

// remove plans that the value at a node goes.
func (c *changes) remove(n int) { c.deleted = append(c.deleted, n) }

// removeParent plans that an object goes whose members all go. It takes their place, so that
// no text is taken away twice.
func (c *changes) removeParent(n int) {
	p := c.source.plan
	c.deleted = slices.DeleteFunc(c.deleted, func(d int) bool { return p.nodes[d].parent == n })
	c.remove(n)
}

// removedFrom returns how many members of the object at a node go.
func (c *changes) removedFrom(n int) int {
	total := 0
	for _, d := range c.deleted {
		if c.source.plan.nodes[d].parent == n {
			total++
		}
	}
	return total
}

// anyGoneIn reports whether a value below a node is in the annotation alone.
func (c *changes) anyGoneIn(n int) bool {
	return slices.ContainsFunc(c.gone, func(g int) bool { return c.source.plan.isIn(g, n) })
}

// hasParent reports whether there is an object, as far as it is planned, to put something
// into.
func (c *changes) hasParent(n int) bool {
	parent := c.source.plan.nodes[n].parent
	f := &c.source.nodes[parent]
	return c.puts[parent] != nil || f.present && f.kind == '{'
}

// release makes the changes forget the values, but keeps the memory for the next ones.
func (c *changes) release() {
	clear(c.edits[:cap(c.edits)])
	clear(c.puts)
}
