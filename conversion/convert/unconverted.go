package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/tree/raw"
)

// Unconverted is the annotation of an object with parts that could not be converted, with [Keep]. Its value is a JSON
// object. The keys are source versions, and the values describe the failures:
//
//	{"v1alpha1":"spec.size: 7 exceeds 5"}
//
// [Annotation] has the parts that could not be converted. A conversion to their version restores them, regardless of
// the values at their places: API servers may have added defaults there, and other writers must not change these
// places. So a client that can write this annotation can write the restored values. The policy
// config/admission/unconverted.yaml makes API servers reject such writes. It also rejects all other changes of the
// object in a version that lacks a part. Without that policy, such a change has no effect. An engine with [Fail]
// ignores these entries.
const Unconverted = "refract.dev/unconverted"

// Limits of the text for one version.
const (
	mostFailures = 8   // Places.
	mostFailure  = 256 // Bytes of each failure.
)

// marks is the content of the annotation [Unconverted].
type marks struct {
	versions []mark
	text     []byte
}

// mark has the text about the failures of one version, as a JSON string.
type mark struct {
	version string
	raw     []byte
}

// read parses an annotation, and reports whether it has the version. It ignores an annotation in another format.
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

// write returns the annotation of an object after its conversion between two versions, and whether the annotation
// changes; nil means no annotation.
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

// unserved has, for the source version and the target version, whether the existing entries of that version stay after
// this conversion. The entries of a hollow object stay: they describe the original object, and not its remains.
type unserved struct{ from, to bool }

// hollow reports whether the annotation keeps the whole object in a version other than the target version. Such an
// object has no content.
func (c *complement) hollow(wanted string) bool {
	return c.anyBelieved && slices.ContainsFunc(c.versions, func(v versionEntries) bool {
		if v.version == wanted {
			return false
		}
		entries, _ := parseEntries(v.raw)
		return slices.ContainsFunc(entries, func(e entry) bool { return e.place == "" && e.failed })
	})
}

// failed returns the entry of a value of the target version whose conversion failed; nil if there is none.
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

// attempt calls pass. With [Keep], it returns a panic of a conversion function as an error.
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

// keepWhole plans that the annotation keeps the whole object except its metadata. It is for failures that do not belong
// to a single place.
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

// shellOf returns an object in which each member that is an object is empty, and which has no other members. A schema
// may require these members.
func shellOf(members []member) []byte {
	var shell []member
	for _, m := range members {
		if m.value[0] == '{' {
			shell = append(shell, member{key: m.key, value: emptyObject})
		}
	}
	return objectOf(shell)
}

// wasWhole returns the kept members of an object that was kept as a whole in the target version; otherwise nil.
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

// planned has the numbers of changes that a planner has planned so far.
type planned struct{ edits, deleted, gone, kept, failures int }

func (p *planner) begin() planned {
	c, k := p.changes, p.complement
	return planned{len(c.edits), len(c.deleted), len(c.gone), len(k.kept), len(k.failures)}
}

// undo reverts the changes planned for a value whose conversion failed. There are no puts to revert, because they are
// planned last and cannot fail.
func (p *planner) undo(to planned) {
	c, k := p.changes, p.complement
	c.edits, c.deleted, c.gone = c.edits[:to.edits], c.deleted[:to.deleted], c.gone[:to.gone]
	k.kept, k.failures = k.kept[:to.kept], k.failures[:to.failures]
}

// keepFailed plans the removal of a value whose conversion failed, and keeps the value.
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

// putBack plans to restore a value whose conversion failed earlier. It returns false if there is no such value: see
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

// joined returns one error for all failures; nil without failures.
func joined(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	return errors.New(describeFailures(failures))
}
