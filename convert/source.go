package convert

import (
	"bytes"
	"errors"
	"slices"

	"refract.dev/tree/raw"
)

// nodeState is what is known of a node in the source. Offsets are in its text.
type nodeState struct {
	present bool
	kind    byte // The first byte of the value.
	// key is where the key begins, start and end where the value does and ends.
	key, start, end int
	// before is where the value of the member before it ends, next where the key of the one
	// behind it begins; -1 if there is none.
	before, next int
	// last is where the last member of an object ends, or behind its bracket if there is none.
	last, members int
}

// source is an object, or an element of a list or a table, as it was read for a plan. It
// knows where the values are that the plan names, and decodes none of them: what no plan
// names is passed over once, and copied later.
type source struct {
	plan  *plan
	text  []byte // The document that the offsets are in.
	nodes []nodeState
	// partial says that it is what one manager has applied, for which nothing is kept.
	partial bool
	// trouble is what is wrong with it although it is JSON.
	trouble error
	keys    [][]byte // Of the objects that are being read, whose keys may be there once.
}

// read reads the object or element that comes next. It does not stop at trouble: whoever
// reports that wants the name of the object as well, and the scanner behind it.
func (o *source) read(s *raw.Scanner, p *plan) {
	o.plan, o.text, o.trouble, o.keys = p, s.Document(), nil, o.keys[:0]
	clear(o.nodes[:len(p.nodes)])
	o.nodes[nodeRoot].present = true
	o.readNode(s, nodeRoot)
}

// readNode reads the value of a node, and those of the nodes in it if it is an object.
func (o *source) readNode(s *raw.Scanner, n int) {
	p, f := o.plan, &o.nodes[n]
	f.start, f.kind = s.Offset(), s.Next()
	if len(p.nodes[n].children) == 0 || f.kind != '{' {
		s.Value()
		f.end = s.Position()
		return
	}
	s.OpenObject()
	f.last = s.Position()
	// API servers read these two with types of their own, which take the last of two equal
	// keys. So none of their keys may be there twice, even if it is no node.
	all := p.apiVersion != nil && (n == nodeRoot || n == nodeMetadata)
	base := len(o.keys)
	var seen map[string]struct{}
	previous, before := -1, -1
	for first := true; ; first = false {
		key, start, ok := s.NextKey(first)
		if !ok {
			break
		}
		if previous >= 0 {
			o.nodes[previous].next = start
		}
		if all {
			seen = o.once(n, base, key, seen)
		}
		previous = p.child(n, key)
		switch {
		case previous < 0:
			s.Value()
		case o.nodes[previous].present:
			o.fail(at(join(p.nodes[n].path, string(key)), errTwice))
			s.Value()
		default:
			o.nodes[previous] = nodeState{present: true, key: start, before: before, next: -1}
			o.readNode(s, previous)
		}
		if s.Err() != nil {
			return
		}
		before = s.Position()
		f.last = before
		f.members++
	}
	f.end = s.Position()
	o.keys = o.keys[:base]
}

var errTwice = errors.New("the key is there twice")

// once remembers a key of an object, whose keys begin at base, and notes if it is there
// twice. Seen has them all when there are many: few are compared faster than a map is made,
// and many would take quadratic time.
func (o *source) once(n, base int, key []byte, seen map[string]struct{}) map[string]struct{} {
	const few = 32
	known := o.keys[base:]
	var twice bool
	switch {
	case seen != nil:
		_, twice = seen[string(key)]
		seen[string(key)] = struct{}{}
	case len(known) < few:
		twice = slices.ContainsFunc(known, func(k []byte) bool { return bytes.Equal(k, key) })
	default:
		seen = map[string]struct{}{}
		for _, k := range known {
			seen[string(k)] = struct{}{}
		}
		return o.once(n, base, key, seen)
	}
	if twice {
		o.fail(at(join(o.plan.nodes[n].path, string(key)), errTwice))
	}
	o.keys = append(o.keys, key)
	return seen
}

// fail notes what is wrong, unless something was before.
func (o *source) fail(err error) {
	if o.trouble == nil {
		o.trouble = err
	}
}

// value returns the value at a node that is present. Nothing can be appended to it, since
// the document goes on behind it.
func (o *source) value(n int) []byte {
	f := &o.nodes[n]
	return o.text[f.start:f.end:f.end]
}

// textAt returns the string at a node, "" if there is none.
func (o *source) textAt(n int) string {
	if f := &o.nodes[n]; !f.present || f.kind != '"' {
		return ""
	}
	text, err := raw.String(o.value(n))
	if err != nil {
		return ""
	}
	return text
}

// hasText reports whether there is a string at a node that is not empty. It does not decode
// the string, as textAt does: that would take memory for each object.
func (o *source) hasText(n int) bool {
	f := &o.nodes[n]
	return f.present && f.kind == '"' && f.end-f.start > len(`""`)
}

// hasAny reports whether one of the nodes is present.
func (o *source) hasAny(nodes []int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return o.nodes[n].present })
}

// hasAnyIn reports whether one of the nodes is present that are below another one.
func (o *source) hasAnyIn(nodes []int, outer int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return o.nodes[n].present && o.plan.isIn(n, outer) })
}

// release makes the source forget what it read, but keeps its memory for the next one.
func (o *source) release() {
	o.text, o.trouble = nil, nil
	const many = 1 << 10
	if cap(o.keys) > many {
		o.keys = nil
	}
	clear(o.keys[:cap(o.keys)])
}
