package convert

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// tree is a parsed JSON value. Each value in a tree has a hash, so two values are compared in constant time.
type tree struct {
	// text is the value as it appears in the document.
	text []byte
	// kind is the first byte of the value. Booleans have the kind 't', and numbers '0'.
	kind byte
	keys []string
	// items are the values of the members of an object, or the elements of an array.
	items []tree
	// order has the indexes of the members, sorted by key.
	order []int
	// twice is a duplicate key; nil if all keys differ.
	twice *string
	// sum is a hash of the value. Equal values have the same sum.
	sum [sha256.Size]byte
}

// treeOf parses a JSON value.
func treeOf(value []byte) (*tree, error) {
	var g grower
	g.s.Reset(value)
	t := g.grow()
	return &t, g.s.End()
}

// grower builds trees.
type grower struct {
	s       raw.Scanner
	scratch []byte
}

// grow parses the next value. Its sum is computed from the sums of its parts. So each byte is hashed only once, even in
// deep values.
func (g *grower) grow() tree {
	t := tree{kind: g.s.Next()}
	start := g.s.Offset()
	switch t.kind {
	case '{':
		g.object(&t)
	case '[':
		g.s.OpenArray()
		for first := true; g.s.NextElement(first); first = false {
			t.items = append(t.items, g.grow())
		}
		g.scratch = append(g.scratch[:0], '[')
		for i := range t.items {
			g.scratch = append(g.scratch, t.items[i].sum[:]...)
		}
	case '"':
		text := g.s.Text()
		g.scratch = append(append(g.scratch[:0], '"'), text...)
	case 'n':
		g.scratch = append(g.scratch[:0], g.s.Value()...)
	case 't', 'f':
		t.kind = 't'
		g.scratch = append(g.scratch[:0], g.s.Value()...)
	default:
		t.kind = '0'
		g.scratch = appendNumber(append(g.scratch[:0], '0'), g.s.Value())
	}
	t.sum = sha256.Sum256(g.scratch)
	t.text = g.s.Since(start)
	return t
}

// object parses an object. Its sum covers the members in the order of their keys. It includes the length of each key,
// so that objects with different keys have different sums.
func (g *grower) object(t *tree) {
	g.s.OpenObject()
	ordered := true
	for first := true; ; first = false {
		key, _, ok := g.s.NextKey(first)
		if !ok {
			break
		}
		k := string(key)
		if n := len(t.keys); n > 0 && t.keys[n-1] >= k {
			ordered = false
		}
		t.order = append(t.order, len(t.keys))
		t.keys = append(t.keys, k)
		t.items = append(t.items, g.grow())
	}
	if !ordered {
		slices.SortStableFunc(t.order, func(a, b int) int { return strings.Compare(t.keys[a], t.keys[b]) })
	}
	g.scratch = append(g.scratch[:0], '{')
	for i, o := range t.order {
		if i > 0 && t.keys[t.order[i-1]] == t.keys[o] && t.twice == nil {
			t.twice = &t.keys[o]
		}
		g.scratch = binary.BigEndian.AppendUint32(g.scratch, uint32(len(t.keys[o])))
		g.scratch = append(append(g.scratch, t.keys[o]...), t.items[o].sum[:]...)
	}
}

// get returns the value of a member; nil if there is no such member or t is not an object.
func (t *tree) get(key string) *tree {
	if t == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(t.order, key, func(o int, key string) int { return strings.Compare(t.keys[o], key) })
	if !ok {
		return nil
	}
	return &t.items[t.order[i]]
}

// same reports whether two values are equal, or both are absent.
func (t *tree) same(o *tree) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.sum == o.sum
}

// isObject reports whether the value is present and an object.
func (t *tree) isObject() bool { return t != nil && t.kind == '{' }

// appendCanonical appends the canonical form: see [comparer.canonical].
func (t *tree) appendCanonical(dst []byte) []byte {
	switch t.kind {
	case '{':
		dst = append(dst, '{')
		for i, o := range t.order {
			if i > 0 {
				dst = append(dst, ',')
			}
			// With the length -1, appendText checks whether the key needs escapes.
			dst = append(appendText(dst, []byte(t.keys[o]), -1), ':')
			dst = t.items[o].appendCanonical(dst)
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for i := range t.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.items[i].appendCanonical(dst)
		}
		return append(dst, ']')
	default:
		var c comparer
		return c.canonical(dst, t.text)
	}
}

// appendThreeWay applies the changes between base and live to kept, and appends the result. Where live equals base, the
// result has kept; elsewhere it has live. base is the value of kept after a conversion to the other version and back.
// Objects are merged member by member; a member may be absent in each of the values. Other values are not merged, but
// taken from one side. If the result is absent, nothing is appended.
func appendThreeWay(dst []byte, base, live, kept *tree) []byte {
	if base.same(live) {
		live = kept
	}
	if live == nil {
		return dst
	}
	if live == kept || kept.same(live) || !base.isObject() || !live.isObject() || !kept.isObject() || kept.twice != nil {
		return append(dst, live.text...)
	}
	dst = append(dst, '{')
	first := true
	emit := func(key string) {
		start := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		dst = append(raw.AppendString(dst, key), ':')
		value := len(dst)
		if dst = appendThreeWay(dst, base.get(key), live.get(key), kept.get(key)); len(dst) == value {
			dst = dst[:start]
			return
		}
		first = false
	}
	for _, key := range live.keys {
		emit(key)
	}
	for _, key := range kept.keys {
		if live.get(key) == nil {
			emit(key)
		}
	}
	return append(dst, '}')
}

// threeWay is [appendThreeWay] for JSON texts. With keys, it merges the elements of a list.
func threeWay(base, live, kept []byte, keys [][]string) ([]byte, error) {
	var trees [3]*tree
	for i, value := range [][]byte{base, live, kept} {
		t, err := treeOf(value)
		if err != nil {
			return nil, err
		}
		trees[i] = t
	}
	if out := appendKeyed(nil, trees[0], trees[1], trees[2], keys); out != nil {
		return out, nil
	}
	return appendThreeWay(nil, trees[0], trees[1], trees[2]), nil
}

// appendKeyed is [appendThreeWay] for the elements of a list. If the set of elements and their order have not changed,
// the merged list has the elements of kept. Otherwise it has the elements of live, followed by the elements of kept
// that the other version does not have at all. It returns nil if the keys do not identify the elements.
func appendKeyed(dst []byte, base, live, kept *tree, keys [][]string) []byte {
	if len(keys) == 0 {
		return nil
	}
	was, ok := base.named(keys)
	is, okLive := live.named(keys)
	had, okKept := kept.named(keys)
	if !ok || !okLive || !okKept {
		return nil
	}
	order := is.names
	if slices.Equal(was.names, is.names) { // No element was added, removed or moved.
		order = had.names
	}
	dst = append(dst, '[')
	seen := map[string]bool{}
	for _, name := range slices.Concat(order, is.names, had.names) {
		if seen[name] {
			continue
		}
		seen[name] = true
		before := len(dst)
		if before > 1 {
			dst = append(dst, ',')
		}
		start := len(dst)
		if dst = appendThreeWay(dst, was.items[name], is.items[name], had.items[name]); len(dst) == start {
			dst = dst[:before]
		}
	}
	return append(dst, ']')
}

// namedItems has the elements of a list by the values of their key fields.
type namedItems struct {
	names []string
	items map[string]*tree
}

// named returns the elements of a list by name. It returns false if the value is not a list, or if two elements have
// the same name.
func (t *tree) named(keys [][]string) (namedItems, bool) {
	n := namedItems{items: map[string]*tree{}}
	for i := range t.items {
		var key strings.Builder
		for _, path := range keys {
			part := &t.items[i]
			for _, step := range path {
				part = part.get(step)
			}
			if part != nil {
				key.Write(part.sum[:])
			}
			key.WriteByte('/')
		}
		name := key.String()
		n.names = append(n.names, name)
		n.items[name] = &t.items[i]
	}
	return n, t.kind == '[' && len(n.items) == len(n.names)
}
