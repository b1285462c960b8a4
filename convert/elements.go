package convert

import (
	"fmt"

	"refract.dev/tree/raw"
)

// Items converts each element of a list by conversions whose places are relative to the
// element, from its own keys on; "" is the element itself. The list itself may move. The
// conversions may be Items and [Values] again, at any depth. Elements that are no objects
// pass as they are unless one of the conversions is of the element itself.
//
// What the other version cannot hold is kept per element: see [Keys].
func Items(spoke, hub string, conversions []Conversion, o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	c.inside, c.elements = conversions, '['
	c.err = c.options.ofElements()
	return c
}

// Values is [Items] for the values of a table: an object whose keys are data, by which
// they are told apart.
func Values(spoke, hub string, conversions []Conversion, o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	c.inside, c.elements = conversions, '{'
	c.err = c.options.ofElements()
	if c.options.keyed() {
		c.err = errKeysUnused
	}
	return c
}

// Keys says which fields of the elements of a list tell them apart, in the spoke and in
// the hub: those of [Items], or of a list that is the value of a [Field] or [RawField]
// itself, for when what was kept is merged with what was changed since. A field that an
// element does not have is one of its names, too.
func Keys(spoke, hub []string) Option {
	return func(o *options) { o.spokeKeys, o.hubKeys = spoke, hub }
}

func (o *options) keyed() bool { return len(o.spokeKeys)+len(o.hubKeys) > 0 }

// ofElements returns an error if there is an option that elements have no use for.
func (o *options) ofElements() error {
	switch {
	case o.hasFill:
		return errDefaultTwice
	case o.spoke != nil || o.hub != nil:
		return errEquivalent
	default:
		return nil
	}
}

// keeping is what elements had that the other version cannot hold.
type keeping struct {
	index   int
	key     string // In a table.
	entries []byte
}

// elements converts what is inside lists and tables, one element after the other. An element
// is a source of its own, with places and a complement of its own; so it has a rewriter of
// its own, in which there may be elements again.
type elements struct {
	scanner raw.Scanner
	inner   *rewriter // Nil until it is needed.
	names   names
}

// convert appends the edits of what is inside a value, which begins at base, to all; if there
// is an error, some of them. It returns them with what is to be kept. E is what the version
// that is wanted had of the list or table, nil if nothing.
func (s *elements) convert(
	all edits, base int, f *field, value []byte, e *entry,
) (edits, []keeping, []error, error) {
	restorable, err := s.restorable(f, value, e)
	if err != nil {
		return all, nil, nil, err
	}
	var kept []keeping
	var failures []error
	in := s.inner
	s.scanner.Reset(value)
	convert := func(index int, key []byte, where func() string) error {
		if err := in.element(&s.scanner, f.elements, restorable.of(index, key)); err != nil {
			return err
		}
		for _, e := range in.changes.edits {
			all = append(all, edit{start: base + e.start, end: base + e.end, text: e.text})
		}
		for _, failure := range in.complement.failures {
			failures = append(failures, at(where(), failure))
		}
		if own := in.complement.kept; len(own) > 0 {
			kept = append(kept, keeping{index: index, key: string(key), entries: appendEntries(nil, own)})
		}
		return nil
	}
	if f.open == '[' {
		s.scanner.OpenArray()
		for i := 0; s.scanner.NextElement(i == 0); i++ {
			where := func() string { return fmt.Sprintf("[%d]", i) }
			if err := convert(i, nil, where); err != nil {
				return all, nil, nil, at(where(), err)
			}
		}
		return all, kept, failures, s.scanner.Err()
	}
	s.scanner.OpenObject()
	for first := true; ; first = false {
		key, _, ok := s.scanner.NextKey(first)
		if !ok {
			return all, kept, failures, s.scanner.Err()
		}
		where := func() string { return placeIn("", string(key)) }
		if err := convert(0, key, where); err != nil {
			return all, nil, nil, at(where(), err)
		}
	}
}

// restorable returns what the wanted version had inside a value, from its entry; nil if
// nothing.
func (s *elements) restorable(f *field, value []byte, e *entry) (*restorables, error) {
	if e == nil || e.inside == nil {
		return nil, nil //nolint:nilnil // It is nothing, which is no error.
	}
	if f.open == '{' {
		return &restorables{members: parseInsideTable(e.inside)}, nil
	}
	items := parseItems(e.inside)
	if len(items) == 0 {
		return nil, nil //nolint:nilnil // As above.
	}
	elements, err := s.names.elementsOf(value, f.from.keys)
	if err != nil {
		return nil, err
	}
	return &restorables{items: s.names.assign(items, elements)}, nil
}

// release makes the elements forget what they were.
func (s *elements) release() {
	s.scanner.Reset(nil)
	trim(&s.names.scratch)
	if s.inner != nil {
		s.inner.release()
	}
}

// item is what an element had, and which one it is.
type item struct {
	// name are the values of its keys, as a canonical list; "" without keys.
	name string
	// several says that others had the same name: it was the one at this index of so many,
	// and this was made of it.
	several  bool
	at, size int
	of       fingerprint
	entries  []entry
	given    bool // To an element.
}

// restorables are the entries of what is inside a value.
type restorables struct {
	items   map[int][]entry
	members map[string][]entry
}

// of returns the entries of an element of a list, or of a table.
func (r *restorables) of(index int, key []byte) []entry {
	switch {
	case r == nil:
		return nil
	case r.items != nil:
		return r.items[index]
	default:
		return r.members[string(key)]
	}
}

// parseInsideTable reads the entries of a table; nil if they are not ours.
func parseInsideTable(content []byte) map[string][]entry {
	members, err := raw.Field(content, "members")
	if err != nil || members == nil {
		return nil
	}
	all, ours := map[string][]entry{}, true
	err = raw.Members(members, func(key, value []byte) bool {
		all[string(key)], ours = parseEntries(value)
		return ours
	})
	if err != nil || !ours {
		return nil
	}
	return all
}

// parseItems reads the entries of a list; nil if they are not ours.
func parseItems(content []byte) []item {
	list, err := raw.Field(content, "items")
	if err != nil || list == nil {
		return nil
	}
	var items []item
	ours := true
	err = raw.Elements(list, func(_ int, value []byte) bool {
		var i item
		i, ours = parseItem(value)
		items = append(items, i)
		return ours
	})
	if err != nil || !ours {
		return nil
	}
	return items
}

// parseItem reads what is kept of one element; false if it is not ours.
func parseItem(content []byte) (item, bool) {
	var i item
	ours := true
	var c comparer
	err := raw.Members(content, func(key, value []byte) bool {
		switch string(key) {
		case "key":
			i.name = string(c.canonical(nil, value))
		case "at":
			i.several = true
			ours = parseCount(value, &i.at)
		case "size":
			ours = parseCount(value, &i.size)
		case "of":
			ours = parseFingerprint(value, &i.of)
		case "kept":
			i.entries, ours = parseEntries(value)
		}
		return ours
	})
	return i, ours && err == nil
}
