package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Annotation is the annotation that keeps values which the version of an object cannot hold.
const Annotation = "refract.dev/complement"

// maxAnnotations limits the keys and values of all annotations of an object together, in bytes.
//
// Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/
const maxAnnotations = 256 << 10

// entry is the kept value of a place in one version, with the fingerprint of its result. For a list or table, it is the
// kept values of the elements instead.
type entry struct {
	place string
	value []byte
	of    fingerprint
	// inside is the whole entry of a list or table, as JSON.
	inside []byte
	// failed means that the value could not be converted and has no result.
	failed bool
}

// absent is the fingerprint of null: the result of a value without a counterpart in the other version.
var absent = new(comparer).fingerprint(null)

// versionEntries are the entries of one version, as JSON.
type versionEntries struct {
	version string
	raw     []byte
}

// parseComplement parses an annotation into the entries of each version. It reports false if the annotation is not in
// the format of the engine.
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

// parseEntry parses the entry of one place. The entry has either a value with its fingerprint or failure, or the
// content of a list or table, and nothing else.
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

// parseFingerprint parses a fingerprint. It reports false if the value is not a fingerprint.
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

// complement is the content of the annotation of one object: the values kept by earlier conversions, to be restored,
// and the values to keep now. For an element of a list or table, it is the part for this element.
type complement struct {
	versions []versionEntries
	// restorable are the entries of the target version.
	restorable []entry
	// kept are the new entries, for the source version.
	kept []entry
	// believes means that failed values of the target version are restored: the annotation [Unconverted] names that
	// version.
	believes bool
	// anyBelieved means that the annotation names any version.
	anyBelieved bool
	unserved    unserved
	// failures are the reasons why values cannot be converted now.
	failures []error
	// entries and text are buffers for the annotation before it is quoted.
	entries, text []byte
	comparer      *comparer
}

// reset clears the complement and sets the entries that can be restored.
func (c *complement) reset(restorable []entry) {
	c.versions, c.restorable, c.kept, c.failures = c.versions[:0], restorable, c.kept[:0], c.failures[:0]
}

// read parses an annotation. It ignores an annotation in another format: any client may write annotations, and an
// object with an invalid annotation can still be converted.
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

// entry returns the entry of a place in the target version, nil if no value is kept there or the kept value is null.
func (c *complement) entry(place string) *entry {
	e := c.entryOf(place)
	if e == nil || raw.IsNull(e.value) {
		return nil
	}
	return e
}

// entryOf returns the entry of a place, nil if there is no entry or the value could not be converted.
func (c *complement) entryOf(place string) *entry {
	i := slices.IndexFunc(c.restorable, func(e entry) bool { return e.place == place })
	if i < 0 || c.restorable[i].failed {
		return nil
	}
	return &c.restorable[i]
}

// entryOfAbsent returns the entry of a value without a counterpart in the source version; nil if there is no such
// entry. The kept value may be null.
func (c *complement) entryOfAbsent(place string) *entry {
	e := c.entryOf(place)
	if e == nil || e.value == nil || e.of != absent {
		return nil
	}
	return e
}

// passing converts a value between the source version and the target version.
type passing func(value []byte) ([]byte, error)

// keptValue returns the kept value if its conversion gives the live value, as the entry says. The engine checks both,
// since any client can write an entry. The fingerprint is compared first because that is cheap.
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

// restored merges three values: the kept value, the kept value after a round trip, and made, the converted live value.
// Where the value after the round trip equals made, the kept value is used; elsewhere made is used. In the source
// version, the merged value and made must look the same. restored returns nil if nothing can be restored.
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

// guard calls a function with unvalidated values, for which conversion functions may panic. It returns a panic as an
// error.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// keep adds an entry for a value, with the fingerprint of the converted value.
func (c *complement) keep(place string, value, converted []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: c.comparer.fingerprint(converted)})
}

// keepAbsent adds an entry for a value without a counterpart in the target version.
func (c *complement) keepAbsent(place string, value []byte) {
	c.kept = append(c.kept, entry{place: place, value: value, of: absent})
}

// keeps reports whether there is a new entry for a place.
func (c *complement) keeps(place string) bool {
	return slices.ContainsFunc(c.kept, func(e entry) bool { return e.place == place })
}

// write returns the annotation of an object that is converted from one version to another, nil for no annotation, and
// reports whether the annotation changes. It removes the entries of the target version, which are now restored or
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

// largest returns the place of the largest new entry.
func (c *complement) largest() string {
	return slices.MaxFunc(c.kept, func(a, b entry) int {
		return cmp.Compare(len(a.value)+len(a.inside), len(b.value)+len(b.inside))
	}).place
}

// release drops the references to values, but keeps memory for the next object.
func (c *complement) release() {
	clear(c.kept[:cap(c.kept)])
	clear(c.versions[:cap(c.versions)])
	clear(c.failures[:cap(c.failures)])
	c.restorable = nil
	trim(&c.text, &c.entries)
}
