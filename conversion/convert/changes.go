package convert

import "slices"

// edit replaces a part of a document.
type edit struct {
	start, end int
	text       []byte
}

// edits are edits of one document, and do not overlap. Before [edits.render] they are sorted.
type edits []edit

// render returns a part of the document after all edits inside this part.
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

// changes are the planned changes of a source. A replacement of a value at its place becomes an edit at once. Removals,
// and values for other places, are recorded as sets of nodes until planning ends, because their commas and parents
// depend on the other changes. The [writer] then converts these sets to edits.
type changes struct {
	source *source
	edits  edits
	// puts has the value to put at each node; nil for none. [below] marks an object that gets other values.
	puts [][]byte
	// inserts is true if puts is not empty.
	inserts bool
	deleted []int
	// gone are the nodes whose values will exist only in the annotation.
	gone []int
}

// reset clears the changes for a source that was just read.
func (c *changes) reset() {
	clear(c.puts[:len(c.source.plan.nodes)])
	c.edits, c.inserts, c.deleted, c.gone = c.edits[:0], false, c.deleted[:0], c.gone[:0]
}

// replace plans a new value for a node that the source has.
func (c *changes) replace(n int, text []byte) {
	f := &c.source.nodes[n]
	c.edits = append(c.edits, edit{start: f.start, end: f.end, text: text})
}

// put plans a value for a node that the source does not have or that is removed. It also plans the missing parents of
// the node.
func (c *changes) put(n int, text []byte) {
	p := c.source.plan
	c.puts[n], c.inserts = text, true
	for n = p.nodes[n].parent; n != nodeRoot; n = p.nodes[n].parent {
		if c.puts[n] == nil {
			c.puts[n] = below
		}
	}
}

// below marks an object that gets other values.
var below = []byte("{")

func isBelow(text []byte) bool { return len(text) == 1 && text[0] == '{' }

// putsAny reports whether a value is put at one of the nodes.
func (c *changes) putsAny(nodes []int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return c.puts[n] != nil })
}

// remove plans the removal of the value at a node.
func (c *changes) remove(n int) { c.deleted = append(c.deleted, n) }

// removeParent plans the removal of an object whose members are all removed. This removal replaces the removals of the
// members, so that edits do not overlap.
func (c *changes) removeParent(n int) {
	p := c.source.plan
	c.deleted = slices.DeleteFunc(c.deleted, func(d int) bool { return p.nodes[d].parent == n })
	c.remove(n)
}

// removedFrom returns the number of members that are removed from the object at a node.
func (c *changes) removedFrom(n int) int {
	total := 0
	for _, d := range c.deleted {
		if c.source.plan.nodes[d].parent == n {
			total++
		}
	}
	return total
}

// anyGoneIn reports whether the object at a node contains a value that will exist only in the annotation.
func (c *changes) anyGoneIn(n int) bool {
	return slices.ContainsFunc(c.gone, func(g int) bool { return c.source.plan.isIn(g, n) })
}

// hasParent reports whether a value can be put at a node: its parent is an object of the source, or will be one.
func (c *changes) hasParent(n int) bool {
	parent := c.source.plan.nodes[n].parent
	f := &c.source.nodes[parent]
	return c.puts[parent] != nil || f.present && f.kind == '{'
}

// release drops the references to values, and keeps the memory for the next object.
func (c *changes) release() {
	clear(c.edits[:cap(c.edits)])
	clear(c.puts)
}
