package policytest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// proposal is the expected value for which a check would pass.
type proposal struct {
	at    value
	now   any
	kind  schema.GroupKind // The kind of the object.
	noted bool
	// needed reports that the check fails on a cluster. refused reports that no value would pass on all clusters.
	needed, refused bool
}

func (p *proposal) note(at *value, now any, known, failed bool) {
	switch {
	case !known:
		p.refused = true
	case !p.noted:
		p.at, p.now, p.noted = *at, now, true
	case !tree.Equal(p.now, now):
		p.refused = true
	}
	p.needed = p.needed || failed
}

// Updated is a value that was written into a test.
type Updated struct {
	File string
	Line int
	// Field is the path inside expect.
	Field string
	// Before and After are texts, with the values of a Secret masked.
	Before, After string
}

// String returns FILE:LINE: FIELD: BEFORE → AFTER.
func (u *Updated) String() string {
	return fmt.Sprintf("%s:%d: %s: %s → %s", u.File, u.Line, u.Field, u.Before, u.After)
}

// Refused is a failed expectation that must be edited by hand.
type Refused struct {
	File string
	Line int
	// Field is the path inside expect.
	Field string
}

// String returns FILE:LINE: FIELD and the necessary action.
func (r *Refused) String() string {
	return fmt.Sprintf("%s:%d: %s cannot be replaced automatically; change it by hand", r.File, r.Line, r.Field)
}

// Update replaces the failed expectations of fields, setBy, error and object in the files of the tests by the actual
// values. It adds and removes no expectation: the user has to decide if an object newly fails, if it does not have the
// field any more, or if the results of a case differ between clusters. The other bytes of a file do not change;
// comments inside a value that is replaced as a whole are lost.
//
// Update refuses a value that cannot be replaced in place: one with an anchor or a tag, or one with aliases that need
// different values. A value that several cases share and agree on is replaced once.
//
// Update returns the updated and refused values by file and document, also with an error. Each file is replaced
// atomically.
func Update(r *Result) ([]Updated, []Refused, error) {
	var files []string
	of := map[string][]*proposal{}
	for i := range r.proposals {
		p := &r.proposals[i]
		file := p.at.doc.place.File
		if of[file] == nil {
			files = append(files, file)
		}
		of[file] = append(of[file], p)
	}
	var updated []Updated
	var refused []Refused
	var errs []error
	for _, file := range files {
		u, r, err := updateFile(file, of[file])
		updated, refused, errs = append(updated, u...), append(refused, r...), append(errs, err)
	}
	return updated, refused, errors.Join(errs...)
}

// updateFile updates the documents of a file from the last to the first, so that the offsets of the others stay valid.
func updateFile(file string, proposals []*proposal) (updated []Updated, refused []Refused, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("updating %s: %w", file, err)
	}
	if data, err = manifest.Text(data); err != nil { // The file is written as UTF-8.
		return nil, nil, fmt.Errorf("updating %s: %w", file, err)
	}
	of := map[int][]*proposal{} // By the offset of the document.
	for _, p := range proposals {
		of[p.at.doc.Offset] = append(of[p.at.doc.Offset], p)
	}
	for _, offset := range slices.Backward(slices.Sorted(maps.Keys(of))) {
		doc := of[offset][0].at.doc
		end := offset + len(doc.Text)
		if end > len(data) || string(data[offset:end]) != string(doc.Text) {
			return nil, nil, fmt.Errorf("updating %s: it was changed meanwhile", file)
		}
		text, u, r := updateText(doc, of[offset])
		data = slices.Concat(data[:offset], text, data[end:])
		updated, refused = append(u, updated...), append(r, refused...)
	}
	if len(updated) == 0 {
		return nil, refused, nil
	}
	if err := overwrite(file, data); err != nil {
		return nil, refused, fmt.Errorf("updating %s: %w", file, err)
	}
	return updated, refused, nil
}

// updateText returns the text of a document with the new values as far as they can be replaced, and lists the updated
// and the refused values.
func updateText(doc *document, proposals []*proposal) (text []byte, updated []Updated, refused []Refused) {
	e := editor{doc: doc, text: doc.Text}
	edits := edits(proposals)
	if err := unmarshal(doc.Text, &e.says); err == nil {
		e.apply(edits)
	}
	for _, x := range edits {
		u := &x.updated
		if slices.Contains(e.done, x) {
			updated = append(updated, *u)
		} else {
			refused = append(refused, Refused{File: u.File, Line: u.Line, Field: u.Field})
		}
	}
	return e.text, updated, refused
}

// edits returns the replacements for the proposals, in their order. The replacements of one node are one edit.
func edits(proposals []*proposal) []*edit {
	var all []*edit
	of := map[*yaml.Node]*edit{}
	for _, p := range proposals {
		for _, r := range plan(p.at, p.now, nil) {
			if e := of[r.at.node]; e != nil && r.at.node != nil {
				e.means = append(e.means, r)
				continue
			}
			e := &edit{means: []replacement{r}, updated: p.updated(&r)}
			of[r.at.node] = e
			all = append(all, e)
		}
	}
	return all
}

// editor applies edits to a document.
type editor struct {
	doc  *document
	text []byte // With the applied edits.
	says any    // The content of the text.
	done []*edit
}

// apply applies the edits: all together or, if that fails, each half by itself, so that only the impossible edits are
// left.
func (e *editor) apply(edits []*edit) {
	half := len(edits) / 2
	if e.try(edits) || half == 0 {
		return
	}
	e.apply(edits[:half])
	e.apply(edits[half:])
}

// try applies all of the edits or none. The new text is accepted only if its content has the new values in their places
// and is otherwise unchanged.
func (e *editor) try(edits []*edit) bool {
	done := slices.Concat(e.done, edits)
	text, ok := splice(e.doc.Text, done)
	if !ok {
		return false
	}
	want := e.says
	for _, x := range edits {
		for _, r := range x.means {
			want = with(want, r.at.keys, r.now)
		}
	}
	var says any
	if unmarshal(text, &says) != nil || !tree.Equal(says, want) {
		return false
	}
	e.text, e.says, e.done = text, says, done
	return true
}

func (p *proposal) updated(r *replacement) Updated {
	_, field, _ := strings.Cut(r.at.path, ".expect.")
	c := render.Mask(p.kind, tree.Change{Path: p.pointer(r), Op: tree.OpReplace, Before: r.at.is, After: r.now})
	return Updated{
		File: r.at.doc.place.File, Line: r.at.line, Field: field,
		Before: render.Text(c.Before), After: render.Text(c.After),
	}
}

// pointer returns the place in the object that a replacement concerns. If there is none, the result is a place that is
// not secret.
func (p *proposal) pointer(r *replacement) string {
	var b strings.Builder
	for _, key := range r.at.keys[len(p.at.keys):] {
		b.WriteString("/" + tree.Escape(fmt.Sprint(key)))
	}
	switch check := checkOf(&p.at); check {
	case "object":
		return b.String()
	case "fields":
		return p.at.key() + b.String()
	default:
		return "/" + check
	}
}

// with returns a copy of a value in which one part is replaced. The keys lead to that part.
func with(is any, keys []any, now any) any {
	if len(keys) == 0 {
		return now
	}
	switch key := keys[0].(type) {
	case string:
		m, _ := is.(map[string]any)
		m = maps.Clone(m)
		m[key] = with(m[key], keys[1:], now)
		return m
	case int:
		list, _ := is.([]any)
		list = slices.Clone(list)
		list[key] = with(list[key], keys[1:], now)
		return list
	default:
		return is
	}
}

// overwrite replaces the content of a file atomically. A symbolic link stays a link.
func overwrite(file string, data []byte) (err error) {
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".refract-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Close(), os.Chmod(temp.Name(), info.Mode().Perm())); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
