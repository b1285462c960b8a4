package admission

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"refract.dev/tree"
	"refract.dev/tree/raw"
)

// difference returns the JSON patch of an object that does to it what was done to what it
// was decoded into: before and after are encodings of that. It is nil if that is nothing.
// again decodes and encodes an object.
//
// Only what differs between the encodings is put into the object, at the place where it
// stands there; what the object has besides is not looked at.
func difference(object, before, after []byte, again func([]byte) []byte) ([]byte, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	d := &differ{implied: &implied{after: after, again: again}}
	d.value(nil, bytes.TrimSpace(before), bytes.TrimSpace(after), bytes.TrimSpace(object))
	if d.err != nil {
		return nil, d.err
	}
	return d.patch(), nil
}

// differ makes a patch. In its methods a value is what was before, b what is after, and
// r what the object to be patched has at a place: nil if there is nothing.
type differ struct {
	implied *implied
	base    int // How many keys of a place are above the object to be patched.
	ops     []byte
	err     error
}

func (d *differ) patch() []byte {
	if d.ops == nil {
		return nil
	}
	return append(d.ops, ']')
}

func (d *differ) value(place []string, a, b, r []byte) {
	switch {
	case d.err != nil || bytes.Equal(a, b):
	case b == nil || isNull(b) && bytes.Equal(b, d.implied.at(place)):
		if r != nil {
			d.op("remove", place, nil)
		}
	case isObject(b) && isObject(r) && (isObject(a) || a == nil || isNull(a)):
		d.object(place, a, b, r)
	case isObject(b) && isObject(a) && (r == nil || isNull(r)):
		if picked := d.picked(place, a, b); picked != nil {
			d.set(place, r, picked)
		}
	case isArray(b) && isArray(a) && isArray(r):
		d.array(place, a, b, r)
	default:
		d.set(place, r, d.cleaned(place, b))
	}
}

// set puts v in the place of r.
func (d *differ) set(place []string, r, v []byte) {
	if r == nil {
		d.op("add", place, v)
		return
	}
	d.op("replace", place, v)
}

func (d *differ) op(op string, place []string, v []byte) {
	separator := byte(',')
	if d.ops == nil {
		separator = '['
	}
	var pointer strings.Builder
	for _, key := range place[d.base:] {
		pointer.WriteByte('/')
		pointer.WriteString(tree.Escape(key))
	}
	d.ops = append(append(append(d.ops, separator), `{"op":"`...), op...)
	d.ops = raw.AppendString(append(d.ops, `","path":`...), pointer.String())
	if v != nil {
		d.ops = append(append(d.ops, `,"value":`...), v...)
	}
	d.ops = append(d.ops, '}')
}

func (d *differ) object(place []string, a, b, r []byte) {
	was, is, has := d.members(a), d.members(b), d.members(r)
	for i, key := range was.keys {
		if old, v := was.values[i], is.at(key); !bytes.Equal(old, v) {
			d.value(append(place, key), old, v, has.at(key))
		}
	}
	for i, key := range is.keys {
		if was.find(key) < 0 {
			d.value(append(place, key), nil, is.values[i], has.at(key))
		}
	}
}

// picked returns the object of what b has and a has not; nil if that is nothing.
func (d *differ) picked(place []string, a, b []byte) []byte {
	was, is := d.members(a), d.members(b)
	var out []byte
	for i, key := range is.keys {
		v, place := is.values[i], append(place, key)
		switch old := was.at(key); {
		case bytes.Equal(old, v):
			continue
		case isObject(old) && isObject(v):
			v = d.picked(place, old, v)
		case isNull(v) && bytes.Equal(v, d.implied.at(place)):
			continue
		default:
			v = d.cleaned(place, v)
		}
		if v != nil {
			out = appendMember(out, key, v)
		}
	}
	if out == nil {
		return nil
	}
	return append(out, '}')
}

// array changes the elements of an array one by one, so that what is not known of them
// stays: removals from the end, and then from the beginning what is changed and added.
func (d *differ) array(place []string, a, b, r []byte) {
	was, is, has := d.elements(a), d.elements(b), d.elements(r)
	if d.err != nil {
		return
	}
	if len(was) != len(has) || len(was) == 0 || len(is) == 0 {
		d.set(place, r, d.cleaned(place, b))
		return
	}
	m := matched(was, is)
	if m.replaced {
		d.set(place, r, d.joined(place, m, was, is, has))
		return
	}
	stays := make([]bool, len(was))
	for _, i := range m.inPlace {
		if i >= 0 {
			stays[i] = true
		}
	}
	for i := len(was) - 1; i >= 0; i-- {
		if !stays[i] {
			d.op("remove", append(place, strconv.Itoa(i)), nil)
		}
	}
	for j, v := range is {
		at, i := append(place, strconv.Itoa(j)), m.inPlace[j]
		switch {
		case i < 0:
			d.op("add", at, d.element(at, m.moved[j], v, was, has))
		case isNull(v) && !isNull(was[i]): // An element is not left out.
			d.op("replace", at, v)
		default:
			d.value(at, was[i], v, has[i])
		}
	}
}

// joined returns the whole array that comes of a match.
func (d *differ) joined(place []string, m *match, was, is, has [][]byte) []byte {
	out := []byte{'['}
	for j, v := range is {
		if j > 0 {
			out = append(out, ',')
		}
		out = append(out, d.element(append(place, strconv.Itoa(j)), m.moved[j], v, was, has)...)
	}
	return append(out, ']')
}

// element returns what an element v becomes that was the one at i before; i may be -1.
func (d *differ) element(place []string, i int, v []byte, was, has [][]byte) []byte {
	if i < 0 {
		return d.cleaned(place, v)
	}
	inner := &differ{implied: d.implied, base: len(place)}
	inner.value(place, was[i], v, has[i])
	if inner.err != nil {
		d.fail(inner.err)
		return nil
	}
	if inner.ops == nil {
		return has[i]
	}
	patch, err := jsonpatch.DecodePatch(inner.patch())
	if err != nil {
		d.fail(err)
		return nil
	}
	out, err := patch.Apply(has[i])
	if err != nil {
		d.fail(err)
		return nil
	}
	return out
}

// cleaned returns v without what decoding gives it anyway.
func (d *differ) cleaned(place []string, v []byte) []byte {
	if !isObject(v) && !isArray(v) || !bytes.Contains(v, []byte("null")) && !bytes.Contains(v, []byte("{}")) {
		return v
	}
	return cleaned(nil, v, d.implied.at(place))
}

func (d *differ) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *differ) members(v []byte) members {
	if !isObject(v) {
		return members{}
	}
	out, err := membersOf(v)
	if err != nil {
		d.fail(err)
	}
	return out
}

func (d *differ) elements(v []byte) [][]byte {
	out, err := elementsOf(v)
	if err != nil {
		d.fail(err)
	}
	return out
}

// implied knows which nulls and empty objects of an encoding say nothing: decoding what
// is left without them, and encoding that, brings them back.
type implied struct {
	after []byte
	again func([]byte) []byte
	known bool
	back  []byte
}

// at returns what comes back at a place; nil for nothing.
func (m *implied) at(place []string) []byte {
	if !m.known {
		m.known, m.back = true, m.after
		if stripped := appendStripped(nil, m.after); !bytes.Equal(stripped, m.after) {
			m.back = m.again(stripped)
		}
	}
	v := m.back
	for _, key := range place {
		v = child(v, key)
	}
	return v
}

func child(v []byte, key string) []byte {
	switch {
	case isObject(v):
		found, err := raw.Field(v, key)
		if err != nil {
			return nil
		}
		return found
	case isArray(v):
		elements, err := elementsOf(v)
		i, wrong := strconv.Atoi(key)
		if errors.Join(err, wrong) != nil || i >= len(elements) {
			return nil
		}
		return elements[i]
	default:
		return nil
	}
}

// says reports whether a value is not null, and has something in it if it is an object.
func says(v []byte) bool {
	if isNull(v) {
		return false
	}
	if !isObject(v) {
		return true
	}
	found := false
	err := raw.Members(v, func(_, value []byte) bool {
		found = says(value)
		return !found
	})
	return found || err != nil
}

// appendStripped appends v to dst without the members in it that say nothing.
func appendStripped(dst, v []byte) []byte {
	return appendMapped(dst, v, nil, func(member, _ []byte) bool { return says(member) })
}

// cleaned appends v to dst without the members that say nothing and come back.
func cleaned(dst, v, back []byte) []byte {
	return appendMapped(dst, v, back, func(member, back []byte) bool { return says(member) || !bytes.Equal(member, back) })
}

// appendMapped appends v to dst with those members of objects that are to be kept; keep
// sees each beside what stands at its place in back.
func appendMapped(dst, v, back []byte, keep func(member, back []byte) bool) []byte {
	switch {
	case isObject(v):
		if is, err := membersOf(v); err == nil {
			return appendObject(dst, is, back, keep)
		}
	case isArray(v):
		if elements, err := elementsOf(v); err == nil {
			return appendArray(dst, elements, back, keep)
		}
	}
	return append(dst, v...)
}

func appendObject(dst []byte, is members, back []byte, keep func(member, back []byte) bool) []byte {
	other := members{}
	if isObject(back) {
		other, _ = membersOf(back) // What cannot be read is nothing.
	}
	dst = append(dst, '{')
	separator := ""
	for i, key := range is.keys {
		member, beside := is.values[i], other.at(key)
		if keep(member, beside) {
			dst = append(raw.AppendString(append(dst, separator...), key), ':')
			dst = appendMapped(dst, member, beside, keep)
			separator = ","
		}
	}
	return append(dst, '}')
}

func appendArray(dst []byte, elements [][]byte, back []byte, keep func(member, back []byte) bool) []byte {
	other := make([][]byte, len(elements))
	if isArray(back) {
		if found, err := elementsOf(back); err == nil && len(found) == len(elements) {
			other = found
		}
	}
	dst = append(dst, '[')
	for i, element := range elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendMapped(dst, element, other[i], keep)
	}
	return append(dst, ']')
}

// members are those of a JSON object: the last one of a key that stands there twice, as
// for those who decode it.
type members struct {
	keys   []string
	values [][]byte
	index  map[string]int // Of keys, where there are many.
}

// fewMembers are found fastest by looking at each.
const fewMembers = 16

func membersOf(v []byte) (members, error) {
	out := members{}
	err := raw.Members(v, func(key, value []byte) bool {
		out.add(string(key), value)
		return true
	})
	if err != nil {
		return members{}, fmt.Errorf("reading an object: %w", err)
	}
	return out, nil
}

func (m *members) add(key string, value []byte) {
	if i := m.find(key); i >= 0 {
		m.values[i] = value
		return
	}
	m.keys, m.values = append(m.keys, key), append(m.values, value)
	switch n := len(m.keys); {
	case n < fewMembers:
	case n == fewMembers:
		m.index = make(map[string]int, 2*n)
		for i, key := range m.keys {
			m.index[key] = i
		}
	default:
		m.index[key] = n - 1
	}
}

func (m *members) find(key string) int {
	if m.index == nil {
		return slices.Index(m.keys, key)
	}
	if i, ok := m.index[key]; ok {
		return i
	}
	return -1
}

// at returns the value of a key; nil for none.
func (m *members) at(key string) []byte {
	if i := m.find(key); i >= 0 {
		return m.values[i]
	}
	return nil
}

func elementsOf(v []byte) ([][]byte, error) {
	var out [][]byte
	err := raw.Elements(v, func(_ int, value []byte) bool {
		out = append(out, value)
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("reading an array: %w", err)
	}
	return out, nil
}

func appendMember(dst []byte, key string, v []byte) []byte {
	if dst == nil {
		dst = append(dst, '{')
	} else {
		dst = append(dst, ',')
	}
	return append(append(raw.AppendString(dst, key), ':'), v...)
}

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isNull(v []byte) bool   { return string(v) == "null" }
