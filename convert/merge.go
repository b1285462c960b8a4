package convert

import (
	"errors"
	"fmt"

	"refract.dev/tree/raw"
)

// merger puts what a function of whole objects has changed into the object as it was. All
// its arguments are JSON: the original, what the function was given of it, what it made,
// and what it makes of an empty object, nil if there is nothing such.
type merger struct {
	// incomplete says that the original has fields that the function was not given.
	incomplete bool
	// nulls says that nulls are meant.
	nulls    bool
	comparer comparer
}

var errLost = errors.New("the types of this version do not know the field, and the other version has no place for it")

// merge appends what becomes of a value that the function was given and made something of.
func (m *merger) merge(dst []byte, path string, original, given, made, empty []byte) ([]byte, error) {
	first := original[0]
	alike := given[0] == first && made[0] == first
	switch {
	case string(given) == string(made):
		return append(dst, original...), nil
	case alike && first == '{':
		return m.mergeObjects(dst, path, original, given, made, empty)
	case alike && first == '[':
		return m.mergeArrays(dst, path, original, given, made)
	case m.comparer.equal(given, made):
		return append(dst, original...), nil
	}
	if err := m.lost(path, original, given); err != nil {
		return dst, err
	}
	return m.appendMade(dst, made, first == 'n')
}

// appendMade appends what the function made, without nulls that nobody asked for.
func (m *merger) appendMade(dst, made []byte, wasNull bool) ([]byte, error) {
	switch {
	case m.nulls || made[0] == 'n' && wasNull:
		return append(dst, made...), nil
	case made[0] == '{':
		return m.mergeObjects(dst, "", emptyObject, emptyObject, made, nil)
	case made[0] != '[':
		return append(dst, made...), nil
	}
	dst = append(dst, '[')
	var failed error
	err := raw.Elements(made, func(i int, element []byte) bool {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst, failed = m.appendMade(dst, element, true)
		return failed == nil
	})
	return append(dst, ']'), errors.Join(err, failed)
}

var emptyObject = []byte("{}")

func (m *merger) mergeObjects(dst []byte, path string, original, given, made, empty []byte) ([]byte, error) {
	members, err := membersOf(original)
	if err != nil {
		return dst, at(path, err)
	}
	added, err := membersOf(made)
	if err != nil {
		return dst, at(path, err)
	}
	givens, mades, empties := byKey(given), byKey(made), byKey(empty)
	dst = append(dst, '{')
	first := true
	emit := func(key string, value []byte) {
		dst = appendMember(dst, first, key, value)
		first = false
	}
	was := make(map[string]struct{}, len(members))
	for _, o := range members {
		was[o.key] = struct{}{}
		value, err := m.mergeMember(join(path, o.key), o.value, givens[o.key], mades[o.key], empties[o.key])
		if err != nil {
			return dst, err
		}
		if value != nil {
			emit(o.key, value)
		}
	}
	for _, a := range added {
		if _, ok := was[a.key]; ok {
			continue
		}
		value, err := m.addMember(a.value, givens[a.key], empties[a.key])
		if err != nil {
			return dst, at(join(path, a.key), err)
		}
		if value != nil {
			emit(a.key, value)
		}
	}
	return append(dst, '}'), nil
}

// mergeMember returns what becomes of a member of the original; nil if it is no more.
func (m *merger) mergeMember(path string, original, given, made, empty []byte) ([]byte, error) {
	switch {
	case given != nil && made != nil:
		value, err := m.merge(nil, path, original, given, made, empty)
		if err != nil || value[0] != 'n' || original[0] == 'n' || m.nulls {
			return value, err
		}
		if s := string(original); s == "[]" || s == "{}" {
			return original, nil // What Go has no other word for.
		}
		return nil, nil
	case given == nil && made == nil:
		return original, nil
	case given != nil:
		return nil, m.lost(path, original, given)
	case m.comparer.equal(original, made):
		return original, nil
	case m.incomplete && !isZero(original):
		return nil, at(path, fmt.Errorf("%w: there is another value", errLost))
	default:
		return m.appendMade(nil, made, original[0] == 'n')
	}
}

// addMember returns a member that the original does not have; nil if it shall not get it.
func (m *merger) addMember(made, given, empty []byte) ([]byte, error) {
	switch {
	case made[0] == 'n' && !m.nulls,
		given != nil && m.comparer.equal(given, made),
		empty != nil && m.comparer.equal(empty, made):
		return nil, nil
	case made[0] == '{' && empty != nil && empty[0] == '{':
		return m.mergeObjects(nil, "", emptyObject, emptyObject, made, empty)
	default:
		return m.appendMade(nil, made, false)
	}
}

// mergeArrays takes the elements that the function left as they were from the original.
func (m *merger) mergeArrays(dst []byte, path string, original, given, made []byte) ([]byte, error) {
	originals, givens, mades := elementsOf(original), elementsOf(given), elementsOf(made)
	if len(originals) != len(givens) {
		if err := m.lost(path, original, given); err != nil {
			return dst, err
		}
		return m.appendMade(dst, made, false)
	}
	free := map[string][]int{}
	for i, g := range givens {
		key := string(m.comparer.canonical(nil, g))
		free[key] = append(free[key], i)
	}
	dst = append(dst, '[')
	used := make([]bool, len(originals))
	for i, e := range mades {
		if i > 0 {
			dst = append(dst, ',')
		}
		key := string(m.comparer.canonical(nil, e))
		if same := free[key]; len(same) > 0 {
			used[same[0]] = true
			free[key] = same[1:]
			dst = append(dst, originals[same[0]]...)
			continue
		}
		var err error
		if dst, err = m.appendMade(dst, e, true); err != nil {
			return dst, at(fmt.Sprintf("%s[%d]", path, i), err)
		}
	}
	for i, original := range originals {
		if used[i] {
			continue
		}
		if err := m.lost(fmt.Sprintf("%s[%d]", path, i), original, givens[i]); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// lost returns an error if the function was not given all of a value that it changed.
func (m *merger) lost(path string, original, given []byte) error {
	if !m.incomplete || original[0] != given[0] {
		return nil
	}
	switch original[0] {
	case '{':
		members, err := membersOf(original)
		if err != nil {
			return at(path, err)
		}
		givens := byKey(given)
		for _, o := range members {
			inner := join(path, o.key)
			g, ok := givens[o.key]
			if !ok && !isZero(o.value) {
				return at(inner, errLost)
			}
			if !ok {
				continue
			}
			if err := m.lost(inner, o.value, g); err != nil {
				return err
			}
		}
	case '[':
		originals, givens := elementsOf(original), elementsOf(given)
		for i := range min(len(originals), len(givens)) {
			if err := m.lost(fmt.Sprintf("%s[%d]", path, i), originals[i], givens[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// isZero reports whether a value is one that Go types leave out.
func isZero(value []byte) bool {
	switch string(value) {
	case "null", "false", `""`, "[]", "{}":
		return true
	}
	return value[0] != '"' && string(appendNumber(nil, value)) == "0"
}

func byKey(object []byte) map[string][]byte {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	values := map[string][]byte{}
	if err := raw.Members(object, func(key, value []byte) bool {
		values[string(key)] = value
		return true
	}); err != nil {
		return nil // Cannot be: it was read before.
	}
	return values
}

func elementsOf(array []byte) [][]byte {
	var elements [][]byte
	if err := raw.Elements(array, func(_ int, value []byte) bool {
		elements = append(elements, value)
		return true
	}); err != nil {
		return nil // Cannot be: it was read before.
	}
	return elements
}
