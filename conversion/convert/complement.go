package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Annotation is the annotation that keeps the values that the present version of an object cannot represent.
const Annotation = "refract.dev/complement"

// maxAnnotations is the maximum size in bytes of all annotations of an object: the keys and values together.
//
// Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/
const maxAnnotations = 256 << 10

// entry is the kept value of a place in one version, with the fingerprint of the result of its conversion. The entry of
// a list or table has the kept values of the elements instead.
type entry struct {
	place string
	value []byte
	of    fingerprint
	// inside is the whole entry of a list or table, as JSON.
	inside []byte
	// failed is true if the conversion of the value failed. There is no result then.
	failed bool
}

// absent is the fingerprint of null. It stands for the result of a value that is absent in the other version.
var absent = new(comparer).fingerprint(null)

// versionEntries are the entries of one version, as JSON.
type versionEntries struct {
	version string
	raw     []byte
}

// parseComplement parses an annotation into the entries of each version. It returns false if the engine did not write
// the annotation in this format.
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

// parseEntries parses the entries of one version.
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

// parseEntry parses the entry of one place. An entry has a value and either its fingerprint or failed; or it has only
// the content of a list or table.
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

// parseFingerprint parses a fingerprint. It returns false if the value is not a fingerprint.
func parseFingerprint(value []byte, f *fingerprint) bool {
	text, err := raw.String(value)
	return err == nil && copy(f[:], text) == len(text) && len(text) == len(f)
}

// appendEntries appends the entries of one version, sorted by place.
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

// appendComplement appends an annotation, sorted by version.
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

// complement is the content of the annotation of one object: the values that earlier conversions have kept, and the
// values to keep now. For an element of a list or table, it is the part for this element.
type complement struct {
	versions []versionEntries
	// restorable are the entries with values of the target version.
	restorable []entry
	// kept are the new entries, with values of the source version.
	kept []entry
	// believes is true if the annotation [Unconverted] names the target version. Only then are failed values of that
	// version restored.
	believes bool
	// anyBelieved is true if the annotation [Unconverted] names any version.
	anyBelieved bool
	unserved    unserved
	// failures are the errors of the values whose conversion fails now.
	failures []error
	// entries and text are buffers for the text of the annotation.
	entries, text []byte
	comparer      *comparer
}

// reset clears the complement, and sets the restorable entries.
func (c *complement) reset(restorable []entry) {
	c.versions, c.restorable, c.kept, c.failures = c.versions[:0], restorable, c.kept[:0], c.failures[:0]
}

// read parses an annotation. It ignores an annotation in another format: any client may write annotations, and an
// invalid annotation does not prevent the conversion of the object.
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

// entry returns the entry of a place in the target version. It returns nil if there is no kept value, or if the kept
// value is null.
func (c *complement) entry(place string) *entry {
	e := c.entryOf(place)
	if e == nil || raw.IsNull(e.value) {
		return nil
	}
	return e
}

// entryOf returns the entry of a place; nil if there is no entry, or only one for a failed conversion.
func (c *complement) entryOf(place string) *entry {
	i := slices.IndexFunc(c.restorable, func(e entry) bool { return e.place == place })
	if i < 0 || c.restorable[i].failed {
		return nil
	}
	return &c.restorable[i]
}

// entryOfAbsent returns the entry of a value that is absent in the source version; nil if there is none. The kept value
// may be null.
func (c *complement) entryOfAbsent(place string) *entry {
	e := c.entryOf(place)
	if e == nil || e.value == nil || e.of != absent {
		return nil
	}
	return e
}

// passing is a function that converts a value between the source version and the target version.
type passing func(value []byte) ([]byte, error)

// keptValue returns the kept value if the live value is still the result of its conversion. Any client can write an
// entry, so the engine does not trust the fingerprint alone, and converts the kept value again. It compares the
// fingerprint first, because that is cheap.
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

// restored merges the kept value with made, the converted live value. It computes what the kept value becomes after a
// conversion to the other version and back. Parts of made that equal this result come from the kept value, and all
// other parts from made. The merged value must convert to the same value of the source version as made. restored
// returns nil if nothing can be restored.
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
		return nil // The target version cannot have had this value.
	}
	return out
}

// guard calls a function, and returns a panic as an error. It is for values that no schema has validated: conversion
// functions may panic on them.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// keep adds an entry for a value, with the fingerprint of the result of its conversion.
func (c *complement) keep(place string, value, converted []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: c.comparer.fingerprint(converted)})
}

// keepAbsent adds an entry for a value that is absent in the target version.
func (c *complement) keepAbsent(place string, value []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: absent})
}

// keeps reports whether there is a new entry for a place.
func (c *complement) keeps(place string) bool {
	return slices.ContainsFunc(c.kept, func(e entry) bool { return e.place == place })
}

// write returns the annotation of the object after its conversion between two versions, and whether the annotation
// changes; nil means no annotation. It removes the entries of the target version, whose values are now restored or
// obsolete, and replaces the entries of the source version.
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

// largest returns the place of the new entry with the largest value.
func (c *complement) largest() string {
	return slices.MaxFunc(c.kept, func(a, b entry) int {
		return cmp.Compare(len(a.value)+len(a.inside), len(b.value)+len(b.inside))
	}).place
}

// release drops the references to values, and keeps the memory for the next object.
func (c *complement) release() {
	clear(c.kept[:cap(c.kept)])
	clear(c.versions[:cap(c.versions)])
	clear(c.failures[:cap(c.failures)])
	c.restorable = nil
	trim(&c.text, &c.entries)
}
