package convert

import (
	"errors"
	"fmt"
	"slices"

	"refract.dev/tree/raw"
)

// merger applies the changes of a function of whole objects to the original object. The arguments of merge are JSON:
// original, the input; given, the input as the function saw it; made, the result of the function; empty, the result for
// an empty object, nil if the function fails for it. The merger visits each value at most once.
type merger struct {
	// nulls means that null members of made are intended.
	nulls bool
	// shed says which optional members are omitted: the members with the same value as for an empty object. Its indexes
	// are the order of discovery by the merger. Members beyond its length are omitted, and at the root all are.
	shed []bool
	// spared counts the optional members below the root.
	spared int
	// gone counts the removed zero values that the function could not see.
	gone int
	// unchanged means that the function has not changed the current value.
	unchanged bool
}

var errLost = errors.New("the types of this version do not know the field, and the other version has no place for it")

// merge appends the result of the user's function for one value to dst. Original is the stored value, given is the
// value that the function received, and made is the value that it returned. In and out are the types of the two
// versions.
func (m *merger) merge(dst []byte, root bool, original, given, made, empty *tree, in, out *known) ([]byte, error) {
	alike := given.kind == original.kind && made.kind == original.kind
	switch {
	case given.same(made) && (given.same(original) || original.twice != nil):
		// The function has not changed the value and received all of it. Or the value has a duplicate key, and the
		// received one is unknown.
		return append(dst, original.text...), nil
	case given.same(made) && !m.unchanged:
		// The function has not changed the part of the value that it received. So the original stays, except for zero
		// values inside it that the types omit and that must be removed.
		start, gone := len(dst), m.gone
		m.unchanged = true
		dst, err := m.merge(dst, root, original, given, made, empty, in, out)
		m.unchanged = false
		if err != nil || m.gone > gone {
			return dst, err
		}
		return append(dst[:start], original.text...), nil
	case alike && original.kind == '{':
		return m.mergeObjects(dst, root, original, given, made, empty, in, out)
	case alike && original.kind == '[':
		return m.mergeArrays(dst, original, given, made, in, out)
	case given.same(made):
		return append(dst, original.text...), nil
	}
	// The value is a different one: its members cannot be matched with those of the original.
	if err := lost(original, given, in); err != nil {
		return dst, err
	}
	return m.appendMade(dst, made)
}

// appendMade appends the result of the function. It omits null members unless nulls are intended.
func (m *merger) appendMade(dst []byte, made *tree) ([]byte, error) {
	var err error
	switch {
	case m.nulls || made.kind != '{' && made.kind != '[':
		return append(dst, made.text...), nil
	case made.twice != nil:
		return dst, at(*made.twice, errTwice)
	case made.kind == '[':
		dst = append(dst, '[')
		for i := range made.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = m.appendMade(dst, &made.items[i]); err != nil {
				return dst, at(fmt.Sprintf("[%d]", i), err)
			}
		}
		return append(dst, ']'), nil
	}
	dst = append(dst, '{')
	first := true
	for i := range made.items {
		if made.items[i].kind == 'n' {
			continue
		}
		dst = appendKey(dst, first, made.keys[i])
		first = false
		if dst, err = m.appendMade(dst, &made.items[i]); err != nil {
			return dst, at(made.keys[i], err)
		}
	}
	return append(dst, '}'), nil
}

// appendKey appends the comma, if necessary, and the key of a member.
func appendKey(dst []byte, first bool, key string) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return append(raw.AppendString(dst, key), ':')
}

// mergeObjects merges member by member. Members of the original keep their order. Members added by the function follow.
// A member without an appended value is removed.
func (m *merger) mergeObjects(dst []byte, root bool, original, given, made, empty *tree, in, out *known) ([]byte, error) {
	for _, t := range []*tree{original, made} {
		if t.twice != nil {
			return dst, at(*t.twice, errTwice)
		}
	}
	dst = append(dst, '{')
	first := true
	emit := func(key string, appendValue func(dst []byte) ([]byte, error)) error {
		start := len(dst)
		with := appendKey(dst, first, key)
		value := len(with)
		with, err := appendValue(with)
		if err != nil {
			return at(key, err)
		}
		dst = with[:start]
		if len(with) > value { // Otherwise the member is removed.
			dst, first = with, false
		}
		return nil
	}
	for i, key := range original.keys {
		err := emit(key, func(dst []byte) ([]byte, error) {
			return m.mergeMember(dst, key, &original.items[i], given.get(key), made.get(key), empty.get(key), in, out)
		})
		if err != nil {
			return dst, err
		}
	}
	for i, key := range made.keys {
		if original.get(key) != nil {
			continue
		}
		err := emit(key, func(dst []byte) ([]byte, error) {
			return m.addMember(dst, root, &made.items[i], given.get(key), empty.get(key))
		})
		if err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// mergeMember appends the merged member of the original, or nothing if the member is removed.
func (m *merger) mergeMember(dst []byte, key string, original, given, made, empty *tree, in, out *known) ([]byte, error) {
	inner, knownThere := in.member(key)
	outer, hasPlace := out.member(key)
	switch {
	case given != nil && made != nil:
		value := len(dst)
		dst, err := m.merge(dst, false, original, given, made, empty, inner, outer)
		if err != nil || dst[value] != 'n' || original.kind == 'n' || m.nulls {
			return dst, err
		}
		if s := string(original.text); s == "[]" || s == "{}" {
			return append(dst[:value], s...), nil // Go types that omit empty values make null of these.
		}
		return dst[:value], nil
	case given != nil:
		return dst, lost(original, given, inner)
	case made == nil && !knownThere,
		made == nil && hasPlace && (original.kind == 'n' || inner.zeroAs(outer) && isZero(original.text)),
		made != nil && original.same(made):
		return append(dst, original.text...), nil
	case made == nil:
		// The function received a zero value, and the other version has no field of the same name and kind for it.
		m.gone++
		return dst, nil
	case !knownThere && original.kind != 'n':
		return dst, fmt.Errorf("%w: there is another value", errLost)
	case made.kind == 'n' && original.kind != 'n' && !m.nulls:
		return dst, nil
	default:
		return m.appendMade(dst, made)
	}
}

// addMember appends a member that the original does not have, or nothing if the member should be omitted.
func (m *merger) addMember(dst []byte, root bool, made, given, empty *tree) ([]byte, error) {
	switch {
	case made.kind == 'n' && !m.nulls, given != nil && given.same(made):
		return dst, nil
	case empty != nil && empty.same(made):
		if root {
			return dst, nil
		}
		m.spared++
		if n := m.spared - 1; n >= len(m.shed) || m.shed[n] {
			return dst, nil
		}
		return m.appendMade(dst, made)
	case made.kind == '{' && empty.isObject():
		return m.mergeObjects(dst, false, nothing, nothing, made, empty, nil, nil)
	default:
		return m.appendMade(dst, made)
	}
}

// nothing is an empty object.
var nothing = &tree{kind: '{', text: []byte("{}")}

// mergeArrays copies elements that the function has not changed from the original, at any index, so that these elements
// keep fields unknown to the types. If the function received another number of elements than the original has, they
// cannot be matched.
func (m *merger) mergeArrays(dst []byte, original, given, made *tree, in, out *known) ([]byte, error) {
	if len(original.items) != len(given.items) {
		if err := lost(original, given, in); err != nil {
			return dst, err
		}
		return m.appendMade(dst, made)
	}
	free := map[[32]byte][]int{} // The given elements by their sums; equal elements in their order.
	for i := range given.items {
		sum := given.items[i].sum
		free[sum] = append(free[sum], i)
	}
	used := make([]bool, len(original.items))
	var err error
	dst = append(dst, '[')
	for i := range made.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		e := &made.items[i]
		if same := free[e.sum]; len(same) > 0 {
			n := same[0]
			used[n] = true
			free[e.sum] = same[1:]
			dst, err = m.merge(dst, false, &original.items[n], &given.items[n], e, nil, in.element(), out.element())
		} else {
			dst, err = m.appendMade(dst, e)
		}
		if err != nil {
			return dst, at(fmt.Sprintf("[%d]", i), err)
		}
	}
	for i := range original.items {
		if used[i] {
			continue
		}
		if err := lost(&original.items[i], &given.items[i], in.element()); err != nil {
			return dst, at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return append(dst, ']'), nil
}

// lost returns an error if a part of the value is unknown to the type. The function has changed the value, so that part
// would get lost.
func lost(original, given *tree, in *known) error {
	if in == nil || original.kind != given.kind {
		return nil
	}
	switch original.kind {
	case '{':
		for i, key := range original.keys {
			inner, ok := in.member(key)
			if !ok && original.items[i].kind != 'n' {
				return at(key, errLost)
			}
			if g := given.get(key); ok && g != nil {
				if err := lost(&original.items[i], g, inner); err != nil {
					return at(key, err)
				}
			}
		}
	case '[':
		for i := range min(len(original.items), len(given.items)) {
			if err := lost(&original.items[i], &given.items[i], in.element()); err != nil {
				return at(fmt.Sprintf("[%d]", i), err)
			}
		}
	}
	return nil
}

// isZero reports whether a value is a zero value that Go types omit.
func isZero(value []byte) bool {
	if slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(value)) {
		return true
	}
	return value[0] != '"' && string(appendNumber(nil, value)) == "0"
}
