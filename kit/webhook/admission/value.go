package admission

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"

	"refract.dev/tree/raw"
)

// node is a parsed JSON value with all its members or elements. A nil node means that there is no value.
type node struct {
	raw []byte
	// key is the key of a member.
	key []byte
	// inside are the members of an object, or the elements of an array. Of several members with one key it has the
	// last, like the result of decoders.
	inside []node
	index  map[string]int // Index of the members by key, if there are many.
	// hash is equal for equal encodings, and nearly always different for different ones.
	hash uint64
	// says is false for an empty value: null, or an object with only empty members.
	says bool
	// silent is whether the value contains an object with an empty member.
	silent bool
}

// fewMembers is the largest object that is searched member by member, which is faster than an index.
const fewMembers = 16

// document parses a document.
func (d *differ) document(text []byte) (*node, error) {
	s := raw.New(text)
	out := d.read(s)
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("reading the encoded value: %w", err)
	}
	return &out, d.err
}

// read parses the next value. Its cost does not depend on the depth of the value.
func (d *differ) read(s *raw.Scanner) node {
	out := node{}
	if !d.spend(1) {
		s.Stop()
		return out
	}
	start, from := s.Offset(), len(d.reading)
	switch s.Next() {
	case '{':
		s.OpenObject()
		for first := true; ; first = false {
			key, _, ok := s.NextKey(first)
			if !ok {
				break
			}
			member := d.read(s)
			member.key = key
			d.reading = append(d.reading, member)
		}
		out.raw = s.Since(start)
		out.hold(d.reading[from:])
		out.sum(d.seed)
	case '[':
		s.OpenArray()
		for first := true; s.NextElement(first); first = false {
			element := d.read(s)
			d.reading = append(d.reading, element)
		}
		out.raw, out.inside, out.says = s.Since(start), slices.Clone(d.reading[from:]), true
		out.sum(d.seed)
	default:
		out.raw = s.Value()
		out.hash, out.says = maphash.Bytes(d.seed, out.raw), !out.isNull()
	}
	d.reading = d.reading[:from]
	return out
}

// hold sets the members of an object.
func (n *node) hold(members []node) {
	n.inside = make([]node, 0, len(members))
	if len(members) > fewMembers {
		n.index = make(map[string]int, len(members))
	}
	for i := range members {
		if at := n.find(members[i].key); at >= 0 {
			n.inside[at] = members[i]
			continue
		}
		if n.index != nil {
			n.index[string(members[i].key)] = len(n.inside)
		}
		n.inside = append(n.inside, members[i])
	}
}

// sum computes the hash and the flags of a value from its members or elements.
func (n *node) sum(seed maphash.Seed) {
	const odd = 0x9e3779b97f4a7c15
	object, hash := n.isObject(), maphash.Bytes(seed, n.raw[:min(1, len(n.raw))])
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

// at returns the member with a key; nil if it is missing, or if the value is not an object.
func (n *node) at(key []byte) *node {
	if !n.isObject() {
		return nil
	}
	if i := n.find(key); i >= 0 {
		return &n.inside[i]
	}
	return nil
}

// same reports whether two values have the same encoding. The hashes find most differences without comparing the bytes,
// and the caller need not descend into equal values.
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

// place is the position of a value in the object that a patch makes; nil is the root.
type place struct {
	above *place
	key   []byte // Key of a member.
	i     int    // Index of an element; -1 for a member.

	// known is whether back is computed: the value that decoding restores at this place, see [differ.backAt].
	known bool
	back  *node
}

func (p *place) member(key []byte) *place { return &place{above: p, key: key, i: -1} }
func (p *place) element(i int) *place     { return &place{above: p, i: i} }

// in returns the value at the place p in the value of the place above.
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
