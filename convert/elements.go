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

// convertElements converts what is inside a list or a table. The edits of elements are
// those of the object unless the list moves: then they are made at once.
func (w *converter) convertElements(p *plan, f *field, value []byte, partial bool) error {
	first := len(w.edits)
	base := w.nodes[f.from[0]].start
	kept, err := w.editElements(f, value, base, partial)
	if err != nil {
		return at(f.place, err)
	}
	edits := w.edits[first:]
	converted := value
	if len(edits) > 0 && (len(kept) > 0 || f.from[0] != f.to[0]) {
		converted = rendered(make([]byte, 0, w.rendered(base, base+len(value))), w.src, edits, base, base+len(value))
	}
	if len(kept) > 0 {
		content, err := w.appendInside(nil, f, converted, kept)
		if err != nil {
			return at(f.place, err)
		}
		w.complement.kept = append(w.complement.kept, entry{place: f.place, inside: content})
	}
	if f.from[0] == f.to[0] {
		return nil
	}
	w.edits = w.edits[:first]
	return w.give(p, f, value, converted)
}

// editElements plans the edits of what is inside a value, which begins at base. It returns
// what is to be kept of it.
func (w *converter) editElements(f *field, value []byte, base int, partial bool) ([]keeping, error) {
	if w.inner == nil {
		w.inner = w.engine.newConverter()
		w.inner.workers = w.workers
	}
	in, s := w.inner, &w.lists
	restorable, err := w.restorableInside(f, value)
	if err != nil {
		return nil, err
	}
	var kept []keeping
	s.Reset(value)
	in.src = value
	convert := func(index int, key []byte) error {
		in.scan(s, f.elements)
		if s.Err() != nil {
			return s.Err()
		}
		if err := in.convertElement(f.elements, restorable.of(index, key), partial); err != nil {
			return err
		}
		for _, e := range in.edits {
			w.edits = append(w.edits, edit{start: base + e.start, end: base + e.end, text: e.text})
		}
		if len(in.complement.kept) > 0 {
			kept = append(kept, keeping{index: index, key: string(key), entries: appendEntries(nil, in.complement.kept)})
		}
		return nil
	}
	if f.open == '[' {
		s.OpenArray()
		for i := 0; s.NextElement(i == 0); i++ {
			if err := convert(i, nil); err != nil {
				return nil, at(fmt.Sprintf("[%d]", i), err)
			}
		}
		return kept, s.Err()
	}
	s.OpenObject()
	for first := true; ; first = false {
		key, _, ok := s.NextKey(first)
		if !ok {
			return kept, s.Err()
		}
		if err := convert(0, key); err != nil {
			return nil, at(placeIn("", string(key)), err)
		}
	}
}

// convertElement plans what is to be changed in the element that was scanned, with the
// entries that belong to it.
func (w *converter) convertElement(p *plan, entries []entry, partial bool) error {
	if w.trouble != nil {
		return w.trouble
	}
	w.complement.restorable, w.complement.kept = entries, w.complement.kept[:0]
	if err := w.convertFields(p, partial); err != nil {
		return err
	}
	return w.restructure(p, partial)
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

// restorableInside returns what the wanted version had inside a value; nil if nothing.
func (w *converter) restorableInside(f *field, value []byte) (*restorables, error) {
	if len(w.complement.restorable) == 0 {
		return nil, nil //nolint:nilnil // It is nothing, which is no error.
	}
	e := w.entryOf(f.target)
	if e == nil || e.inside == nil {
		return nil, nil //nolint:nilnil // As above.
	}
	if f.open == '{' {
		return &restorables{members: parseInsideTable(e.inside)}, nil
	}
	items := parseItems(e.inside)
	if len(items) == 0 {
		return nil, nil //nolint:nilnil // As above.
	}
	elements, err := w.elementsOf(value, f.fromKeys)
	if err != nil {
		return nil, err
	}
	return &restorables{items: w.assign(items, elements)}, nil
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
