package convert

import (
	"bytes"
	"errors"
	"slices"

	"refract.dev/tree/raw"
)

// nodeState is the state of a node in the source. Offsets refer to the text of the source.
type nodeState struct {
	present bool
	kind    byte // The first byte of the value.
	// key is the start of the key. start and end are the bounds of the value.
	key, start, end int
	// before is the end of the previous member, and next is the start of the next member; -1 without such a member.
	before, next int
	// last is the end of the last member of an object or, for an empty object, the offset after the opening brace.
	last, members int
}

// source is an object, or an element of a list or table, that was read for a plan. It has the offsets of the values
// that the plan names, and decodes none of them. All other values are skipped, and copied later.
type source struct {
	plan  *plan
	text  []byte // The document that the offsets refer to.
	nodes []nodeState
	// partial is true if the object has only the applied fields of a field manager. The annotation keeps nothing for
	// such an object.
	partial bool
	// trouble is an error in the content of a valid JSON object, such as a duplicate key.
	trouble error
	keys    [][]byte // The keys of the objects around the current value that must not have duplicate keys.
}

// read reads the next object or element. After a problem it continues to read, because the error needs the name of the
// object, and the scanner must reach the end of the object.
func (o *source) read(s *raw.Scanner, p *plan) {
	o.plan, o.text, o.trouble, o.keys = p, s.Document(), nil, o.keys[:0]
	clear(o.nodes[:len(p.nodes)])
	o.nodes[nodeRoot].present = true
	o.readNode(s, nodeRoot)
}

// readNode reads the value of a node. If the value is an object, it also reads the nodes inside it.
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
	// API servers decode the root and metadata into Go structs. Of two equal keys they use the last one, so here a
	// duplicate key is always an error, even without a node for the key.
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

var errTwice = errors.New("duplicate key")

// once records a key of an object, and a problem if the key is a duplicate. The keys of the object begin at base in
// o.keys. seen has these keys as well, once there are many: a few keys are compared faster than a map is allocated, but
// a linear search in many keys would take quadratic time.
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

// fail records a problem. It keeps an earlier problem.
func (o *source) fail(err error) {
	if o.trouble == nil {
		o.trouble = err
	}
}

// value returns the value at a node, which must be present. Its capacity ends with the value, because the document
// continues after it.
func (o *source) value(n int) []byte {
	f := &o.nodes[n]
	return o.text[f.start:f.end:f.end]
}

// textAt returns the text of the string at a node; "" if the value is not a string.
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

// hasText reports whether the value at a node is a non-empty string. Unlike textAt, it allocates no memory.
func (o *source) hasText(n int) bool {
	f := &o.nodes[n]
	return f.present && f.kind == '"' && f.end-f.start > len(`""`)
}

// hasAny reports whether any of the nodes is present.
func (o *source) hasAny(nodes []int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return o.nodes[n].present })
}

// hasAnyIn reports whether any of the nodes is present and inside the outer node.
func (o *source) hasAnyIn(nodes []int, outer int) bool {
	return slices.ContainsFunc(nodes, func(n int) bool { return o.nodes[n].present && o.plan.isIn(n, outer) })
}

// release drops the references to the document, and keeps the memory for the next object.
func (o *source) release() {
	o.text, o.trouble = nil, nil
	const many = 1 << 10
	if cap(o.keys) > many {
		o.keys = nil
	}
	clear(o.keys[:cap(o.keys)])
}
