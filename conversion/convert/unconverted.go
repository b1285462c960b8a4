package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Unconverted is the annotation of an object with parts that could not be converted, with [Keep]. Its value is a JSON
// object of texts, by source version:
//
//	{"v1alpha1":"spec.size: 7 exceeds 5"}
//
// [Annotation] has the parts that could not be converted. They come back on the way to that version, regardless of the
// value at their place: API servers fill in defaults there, and no other writer is allowed to change it. A client that
// can write this annotation can write the values that come back. The policy config/admission/unconverted.yaml lets API
// servers reject such writes, and all other changes of the object in a version that lacks a part. Without that policy,
// such a change has no effect. An engine with [Fail] ignores these entries.
const Unconverted = "refract.dev/unconverted"

// The bounds of the text for one version.
const (
	mostFailures = 8   // Places.
	mostFailure  = 256 // Bytes of each failure.
)

// marks is the content of the annotation [Unconverted].
type marks struct {
	versions []mark
	text     []byte
}

// mark has the failures of one version: a JSON string.
type mark struct {
	version string
	raw     []byte
}

// read parses an annotation, and reports whether it names the version. It ignores an annotation in another format.
func (m *marks) read(annotation, version string) (named bool) {
	m.versions = m.versions[:0]
	if annotation == "" {
		return false
	}
	ours := true
	err := raw.Members([]byte(annotation), func(key, value []byte) bool {
		twice := slices.ContainsFunc(m.versions, func(k mark) bool { return k.version == string(key) })
		ours = !twice && len(value) > 0 && value[0] == '"'
		m.versions = append(m.versions, mark{version: string(key), raw: value})
		named = named || string(key) == version
		return ours
	})
	if err != nil || !ours {
		m.versions = m.versions[:0]
		return false
	}
	return named
}

// write returns the annotation of an object that is converted from one version to another, nil for no annotation, and
// reports whether the annotation changes.
func (m *marks) write(from, to string, unserved unserved, failures []error) (text []byte, changed bool) {
	before := len(m.versions)
	m.versions = slices.DeleteFunc(m.versions, func(k mark) bool { return k.version == to && !unserved.to || k.version == from && !unserved.from })
	if len(failures) > 0 {
		m.versions = slices.DeleteFunc(m.versions, func(k mark) bool { return k.version == from })
		m.versions = append(m.versions, mark{version: from, raw: raw.AppendString(nil, []byte(describeFailures(failures)))})
	} else if len(m.versions) == before {
		return nil, false
	}
	if len(m.versions) == 0 {
		return nil, true
	}
	slices.SortFunc(m.versions, func(a, b mark) int { return strings.Compare(a.version, b.version) })
	m.text = append(m.text[:0], '{')
	for i, k := range m.versions {
		m.text = appendMember(m.text, i == 0, k.version, k.raw)
	}
	m.text = append(m.text, '}')
	return m.text, true
}

// describeFailures returns one line with the failed places and the reasons.
func describeFailures(failures []error) string {
	var b strings.Builder
	for i, err := range failures {
		if i == mostFailures {
			fmt.Fprintf(&b, "; and %d more", len(failures)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		text := err.Error()
		if len(text) > mostFailure {
			text = strings.ToValidUTF8(text[:mostFailure], "") + "…"
		}
		b.WriteString(text)
	}
	return b.String()
}

// unserved says whether the entries of the source and the target version stay after this conversion. The entries of a
// hollow object, which is kept as a whole, stay: they describe the original object and not its remains.
type unserved struct{ from, to bool }

// hollow reports whether a version other than the target version keeps the object as a whole.
func (c *complement) hollow(wanted string) bool {
	return c.anyBelieved && slices.ContainsFunc(c.versions, func(v versionEntries) bool {
		if v.version == wanted {
			return false
		}
		entries, _ := parseEntries(v.raw)
		return slices.ContainsFunc(entries, func(e entry) bool { return e.place == "" && e.failed })
	})
}

// failed returns the failed value of the target version at a place, or nil.
func (c *complement) failed(place string) *entry {
	if !c.believes {
		return nil
	}
	i := slices.IndexFunc(c.restorable, func(e entry) bool { return e.place == place && e.failed })
	if i < 0 {
		return nil
	}
	return &c.restorable[i]
}

// attempt is pass with recovery: with [Keep], a panic of a conversion function is returned as an error.
func (w *converter) attempt(p *plan) (err error) {
	if p.keeps {
		defer func() {
			if r := recover(); r != nil {
				w.workers.discard()
				err = fmt.Errorf("panic: %v", r)
			}
		}()
	}
	return w.pass(p)
}

// keepWhole plans that all of the object except its metadata is kept, because the failure has no single place.
func (w *converter) keepWhole(p *plan, why error) error {
	r := w.rewriter
	r.changes.reset()
	if err := w.begin(p); err != nil {
		return err
	}
	members, err := restOf(r.source.value(nodeRoot))
	if err != nil {
		return err
	}
	if !r.source.partial {
		r.complement.failures = append(r.complement.failures, why)
		r.complement.kept = append(r.complement.kept, entry{value: objectOf(members), failed: true})
	}
	r.complement.unserved.to = true
	if err := w.replaceRest(p, shellOf(members)); err != nil {
		return fmt.Errorf("%w; and it cannot be kept: %w", why, err)
	}
	return nil
}

// shellOf returns an object with an empty object for each member that is an object, since schemas may require these
// members.
func shellOf(members []member) []byte {
	var shell []member
	for _, m := range members {
		if m.value[0] == '{' {
			shell = append(shell, member{key: m.key, value: emptyObject})
		}
	}
	return objectOf(shell)
}

// wasWhole returns the members that the object had in the target version, nil if the object was not kept as a whole.
func (w *converter) wasWhole() []byte {
	e := w.rewriter.complement.failed("")
	if e == nil || e.value[0] != '{' {
		return nil
	}
	members, err := membersOf(e.value)
	if err != nil || slices.ContainsFunc(members, func(m member) bool { return m.key == "apiVersion" || m.key == "kind" || m.key == "metadata" }) {
		return nil // The engine did not write this entry.
	}
	w.rewriter.complement.unserved.from = true
	return e.value
}

// planned is the progress of a planner.
type planned struct{ edits, deleted, gone, kept, failures int }

func (p *planner) begin() planned {
	c, k := p.changes, p.complement
	return planned{len(c.edits), len(c.deleted), len(c.gone), len(k.kept), len(k.failures)}
}

// undo reverts the changes that were planned for a value that cannot be converted. Puts need no undo: they are planned
// last and do not fail.
func (p *planner) undo(to planned) {
	c, k := p.changes, p.complement
	c.edits, c.deleted, c.gone = c.edits[:to.edits], c.deleted[:to.deleted], c.gone[:to.gone]
	k.kept, k.failures = k.kept[:to.kept], k.failures[:to.failures]
}

// keepFailed plans the removal of a value that cannot be converted, and keeps it.
func (p *planner) keepFailed(f *field, value []byte, why error) {
	for _, n := range f.from.nodes {
		if p.source.nodes[n].present {
			p.changes.remove(n)
			p.changes.gone = append(p.changes.gone, n)
		}
	}
	if !p.source.partial {
		p.complement.failures = append(p.complement.failures, why)
		p.complement.kept = append(p.complement.kept, entry{place: f.from.place, value: value, failed: true})
	}
}

// putBack plans the return of a value that could not be converted, and reports whether there is such a value: see
// [Unconverted].
func (p *planner) putBack(f *field) bool {
	if len(f.to.nodes) == 0 || len(p.complement.restorable) == 0 {
		return false
	}
	e := p.complement.failed(f.to.place)
	there := p.source.hasAny(f.from.nodes)
	if e == nil || f.fitting(p.source.plan, e.value) == nil {
		return false
	}
	if there {
		for _, n := range f.from.nodes {
			if p.source.nodes[n].present && !slices.Contains(f.to.nodes, n) {
				p.changes.remove(n)
			}
		}
	}
	return p.giveTo(f, e.value, false) == nil
}

// joined returns one error for all parts of an object that could not be converted; nil if all of it could.
func joined(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	return errors.New(describeFailures(failures))
}
