package convert

import (
	"cmp"
	"slices"
	"strconv"

	"refract.dev/tree/raw"
)

// element is an element of a list, with the name that identifies it.
type element struct {
	text []byte
	name string
}

// names identifies the elements of lists by the values of their key fields. So kept values find their element again
// after other elements were added, or after the list was reordered.
type names struct {
	comparer *comparer
	scratch  []byte
}

// elementsOf returns the elements of a list with their names.
func (s *names) elementsOf(list []byte, keys [][]string) ([]element, error) {
	var elements []element
	err := raw.Elements(list, func(_ int, value []byte) bool {
		elements = append(elements, element{text: value, name: s.nameOf(value, keys)})
		return true
	})
	return elements, err
}

// nameOf returns the name of an element: the values of its key fields as a canonical list, or "" without keys. A
// missing field counts as null.
func (s *names) nameOf(value []byte, keys [][]string) string {
	if len(keys) == 0 {
		return ""
	}
	name := s.scratch[:0]
	name = append(name, '[')
	for i, path := range keys {
		if i > 0 {
			name = append(name, ',')
		}
		part := lookUpRaw(value, path)
		if part == nil {
			part = null
		}
		name = append(name, part...)
	}
	name = append(name, ']')
	s.scratch = name
	return string(s.comparer.canonical(nil, s.scratch))
}

// lookUpRaw returns the value at a path; nil if there is none.
func lookUpRaw(value []byte, path []string) []byte {
	for _, key := range path {
		if len(value) == 0 || value[0] != '{' {
			return nil
		}
		var err error
		if value, err = raw.Field(value, key); err != nil {
			return nil
		}
	}
	return value
}

// parseCount parses a number. It returns false if the number is invalid or negative.
func parseCount(value []byte, n *int) bool {
	parsed, err := strconv.Atoi(string(value))
	*n = parsed
	return err == nil && parsed >= 0
}

// groups returns the indexes of the elements with each name. The name "" has all elements, because an item from the
// time before keys were declared may belong to any element.
func groups(elements []element) map[string][]int {
	all := map[string][]int{}
	for i, e := range elements {
		all[e.name] = append(all[e.name], i)
		if e.name != "" {
			all[""] = append(all[""], i)
		}
	}
	return all
}

// assignment assigns items to the elements that they belong to.
type assignment struct {
	elements []element
	named    map[string][]int
	prints   map[int]fingerprint // Fingerprints by index, for elements that items with duplicate names may belong to.
	given    map[int][]entry     // Assigned entries, by the index of the element.
}

// assign returns the entries of the elements, by index. An item with a unique name belongs to the element with this
// name. Items with a duplicate name are assigned in three steps: to an element with the same fingerprint and position,
// to an element with the same fingerprint at another position, and to the element at the same position. The third step
// requires that the number of elements with this name is unchanged.
func (s *names) assign(items []item, elements []element) map[int][]entry {
	a := &assignment{elements: elements, named: groups(elements), prints: map[int]fingerprint{}, given: map[int][]entry{}}
	var several []*item
	printed := map[string]bool{}
	for n := range items {
		i := &items[n]
		same := a.named[i.name]
		switch {
		case len(same) == 0:
			continue
		case !i.several:
			a.give(i, same[0])
			continue
		}
		several = append(several, i)
		if printed[i.name] { // Only once for each name, because any client may write many items with one name.
			continue
		}
		printed[i.name] = true
		for _, index := range same {
			a.prints[index] = s.comparer.fingerprint(elements[index].text)
		}
	}
	// Unchanged elements come first: at their position, and then at other positions. The remaining items have only the
	// position.
	for _, i := range several {
		if index, ok := a.at(i); ok && a.prints[index] == i.of {
			a.give(i, index)
		}
	}
	a.giveElsewhere(several)
	for _, i := range several {
		if index, ok := a.at(i); ok && len(a.named[i.name]) == i.size { // With another number of elements, positions have changed.
			a.give(i, index)
		}
	}
	return a.given
}

// give assigns an item to the element at an index, unless one of the two is already assigned.
func (a *assignment) give(i *item, index int) {
	if _, ok := a.given[index]; ok || i.given {
		return
	}
	a.given[index], i.given = i.entries, true
}

// at returns the index of the element at the position of an item. The position counts only elements with the same name.
func (a *assignment) at(i *item) (int, bool) {
	same := a.named[i.name]
	if i.at >= len(same) {
		return 0, false
	}
	return same[i.at], true
}

// giveElsewhere assigns items to elements with the same fingerprint, at any position. Elements with the same
// fingerprint are equal, so the item gets the first free one.
func (a *assignment) giveElsewhere(items []*item) {
	free := map[fingerprint][]int{}
	for index := range a.elements {
		if of, ok := a.prints[index]; ok {
			free[of] = append(free[of], index)
		}
	}
	for _, i := range items {
		for !i.given && len(free[i.of]) > 0 {
			index := free[i.of][0]
			free[i.of] = free[i.of][1:]
			if i.name == "" || a.elements[index].name == i.name {
				a.give(i, index)
			}
		}
	}
}

// appendInside appends the entry of a list or table. converted is the converted list. An element is identified by its
// key fields in the target version, because the conversion back has only that version. An element without a unique name
// is also identified by its position and by the fingerprint of the converted element.
func (s *names) appendInside(dst []byte, f *field, converted []byte, kept []keeping) ([]byte, error) {
	if f.open == '{' {
		return appendMembers(dst, kept)
	}
	elements, err := s.elementsOf(converted, f.to.keys)
	if err != nil {
		return dst, err
	}
	named := groups(elements)
	dst = append(dst, `{"items":[`...)
	for i, k := range kept {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		e := &elements[k.index]
		if e.name != "" {
			dst = append(append(append(dst, `"key":`...), e.name...), ',')
		}
		if same := named[e.name]; e.name == "" || len(same) > 1 {
			position, _ := slices.BinarySearch(same, k.index)
			dst = strconv.AppendInt(append(dst, `"at":`...), int64(position), 10)
			dst = strconv.AppendInt(append(dst, `,"size":`...), int64(len(same)), 10)
			of := s.comparer.fingerprint(e.text)
			dst = append(raw.AppendString(append(dst, `,"of":`...), of[:]), ',')
		}
		dst = append(append(append(dst, `"kept":`...), k.entries...), '}')
	}
	return append(dst, `]}`...), nil
}

// appendMembers appends the entry of a table. The members are sorted by key, so that equal objects have equal
// annotations. A duplicate key is an error, because the entry would have two members with this key.
func appendMembers(dst []byte, kept []keeping) ([]byte, error) {
	slices.SortStableFunc(kept, func(a, b keeping) int { return cmp.Compare(a.key, b.key) })
	dst = append(dst, `{"members":{`...)
	for i, k := range kept {
		if i > 0 {
			if k.key == kept[i-1].key {
				return dst, at(placeIn("", k.key), errTwice)
			}
			dst = append(dst, ',')
		}
		dst = append(append(raw.AppendString(dst, k.key), ':'), k.entries...)
	}
	return append(dst, `}}`...), nil
}
