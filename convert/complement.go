package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Annotation is the one that keeps what the version of an object cannot hold.
const Annotation = "refract.dev/complement"

// maxAnnotations is how many bytes the keys and values of all annotations of an object may
// have together.
//
// Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/
const maxAnnotations = 256 << 10

// entry is what a version had at a place, and the fingerprint of what was made of it; or
// what its elements had.
type entry struct {
	place string
	value []byte
	of    fingerprint
	// inside is the whole entry of a list or a table, as it stands.
	inside []byte
	// failed says that the value could not be converted: nothing was made of it.
	failed bool
}

// absent is the fingerprint of what a value becomes that the other version has none for.
var absent = new(comparer).fingerprint(null)

// versionEntries are the entries of a version as they stand.
type versionEntries struct {
	version string
	raw     []byte
}

// parseComplement reads an annotation, by version. It reports false if it is none of ours.
func parseComplement(text []byte) ([]versionEntries, bool) {
	var all []versionEntries
	ours, seen := true, map[string]struct{}{}
	err := raw.Members(text, func(version, places []byte) bool {
		v := versionEntries{version: string(version), raw: places}
		_, twice := seen[v.version]
		_, ok := parseEntries(places)
		seen[v.version] = struct{}{}
		all = append(all, v)
		ours = ok && !twice
		return ours
	})
	return all, ours && err == nil
}

// parseEntries reads the entries of a version.
func parseEntries(places []byte) ([]entry, bool) {
	var entries []entry
	ours, seen := true, map[string]struct{}{}
	err := raw.Members(places, func(place, content []byte) bool {
		e, ok := parseEntry(content)
		e.place = string(place)
		_, twice := seen[e.place]
		seen[e.place] = struct{}{}
		entries = append(entries, e)
		ours = ok && !twice
		return ours
	})
	return entries, ours && err == nil
}

// parseEntry reads what is kept of one place: a value with its fingerprint, or what is inside a
// list or a table, and nothing else.
func parseEntry(content []byte) (entry, bool) {
	var e entry
	var of, failed []byte
	n := 0
	err := raw.Members(content, func(key, value []byte) bool {
		n++
		switch string(key) {
		case "value":
			e.value = value
		case "of":
			of = value
		case "failed":
			failed = value
		case "items", "members":
			e.inside = content
		}
		return true
	})
	if err == nil && n == 1 && e.inside != nil {
		return e, true
	}
	if err != nil || n != 2 || e.value == nil || of == nil && failed == nil || e.inside != nil {
		return entry{}, false
	}
	if failed != nil {
		e.failed = string(failed) == "true"
		return e, e.failed
	}
	return e, parseFingerprint(of, &e.of)
}

// parseFingerprint reads a fingerprint; false if it is none.
func parseFingerprint(value []byte, f *fingerprint) bool {
	text, err := raw.String(value)
	return err == nil && copy(f[:], text) == len(text) && len(text) == len(f)
}

// appendEntries appends the entries of one version, ordered by place.
func appendEntries(dst []byte, entries []entry) []byte {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.place, b.place) })
	dst = append(dst, '{')
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e.inside != nil {
			dst = append(append(raw.AppendString(dst, e.place), ':'), e.inside...)
			continue
		}
		dst = append(raw.AppendString(dst, e.place), `:{"value":`...)
		dst = append(dst, e.value...)
		if e.failed {
			dst = append(dst, `,"failed":true}`...)
			continue
		}
		dst = append(dst, `,"of":`...)
		dst = append(raw.AppendString(dst, e.of[:]), '}')
	}
	return append(dst, '}')
}

// appendComplement appends an annotation, ordered by version.
func appendComplement(dst []byte, versions []versionEntries) []byte {
	slices.SortFunc(versions, func(a, b versionEntries) int { return strings.Compare(a.version, b.version) })
	dst = append(dst, '{')
	for i, v := range versions {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(raw.AppendString(dst, v.version), ':')
		dst = append(dst, v.raw...)
	}
	return append(dst, '}')
}

// complement is what of an object is in its annotation: what was kept on the way here, to be
// restored, and what has to be kept now. Of an element of a list it is the part that belongs
// to this element.
type complement struct {
	versions []versionEntries
	// restorable are the entries of the version that is wanted.
	restorable []entry
	// kept are those to write, of the version that the object has.
	kept []entry
	// believes says that what could not be converted comes back: the object says that there is such.
	believes bool
	// anyBelieved says that it says so of any version.
	anyBelieved bool
	unserved    unserved
	// failures are what cannot be converted now.
	failures []error
	// entries and text are what is written, before it is quoted.
	entries, text []byte
	comparer      *comparer
}

// reset makes the complement one of which these entries can be restored.
func (c *complement) reset(restorable []entry) {
	c.versions, c.restorable, c.kept, c.failures = c.versions[:0], restorable, c.kept[:0], c.failures[:0]
}

// read reads an annotation. One that is none of ours counts as none: anybody may write
// annotations, and an object that has a wrong one can still be converted.
func (c *complement) read(annotation, wanted string) {
	c.reset(nil)
	if annotation == "" {
		return
	}
	versions, ok := parseComplement([]byte(annotation))
	if !ok {
		return
	}
	c.versions = versions
	for _, v := range versions {
		if v.version == wanted {
			c.restorable, _ = parseEntries(v.raw)
		}
	}
}

// entry returns what the wanted version had at a place; nil if nothing is kept of it.
func (c *complement) entry(place string) *entry {
	e := c.entryOf(place)
	if e == nil || raw.IsNull(e.value) {
		return nil
	}
	return e
}

// entryOf returns the entry of a place, nil if there is none. One of what could not be converted
// is none.
func (c *complement) entryOf(place string) *entry {
	i := slices.IndexFunc(c.restorable, func(e entry) bool { return e.place == place })
	if i < 0 || c.restorable[i].failed {
		return nil
	}
	return &c.restorable[i]
}

// entryOfAbsent returns the entry of a value that the version of the object has none for,
// nil if there is none such. Its value may be null.
func (c *complement) entryOfAbsent(place string) *entry {
	e := c.entryOf(place)
	if e == nil || e.value == nil || e.of != absent {
		return nil
	}
	return e
}

// passing converts a value, between the version of the object and the one that is wanted.
type passing func(value []byte) ([]byte, error)

// keptValue returns what is kept, if the live value is what was made of it, and would be
// made of it again: an entry alone, which anybody can write, is not believed. The fingerprint
// is compared first, since that is cheap.
func (c *complement) keptValue(e *entry, live []byte, back passing) []byte {
	if e == nil || c.comparer.fingerprint(live) != e.of {
		return nil
	}
	var again []byte
	err := guard(func() (err error) {
		again, err = back(e.value)
		return err
	})
	if err != nil || !c.comparer.equal(again, live) {
		return nil
	}
	return e.value
}

// restored returns made, which the live value became, with what is kept of it, as far as
// it was not changed since: that is where what is kept would be as made is after a way
// there and back. The version of the object must see no difference to made alone. It
// returns nil if there is nothing to restore.
func (c *complement) restored(e *entry, made []byte, keys [][]string, forth, back passing) []byte {
	if e == nil {
		return nil
	}
	var out []byte
	err := guard(func() error {
		there, err := back(e.value)
		if err != nil || raw.IsNull(there) {
			return err
		}
		base, err := forth(there)
		if err != nil {
			return err
		}
		all, err := threeWay(base, made, e.value, keys)
		if err != nil {
			return err
		}
		want, err := back(made)
		if err != nil {
			return err
		}
		got, err := back(all)
		if err != nil || !c.comparer.equal(got, want) {
			return err
		}
		out = all
		return nil
	})
	if err != nil {
		return nil // It is none that this version could have had.
	}
	return out
}

// guard calls a function of values that nobody has validated, for which conversions need
// not be made.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// keep makes the annotation remember a value, and what it was converted to.
func (c *complement) keep(place string, value, converted []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: c.comparer.fingerprint(converted)})
}

// keepAbsent makes the annotation remember a value that the wanted version has none for.
func (c *complement) keepAbsent(place string, value []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: absent})
}

// keeps reports whether the annotation shall remember something at a place.
func (c *complement) keeps(place string) bool {
	return slices.ContainsFunc(c.kept, func(e entry) bool { return e.place == place })
}

// write returns the annotation that an object of version from has when it is of version to,
// nil for none, and whether that is another one than it had: the entries of the version that
// is wanted have served, those of the version that the object had are written anew.
func (c *complement) write(from, to string) (text []byte, changed bool) {
	before := len(c.versions)
	c.versions = slices.DeleteFunc(c.versions, func(v versionEntries) bool {
		return v.version == to && !c.unserved.to || v.version == from && (!c.unserved.from || len(c.kept) > 0)
	})
	if len(c.kept) > 0 {
		c.entries = appendEntries(c.entries[:0], c.kept)
		c.versions = append(c.versions, versionEntries{version: from, raw: c.entries})
	} else if len(c.versions) == before {
		return nil, false
	}
	if len(c.versions) == 0 {
		return nil, true
	}
	c.text = appendComplement(c.text[:0], c.versions)
	return c.text, true
}

// largest returns the place of the kept entry that takes most.
func (c *complement) largest() string {
	return slices.MaxFunc(c.kept, func(a, b entry) int {
		return cmp.Compare(len(a.value)+len(a.inside), len(b.value)+len(b.inside))
	}).place
}

// release makes the complement forget the values, but keeps memory for the next ones.
func (c *complement) release() {
	clear(c.kept[:cap(c.kept)])
	clear(c.versions[:cap(c.versions)])
	clear(c.failures[:cap(c.failures)])
	c.restorable = nil
	trim(&c.text, &c.entries)
}
