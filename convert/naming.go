package convert

import (
	"cmp"
	"slices"
	"strconv"

	"refract.dev/tree/raw"
)

// element is one of a list, and which one it is.
type element struct {
	text []byte
	name string
}

// names tells the elements of lists apart, by the values of their keys: so what is kept of an
// element finds it again when others were added, or they are in another order.
type names struct {
	comparer *comparer
	scratch  []byte
}

// elementsOf returns the elements of a list with their names: the values of their keys.
func (s *names) elementsOf(list []byte, keys [][]string) ([]element, error) {
	var elements []element
	err := raw.Elements(list, func(_ int, value []byte) bool {
		elements = append(elements, element{text: value, name: s.nameOf(value, keys)})
		return true
	})
	return elements, err
}

// nameOf returns the values of the keys of an element as a canonical list; "" without keys.
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

// lookUpRaw returns the value at a path, nil if there is none.
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

// parseCount reads a number that is no less than zero.
func parseCount(value []byte, n *int) bool {
	parsed, err := strconv.Atoi(string(value))
	*n = parsed
	return err == nil && parsed >= 0
}

// groups returns the indexes of the elements by their names, and of all by "": an item that
// was written before there were keys may be of any.
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

// assignment gives items to the elements that they are of.
type assignment struct {
	elements []element
	named    map[string][]int
	prints   map[int]fingerprint // Of elements, by index, whose name is one of several.
	given    map[int][]entry     // By the index of the element.
}

// assign returns the entries of the elements by index. Each item goes to the element with
// its name. Of several with one name it goes to one that is what was made of its own, at
// its position if possible; otherwise to the one at its position, if they are as many as
// they were.
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
		if printed[i.name] { // Once: anybody may write many items of one name.
			continue
		}
		printed[i.name] = true
		for _, index := range same {
			a.prints[index] = s.comparer.fingerprint(elements[index].text)
		}
	}
	// The elements that nobody has touched come first, then those that are elsewhere and the same:
	// only for what is left is the position all there is to go by.
	for _, i := range several {
		if index, ok := a.at(i); ok && a.prints[index] == i.of {
			a.give(i, index)
		}
	}
	a.giveElsewhere(several)
	for _, i := range several {
		if index, ok := a.at(i); ok && len(a.named[i.name]) == i.size { // Otherwise the positions are others now.
			a.give(i, index)
		}
	}
	return a.given
}

// give assigns an item to an element, unless either is assigned.
func (a *assignment) give(i *item, index int) {
	if _, ok := a.given[index]; ok || i.given {
		return
	}
	a.given[index], i.given = i.entries, true
}

// at returns the index of the element at the position of an item.
func (a *assignment) at(i *item) (int, bool) {
	same := a.named[i.name]
	if i.at >= len(same) {
		return 0, false
	}
	return same[i.at], true
}

// giveElsewhere assigns items to elements that are what was made of theirs, at whatever position.
// Of equal elements each is as good as another, so that the first free one gets the item.
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

// appendInside appends the entry of a list or a table that became converted. Elements are named
// as the other version has them, since they are looked for there. One that has no name of its
// own is also known by its position and by what was made of it.
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

// appendMembers appends the entry of a table, ordered, so that equal objects have equal
// annotations. A key that is there twice would make two members of one.
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
