package admission

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/bits"

	"refract.dev/tree/raw"
)

// node is a JSON value that was read once, with all that is in it. The nil node is that
// there is no value.
type node struct {
	raw []byte
	// key is that of a member.
	key []byte
	// inside are the members of an object, or the elements of an array. Of a key that stands
	// there twice there is the last value, as for those who decode it.
	inside []node
	index  map[string]int // Of the members, where there are many.
	// hash differs if raw does, nearly always; and is the same if raw is.
	hash uint64
	// says is whether the value is not null, and has something in it that says something if
	// it is an object.
	says bool
	// silent is whether there is an object in it with a member that says nothing.
	silent bool
}

// fewMembers are found fastest by looking at each.
const fewMembers = 16

// document reads a document.
func (d *differ) document(text []byte) (*node, error) {
	out := &node{}
	s := raw.New(text)
	d.read(s, out)
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("reading what was encoded: %w", err)
	}
	return out, d.err
}

// read reads the value that comes next. What it costs does not depend on how deep it is.
func (d *differ) read(s *raw.Scanner, n *node) {
	if !d.spend(1) {
		s.Stop()
		return
	}
	start := s.Offset()
	switch s.Next() {
	case '{':
		s.OpenObject()
		for first := true; ; first = false {
			key, _, ok := s.NextKey(first)
			if !ok {
				break
			}
			member := node{key: key}
			d.read(s, &member)
			n.add(&member)
		}
		n.raw = s.Since(start)
		n.sum(maphash.Bytes(d.seed, n.raw[:min(1, len(n.raw))]), d.seed)
	case '[':
		s.OpenArray()
		for first := true; s.NextElement(first); first = false {
			n.inside = append(n.inside, node{})
			d.read(s, &n.inside[len(n.inside)-1])
		}
		n.raw = s.Since(start)
		n.sum(maphash.Bytes(d.seed, n.raw[:min(1, len(n.raw))]), d.seed)
		n.says = true
	default:
		n.raw = s.Value()
		n.hash = maphash.Bytes(d.seed, n.raw)
		n.says = !n.isNull()
	}
}

// sum knows of a value what is known of those in it.
func (n *node) sum(hash uint64, seed maphash.Seed) {
	const odd = 0x9e3779b97f4a7c15
	object := n.isObject()
	for i := range n.inside {
		in := &n.inside[i]
		hash = (bits.RotateLeft64(hash, 7) ^ in.hash) * odd
		if object {
			hash = (bits.RotateLeft64(hash, 7) ^ maphash.Bytes(seed, in.key)) * odd
		}
		n.says = n.says || in.says
		n.silent = n.silent || in.silent || object && !in.says
	}
	n.hash = hash
}

func (n *node) add(member *node) {
	if i := n.find(member.key); i >= 0 {
		n.inside[i] = *member
		return
	}
	n.inside = append(n.inside, *member)
	switch count := len(n.inside); {
	case count < fewMembers:
	case count == fewMembers:
		n.index = make(map[string]int, 2*count)
		for i := range n.inside {
			n.index[string(n.inside[i].key)] = i
		}
	default:
		n.index[string(member.key)] = count - 1
	}
}

func (n *node) find(key []byte) int {
	if n.index != nil {
		if i, ok := n.index[string(key)]; ok {
			return i
		}
		return -1
	}
	for i := range n.inside {
		if bytes.Equal(n.inside[i].key, key) {
			return i
		}
	}
	return -1
}

// at returns the member of a key; nil if there is none, as in what is no object.
func (n *node) at(key []byte) *node {
	if !n.isObject() {
		return nil
	}
	if i := n.find(key); i >= 0 {
		return &n.inside[i]
	}
	return nil
}

// same reports whether two values are encoded alike. Where they are not, that is known
// without reading them again; who finds them to be the same has no need to look into them.
func same(a, b *node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.hash == b.hash && bytes.Equal(a.raw, b.raw)
}

func (n *node) begins(with byte) bool { return n != nil && len(n.raw) > 0 && n.raw[0] == with }
func (n *node) isObject() bool        { return n.begins('{') }
func (n *node) isArray() bool         { return n.begins('[') }
func (n *node) isNull() bool          { return n.begins('n') }

// place is where a value stands in the object that a patch makes; nil is the root.
type place struct {
	above *place
	key   []byte // Of a member.
	i     int    // Of an element; -1 for a member.

	// known is whether back is what is brought back there.
	known bool
	back  *node
}

func (p *place) member(key []byte) *place { return &place{above: p, key: key, i: -1} }
func (p *place) element(i int) *place     { return &place{above: p, i: i} }

// in returns what stands at a place in the value that stands above it.
func (p *place) in(above *node) *node {
	switch {
	case p.i < 0:
		return above.at(p.key)
	case above.isArray() && p.i < len(above.inside):
		return &above.inside[p.i]
	default:
		return nil
	}
}
