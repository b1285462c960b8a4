package convert

import (
	"fmt"

	"refract.dev/tree/raw"
)

// Items converts each element of a list. The places of the conversions are relative to the element; "" is the element
// itself. The list may move. The conversions may be Items and [Values] again, at any depth. Elements that are not
// objects stay unchanged unless a conversion is for the element itself.
//
// Values that the other version cannot represent are kept for each element: see [Keys].
func Items(spoke, hub string, conversions []Conversion, o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	c.inside, c.elements = conversions, '['
	c.err = c.options.ofElements()
	return c
}

// Values is [Items] for the values of a table: an object whose keys are data and identify the values.
func Values(spoke, hub string, conversions []Conversion, o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	c.inside, c.elements = conversions, '{'
	c.err = c.options.ofElements()
	if c.options.keyed() {
		c.err = errKeysUnused
	}
	return c
}

// Keys declares the fields that identify the elements of a list, in the spoke and in the hub. The list is that of
// [Items], or the value of a [Field] or [RawField]. For a Field or RawField, the keys serve to merge kept values with
// later edits. Elements without a key field are identified by its absence.
func Keys(spoke, hub []string) Option {
	return func(o *options) { o.spokeKeys, o.hubKeys = spoke, hub }
}

func (o *options) keyed() bool { return len(o.spokeKeys)+len(o.hubKeys) > 0 }

// ofElements returns an error for an option that Items and Values do not support.
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

// keeping has the new entries of one element.
type keeping struct {
	index   int
	key     string // For a table.
	entries []byte
}

// elements converts the elements of lists and the values of tables, one after the other. Each element is a source of
// its own, with its own places and complement. So elements have a rewriter of their own, which may contain elements
// again.
type elements struct {
	scanner raw.Scanner
	inner   *rewriter // Nil until first used.
	names   names
}

// convert appends the edits of the elements of a list or table to all. It returns all edits, the values to keep, and
// the failures; after an error it may return only some of the edits. base is the offset of the value, e the entry of
// the list or table in the target version or nil.
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

// restorable returns the kept values of the elements for the target version; nil if there are none.
func (s *elements) restorable(f *field, value []byte, e *entry) (*restorables, error) {
	if e == nil || e.inside == nil {
		return nil, nil //nolint:nilnil // No kept values, and no error.
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

// release drops all references to elements.
func (s *elements) release() {
	s.scanner.Reset(nil)
	trim(&s.names.scratch)
	if s.inner != nil {
		s.inner.release()
	}
}

// item has the kept values of one element of a list, and identifies the element.
type item struct {
	// name has the values of the key fields of the element, as a canonical list; "" without keys.
	name string
	// several is true if several elements had the same name. Then at is the index of the element among them, size is
	// their number, and of is the fingerprint of the converted element.
	several  bool
	at, size int
	of       fingerprint
	entries  []entry
	given    bool // Whether the item is assigned to an element.
}

// restorables are the entries of the elements of a list or table: items by index, or members by key.
type restorables struct {
	items   map[int][]entry
	members map[string][]entry
}

// of returns the entries of one element of a list or table.
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

// parseInsideTable parses the entries of a table. It returns nil for an invalid format.
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

// parseItems parses the entries of a list. It returns nil for an invalid format.
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

// parseItem parses the entry of one element. It returns false for an invalid format.
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
