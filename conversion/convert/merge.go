package convert

import (
	"errors"
	"fmt"
	"slices"

	"refract.dev/tree/raw"
)

// merger applies the changes that the user's function made to the original object. The arguments of merge are JSON
// values. original is the stored value. given is the value that the function received; it lacks fields that the Go type
// does not have. made is the result of the function. empty is the result for an empty object; nil if the function fails
// for it. The merger visits each value at most once.
type merger struct {
	// nulls is true if null members of made are intended.
	nulls bool
	// shed has, for each optional member, whether it is omitted. An optional member equals the one that the function
	// makes from an empty object. The indexes follow the order in which the merger finds the members. Members beyond
	// the end of shed are omitted, and all optional members of the root.
	shed []bool
	// spared is the number of optional members below the root.
	spared int
	// gone is the number of removed zero values that the function did not receive.
	gone int
	// unchanged is true inside a value that the function has not changed.
	unchanged bool
}

var errLost = errors.New("the types of this version do not know the field, and the other version has no place for it")

// merge appends the merged value to dst. in and out are the types of the value in the two versions.
func (m *merger) merge(dst []byte, root bool, original, given, made, empty *tree, in, out *known) ([]byte, error) {
	alike := given.kind == original.kind && made.kind == original.kind
	switch {
	case given.same(made) && (given.same(original) || original.twice != nil):
		// The function has received the whole value and not changed it. Or the value has a duplicate key, so it is
		// unknown which of the two values the function received.
		return append(dst, original.text...), nil
	case given.same(made) && !m.unchanged:
		// The function has not changed the received part of the value, so the original stays. The exception are zero
		// values inside it that the type omits and that must be removed.
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
	// The function has replaced the value. The new members do not correspond to the original ones.
	if err := lost(original, given, in); err != nil {
		return dst, err
	}
	return m.appendMade(dst, made)
}

// appendMade appends the result of the function. Unless nulls is true, it omits null members.
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

// appendKey appends the key of a member, after a comma unless the member is the first one.
func appendKey(dst []byte, first bool, key string) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return append(raw.AppendString(dst, key), ':')
}

// mergeObjects merges the members. Members of the original come first, in their order, and then the members that the
// function added. If nothing is appended for the value of a member, the member is removed.
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
		if len(with) > value { // Without a value the member is removed.
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

// mergeMember appends the merged value of a member of the original. It appends nothing if the member is removed.
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
			return append(dst[:value], s...), nil // Go types that omit empty values return null for these.
		}
		return dst[:value], nil
	case given != nil:
		return dst, lost(original, given, inner)
	case made == nil && !knownThere,
		made == nil && hasPlace && (original.kind == 'n' || inner.zeroAs(outer) && isZero(original.text)),
		made != nil && original.same(made):
		return append(dst, original.text...), nil
	case made == nil:
		// The function did not receive this zero value, and the other version has no field of the same name and kind.
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

// addMember appends the value of a member that the original does not have. It appends nothing if the member is omitted.
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

// mergeArrays copies each element that the function has not changed from the original, even if its index has changed.
// So these elements keep fields that the types do not have. If the function received a different number of elements
// than the original has, the elements cannot be matched.
func (m *merger) mergeArrays(dst []byte, original, given, made *tree, in, out *known) ([]byte, error) {
	if len(original.items) != len(given.items) {
		if err := lost(original, given, in); err != nil {
			return dst, err
		}
		return m.appendMade(dst, made)
	}
	free := map[[32]byte][]int{} // The indexes of the given elements, by their sums. Equal elements are in their order.
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

// lost returns an error if the value contains a field that the type does not have. The function has changed the value,
// so this field would get lost.
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

// isZero reports whether a value is a zero value that omitempty omits.
func isZero(value []byte) bool {
	if slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(value)) {
		return true
	}
	return value[0] != '"' && string(appendNumber(nil, value)) == "0"
}
