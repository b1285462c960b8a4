package convert

import (
	"fmt"

	"refract.dev/tree/raw"
)

// Items converts each element of a list by conversions whose places are relative to the element; "" is the element
// itself. The list itself may move. The conversions may be Items and [Values] again, at any depth. Elements that are
// not objects pass unchanged unless one of the conversions is for the element itself.
//
// Values that the other version cannot hold are kept for each element: see [Keys].
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

// Keys declares the fields that identify the elements of a list, in the spoke and in the hub. The list is either the
// list of [Items], or a list that is the value of a [Field] or [RawField]. In the second case, the keys are for the
// merge of kept values with later edits. The absence of a key field is part of the identity, too.
func Keys(spoke, hub []string) Option {
	return func(o *options) { o.spokeKeys, o.hubKeys = spoke, hub }
}

func (o *options) keyed() bool { return len(o.spokeKeys)+len(o.hubKeys) > 0 }

// ofElements returns an error if there is an option that conversions of elements do not support.
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

// keeping has the kept values of one element.
type keeping struct {
	index   int
	key     string // For a table.
	entries []byte
}

// elements converts the elements of lists and the values of tables, one after the other. Each element is a separate
// source with its own places and complement. It therefore has its own rewriter, which in turn may contain elements.
type elements struct {
	scanner raw.Scanner
	inner   *rewriter // Nil until first used.
	names   names
}

// convert appends the edits inside a value to all, and returns them with the values to keep; on error, only some of the
// edits. Base is the offset of the value. E is the entry of the list or table in the target version, or nil.
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

// restorable returns the kept values of the elements in the target version; nil if no values are kept.
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

// release drops all references to elements.
func (s *elements) release() {
	s.scanner.Reset(nil)
	trim(&s.names.scratch)
	if s.inner != nil {
		s.inner.release()
	}
}

// item has the kept values of one element, and identifies the element.
type item struct {
	// name is the canonical list of the values of its keys; "" without keys.
	name string
	// several means that several elements had the same name. Then at is the index of the element among them, size is
	// their number, and of is the fingerprint of the converted element.
	several  bool
	at, size int
	of       fingerprint
	entries  []entry
	given    bool // Already assigned to an element.
}

// restorables are the entries of the elements of a list, or of the values of a table.
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

// parseInsideTable parses the entries of a table. It returns nil if the format is invalid.
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

// parseItems parses the entries of a list. It returns nil if the format is invalid.
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

// parseItem parses the entry of one element. It reports false if the format is invalid.
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
