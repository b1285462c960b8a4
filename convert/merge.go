package convert

import (
	"errors"
	"fmt"
	"slices"

	"refract.dev/tree/raw"
)

// merger puts what a function of whole objects has changed into the object as it was. All
// its arguments are JSON: the original, what the function was given of it, what it made,
// and what it makes of an empty object, nil if there is nothing such. Each value is looked
// at once.
type merger struct {
	// nulls says that nulls are meant.
	nulls bool
	// shed says which of the members that are what an empty object gives are left out, by
	// the number that they are found in; beyond its length all are. At the root they always
	// are.
	shed []bool
	// spared is how many there were.
	spared int
	// gone is how many zero values have gone that the function could not see.
	gone int
	// unchanged says that the function has changed nothing of the value at hand.
	unchanged bool
}

var errLost = errors.New("the types of this version do not know the field, and the other version has no place for it")

// merge appends what becomes of a value that the function was given and made something of.
// In and out are what the types of both versions have a place for.
func (m *merger) merge(dst []byte, root bool, original, given, made, empty *tree, in, out *known) ([]byte, error) {
	alike := given.kind == original.kind && made.kind == original.kind
	switch {
	case given.same(made) && (given.same(original) || original.twice != nil):
		// The function has not changed it, and was given all of it; or nobody can say which of two
		// members of one key it was given.
		return append(dst, original.text...), nil
	case given.same(made) && !m.unchanged:
		// It has not changed what it was given, which was not all of it. So the value stands, unless
		// a zero value goes from inside it that the types have left out.
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
	// The value is another one, of which no member can be told from one of the original.
	if err := lost(original, given, in); err != nil {
		return dst, err
	}
	return m.appendMade(dst, made)
}

// appendMade appends what the function made, without members that are null and that
// nobody asked for.
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

// appendKey appends what stands before the value of a member.
func appendKey(dst []byte, first bool, key string) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return append(raw.AppendString(dst, key), ':')
}

// mergeObjects merges member by member: those of the original stay in their order, and those that
// the function has added come behind them. A member that nothing was appended for is no more.
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
		if len(with) > value { // Otherwise there is no such member any more.
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

// mergeMember appends what becomes of a member of the original; nothing if it is no more.
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
			return append(dst[:value], s...), nil // What Go has no other word for.
		}
		return dst[:value], nil
	case given != nil:
		return dst, lost(original, given, inner)
	case made == nil && !knownThere,
		made == nil && hasPlace && (original.kind == 'n' || inner.zeroAs(outer) && isZero(original.text)),
		made != nil && original.same(made):
		return append(dst, original.text...), nil
	case made == nil:
		// The function was given a zero value, and has not made the other version's zero value of
		// that name of it.
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

// addMember appends a member that the original does not have; nothing if it shall not get
// it.
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

// mergeArrays takes the elements that the function left as they were from the original, wherever
// they are now: so they keep the fields that the types do not know. If the types have read
// another number of elements nobody knows which is which.
func (m *merger) mergeArrays(dst []byte, original, given, made *tree, in, out *known) ([]byte, error) {
	if len(original.items) != len(given.items) {
		if err := lost(original, given, in); err != nil {
			return dst, err
		}
		return m.appendMade(dst, made)
	}
	free := map[[32]byte][]int{} // The elements that were given, by their sums; equal ones in their order.
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

// lost returns an error if the type has no place for all of a value that the function
// changed.
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

// isZero reports whether a value is one that Go types leave out.
func isZero(value []byte) bool {
	if slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(value)) {
		return true
	}
	return value[0] != '"' && string(appendNumber(nil, value)) == "0"
}
