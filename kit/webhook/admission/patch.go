package admission

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"

	"refract.dev/tree"
	"refract.dev/tree/raw"
)

// difference returns the JSON patch that applies to object the change between before and after, or nil if there is no
// change. before and after are encodings of the value that object was decoded into. again decodes an object and encodes
// the result. ended returns an error once the API server has stopped waiting.
//
// The patch contains only the differences between the two encodings, at their place in the object. It does not read the
// other parts of the object.
//
// The user decides the length, width and depth of an object. Time and memory are O(n log n), and the patch is not much
// longer than the object and after together.
func difference(object, before, after []byte, again func([]byte) []byte, ended func() error) ([]byte, error) {
	return newDiffer(again, ended).difference(object, before, after)
}

// differ makes a patch. In its methods a is the value before, b the value after, and r the value in the object to be
// patched, all at the same place.
type differ struct {
	again func([]byte) []byte
	ended func() error
	seed  maphash.Seed

	// reading is a stack of parsed members and elements whose objects and arrays are still incomplete.
	reading []node

	after *node
	// known is whether back is computed: after without its empty values, decoded and encoded again. An empty value that
	// decoding restores means nothing to the type.
	known bool
	back  *node

	// coarse is whether the patch replaces whole members of the root.
	coarse bool
	// most is the largest length of ops in bytes.
	most int
	ops  []byte

	// work counts the examined values, and compared the part of work for pairs of elements. asked is the work at the
	// last call of ended.
	work, compared, asked int
	err                   error
}

func newDiffer(again func([]byte) []byte, ended func() error) *differ {
	return &differ{again: again, ended: ended, seed: maphash.MakeSeed()}
}

func (d *differ) difference(object, before, after []byte) ([]byte, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var read [3]*node
	for i, text := range [...][]byte{before, after, object} {
		var err error
		if read[i], err = d.document(text); err != nil {
			return nil, err
		}
	}
	// Each change repeats the path of its place, and the path may be as long as all changes below it.
	d.after, d.most = read[1], 2*(len(object)+len(after))
	d.value(nil, read[0], read[1], read[2])
	if len(d.ops) > d.most {
		d.ops, d.coarse, d.known = nil, true, false
		d.value(nil, read[0], read[1], read[2])
	}
	if d.err != nil || d.ops == nil {
		return nil, d.err
	}
	return append(d.ops, ']'), nil
}

// often is the work between two calls of ended.
const often = 1 << 12

// spend adds work, and reports whether to continue.
func (d *differ) spend(work int) bool {
	if d.work += work; d.work-d.asked >= often && d.err == nil {
		d.asked, d.err = d.work, d.ended()
	}
	return d.err == nil && (d.coarse || d.most == 0 || len(d.ops) <= d.most)
}

// change is the kind of change of a value.
type change int

const (
	keep change = iota
	remove
	intoMembers
	pick
	intoElements
	replace
)

func (d *differ) change(p *place, a, b, r *node) change {
	switch {
	case same(a, b):
		return keep
	case b == nil || b.isNull() && same(b, d.backAt(p)):
		return remove
	case b.isObject() && r.isObject() && (a == nil || a.isObject() || a.isNull()):
		return intoMembers
	case b.isObject() && a.isObject() && (r == nil || r.isNull()):
		return pick
	case b.isArray() && a.isArray() && r.isArray() && len(a.inside) == len(r.inside) && len(a.inside) > 0 && len(b.inside) > 0:
		return intoElements
	default:
		return replace
	}
}

// value adds the operations that change a value.
func (d *differ) value(p *place, a, b, r *node) {
	if !d.spend(1) {
		return
	}
	if d.coarse && p != nil {
		if v, there := d.appendChanged(nil, p, a, b, r); there {
			d.set(p, r, v)
		} else if r != nil {
			d.op("remove", p, nil)
		}
		return
	}
	switch d.change(p, a, b, r) {
	case keep:
	case remove:
		if r != nil {
			d.op("remove", p, nil)
		}
	case intoMembers:
		d.object(p, a, b, r)
	case pick:
		if v, there := d.appendPicked(nil, p, a, b); there {
			d.set(p, r, v)
		}
	case intoElements:
		d.array(p, a, b, r)
	case replace:
		d.set(p, r, d.appendCleaned(nil, p, b))
	}
}

// set adds the operation that replaces r by v.
func (d *differ) set(p *place, r *node, v []byte) {
	switch {
	case r == nil:
		d.op("add", p, v)
	case !bytes.Equal(r.raw, v):
		d.op("replace", p, v)
	}
}

func (d *differ) op(op string, p *place, v []byte) {
	separator := byte(',')
	if d.ops == nil {
		separator = '['
	}
	d.ops = append(append(append(d.ops, separator), `{"op":"`...), op...)
	d.ops = raw.AppendString(append(d.ops, `","path":`...), p.appendPointer(nil))
	if v != nil {
		d.ops = append(append(d.ops, `,"value":`...), v...)
	}
	d.ops = append(d.ops, '}')
}

func (p *place) appendPointer(dst []byte) []byte {
	if p == nil {
		return dst
	}
	dst = append(p.above.appendPointer(dst), '/')
	if p.i >= 0 {
		return strconv.AppendInt(dst, int64(p.i), 10)
	}
	return append(dst, tree.Escape(string(p.key))...)
}

func (d *differ) object(p *place, a, b, r *node) {
	if a.isObject() {
		for i := range a.inside {
			old := &a.inside[i]
			if v := b.at(old.key); !same(old, v) {
				d.value(p.member(old.key), old, v, r.at(old.key))
			}
		}
	}
	for i := range b.inside {
		if v := &b.inside[i]; a.at(v.key) == nil {
			d.value(p.member(v.key), nil, v, r.at(v.key))
		}
	}
}

// array changes the elements of an array one by one, so that their unknown fields stay: first removals from the end,
// and then changes and additions from the beginning.
func (d *differ) array(p *place, a, b, r *node) {
	m := d.matched(a.inside, b.inside)
	if m.replaced {
		d.set(p, r, d.appendJoined(nil, p, m, a, b, r))
		return
	}
	stays := make([]bool, len(a.inside))
	for _, i := range m.inPlace {
		if i >= 0 {
			stays[i] = true
		}
	}
	for i, stay := range slices.Backward(stays) {
		if !stay && d.spend(1) {
			d.op("remove", p.element(i), nil)
		}
	}
	for j := range b.inside {
		v, i := &b.inside[j], m.inPlace[j]
		switch {
		case !d.spend(1):
			return
		case i < 0:
			at := p.element(j)
			d.op("add", at, d.appendElement(nil, at, m.moved[j], v, a, r))
		case same(&a.inside[i], v):
		case m.other[j]:
			at := p.element(j)
			d.op("replace", at, d.appendCleaned(nil, at, v))
		case v.isNull(): // An element is not omitted, because that would shift the others.
			d.op("replace", p.element(j), v.raw)
		default:
			d.value(p.element(j), &a.inside[i], v, &r.inside[i])
		}
	}
}

// appendChanged appends the value that r becomes. It returns false if r is removed.
func (d *differ) appendChanged(dst []byte, p *place, a, b, r *node) (out []byte, there bool) {
	if !d.spend(1) {
		return dst, false
	}
	switch d.change(p, a, b, r) {
	case remove:
		return dst, false
	case intoMembers:
		return d.appendObject(dst, p, a, b, r), true
	case intoElements:
		return d.appendJoined(dst, p, d.matched(a.inside, b.inside), a, b, r), true
	case replace:
		return d.appendCleaned(dst, p, b), true
	case pick:
		if out, there := d.appendPicked(dst, p, a, b); there {
			return out, true
		}
	case keep:
	}
	if r == nil {
		return dst, false
	}
	return append(dst, r.raw...), true
}

func (d *differ) appendObject(dst []byte, p *place, a, b, r *node) []byte {
	dst = append(dst, '{')
	member := func(key []byte, a, b, r *node) {
		start := len(dst)
		out, there := d.appendChanged(appendKey(dst, key), p.member(key), a, b, r)
		if !there {
			out = out[:start]
		}
		dst = out
	}
	for i := range r.inside {
		v := &r.inside[i]
		member(v.key, a.at(v.key), b.at(v.key), v)
	}
	for i := range b.inside {
		if v := &b.inside[i]; r.at(v.key) == nil {
			member(v.key, a.at(v.key), v, nil)
		}
	}
	return append(dst, '}')
}

// appendJoined appends the whole array of a match.
func (d *differ) appendJoined(dst []byte, p *place, m *match, a, b, r *node) []byte {
	dst = append(dst, '[')
	for j := range b.inside {
		if j > 0 {
			dst = append(dst, ',')
		}
		i := m.moved[j]
		if !m.replaced && m.inPlace[j] >= 0 && !m.other[j] {
			i = m.inPlace[j]
		}
		dst = d.appendElement(dst, p.element(j), i, &b.inside[j], a, r)
	}
	return append(dst, ']')
}

// appendElement appends the element v, which was at index i before; i is -1 for a new element.
func (d *differ) appendElement(dst []byte, p *place, i int, v, a, r *node) []byte {
	switch {
	case i < 0:
		return d.appendCleaned(dst, p, v)
	case v.isNull() && !a.inside[i].isNull(): // An element is not omitted.
		return append(dst, v.raw...)
	}
	out, _ := d.appendChanged(dst, p, &a.inside[i], v, &r.inside[i])
	return out
}

// appendPicked appends an object with the members that differ in b from a. It returns false if nothing differs.
func (d *differ) appendPicked(dst []byte, p *place, a, b *node) (out []byte, there bool) {
	start := len(dst)
	dst = append(dst, '{')
	for i := range b.inside {
		v := &b.inside[i]
		old, at, end := a.at(v.key), p.member(v.key), len(dst)
		switch {
		case !d.spend(1):
			return dst[:start], false
		case same(old, v) || v.isNull() && same(v, d.backAt(at)):
		case old.isObject() && v.isObject():
			inner, some := d.appendPicked(appendKey(dst, v.key), at, old, v)
			if !some {
				inner = inner[:end]
			}
			dst, there = inner, there || some
		default:
			dst, there = d.appendCleaned(appendKey(dst, v.key), at, v), true
		}
	}
	if !there {
		return dst[:start], false
	}
	return append(dst, '}'), true
}

// appendKey appends the key of the next member of the object at the end of dst.
func appendKey(dst, key []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(raw.AppendString(dst, key), ':')
}

// backAt returns the value that decoding restores at a place if the patch omits it; nil for none.
func (d *differ) backAt(p *place) *node {
	if p == nil {
		return d.broughtBack()
	}
	if !p.known {
		p.known, p.back = true, p.in(d.backAt(p.above))
	}
	return p.back
}

func (d *differ) broughtBack() *node {
	if d.known {
		return d.back
	}
	d.known, d.back = true, d.after
	if d.after.silent {
		d.back = nil
		if text := d.again(d.appendSaying(nil, d.after, nil, true)); text != nil {
			back, err := d.document(text)
			if err != nil && d.err == nil {
				d.err = err
			}
			d.back = back
		}
	}
	return d.back
}

// appendCleaned appends v without the values that decoding restores.
func (d *differ) appendCleaned(dst []byte, p *place, v *node) []byte {
	if !v.silent {
		return append(dst, v.raw...)
	}
	return d.appendSaying(dst, v, d.backAt(p), false)
}

// appendSaying appends v without its empty members. Unless all is set, it keeps those that decoding does not restore.
func (d *differ) appendSaying(dst []byte, v, back *node, all bool) []byte {
	switch {
	case !v.silent || !d.spend(1):
		return append(dst, v.raw...)
	case v.isObject():
		dst = append(dst, '{')
		for i := range v.inside {
			in := &v.inside[i]
			beside := back.at(in.key)
			if in.says || !all && !same(in, beside) {
				dst = d.appendSaying(appendKey(dst, in.key), in, beside, all)
			}
		}
		return append(dst, '}')
	default:
		dst = append(dst, '[')
		for i := range v.inside {
			if i > 0 {
				dst = append(dst, ',')
			}
			var beside *node
			if back.isArray() && len(back.inside) == len(v.inside) {
				beside = &back.inside[i]
			}
			dst = d.appendSaying(dst, &v.inside[i], beside, all)
		}
		return append(dst, ']')
	}
}
