package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Unconverted is the annotation of an object of which something could not be converted, with [Keep]:
// a JSON object of texts, by the version that it is from.
//
//	{"v1alpha1":"spec.size: 7 exceeds 5"}
//
// What could not be converted is in [Annotation], and comes back on the way to that version, whatever
// stands at its place: API servers fill in defaults there, and nobody else may write anything. Who can write
// this annotation can write what comes back: config/admission/unconverted.yaml is the policy by which an API
// server refuses that, and every other change of such an object in a version that lacks something. Without
// that policy such a change has no effect. An engine that fails believes none of this.
const Unconverted = "refract.dev/unconverted"

// What the annotation says of one version.
const (
	mostFailures = 8   // Places.
	mostFailure  = 256 // Bytes of each.
)

// marks are what [Unconverted] says.
type marks struct {
	versions []mark
	text     []byte
}

// mark is what could not be converted from a version: a string as JSON.
type mark struct {
	version string
	raw     []byte
}

// read reads an annotation, and reports whether it names the version. One that is none of ours
// counts as none.
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

// write returns the annotation that an object of version from has when it is of version to, nil for
// none, and whether that is another one than it had.
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

// describeFailures says in one line what could not be converted, and why.
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

// unserved says of which of the two versions the entries have not served, and stay: those of an object that is
// hollow, as it is kept as a whole, are about what it was, and not about what is left of it.
type unserved struct{ from, to bool }

// hollow reports whether a version other than that which is wanted keeps the object as a whole.
func (c *complement) hollow(wanted string) bool {
	return c.anyBelieved && slices.ContainsFunc(c.versions, func(v versionEntries) bool {
		if v.version == wanted {
			return false
		}
		entries, _ := parseEntries(v.raw)
		return slices.ContainsFunc(entries, func(e entry) bool { return e.place == "" && e.failed })
	})
}

// failed returns what could not be converted of the wanted version at a place, nil if there is
// nothing such.
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

// attempt is pass, which may panic over what it converts with somebody else's functions.
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

// keepWhole plans that all of the object but its metadata is kept, since it cannot be converted for
// a reason that is not at one place.
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

// shellOf returns an object with an empty object for each member that is one: schemas may require them.
func shellOf(members []member) []byte {
	var shell []member
	for _, m := range members {
		if m.value[0] == '{' {
			shell = append(shell, member{key: m.key, value: emptyObject})
		}
	}
	return objectOf(shell)
}

// wasWhole returns all that the object was in the wanted version, nil if that is not what is kept
// of it.
func (w *converter) wasWhole() []byte {
	e := w.rewriter.complement.failed("")
	if e == nil || e.value[0] != '{' {
		return nil
	}
	members, err := membersOf(e.value)
	if err != nil || slices.ContainsFunc(members, func(m member) bool { return m.key == "apiVersion" || m.key == "kind" || m.key == "metadata" }) {
		return nil // It is not ours.
	}
	w.rewriter.complement.unserved.from = true
	return e.value
}

// planned is how far a planner has come.
type planned struct{ edits, deleted, gone, kept, failures int }

func (p *planner) begin() planned {
	c, k := p.changes, p.complement
	return planned{len(c.edits), len(c.deleted), len(c.gone), len(k.kept), len(k.failures)}
}

// undo takes back what was planned for a value that cannot be converted. Nothing was put anywhere
// for it: that comes last, and does not fail.
func (p *planner) undo(to planned) {
	c, k := p.changes, p.complement
	c.edits, c.deleted, c.gone = c.edits[:to.edits], c.deleted[:to.deleted], c.gone[:to.gone]
	k.kept, k.failures = k.kept[:to.kept], k.failures[:to.failures]
}

// keepFailed plans that a value goes which cannot be converted, and is kept.
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

// putBack plans that a value which could not be converted comes back, and reports whether there is
// one: see [Unconverted].
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

// joined returns what of an object could not be converted, as one error; nil if all of it could.
func joined(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	return errors.New(describeFailures(failures))
}
