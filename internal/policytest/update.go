package policytest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/render"
	"refract.dev/tree"
)

// proposal is what would have to be expected instead of what is.
type proposal struct {
	at    value
	now   any
	kind  schema.GroupKind // Of the object.
	noted bool
	// needed is whether a cluster is not as expected, and refused whether there is
	// nothing that all clusters would be as expected with.
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
	// Field is its path inside expect.
	Field string
	// Before and After are as text, without what a Secret keeps.
	Before, After string
}

// String returns FILE:LINE: FIELD: BEFORE → AFTER.
func (u *Updated) String() string {
	return fmt.Sprintf("%s:%d: %s: %s → %s", u.File, u.Line, u.Field, u.Before, u.After)
}

// Update writes into the files of the tests what is now, in the place of the
// expectations of fields, setBy, error and object that did not hold. It changes
// these values and adds and removes no expectation: where an object fails that
// did not, or has no such field any more, or where the clusters of a case are not
// alike, somebody has to decide. The rest of a file stays as it is, byte by byte,
// where YAML allows it; comments inside a value that is replaced as a whole do
// not.
//
// Update returns what it wrote, also with an error. A file is never seen
// half-written.
func Update(r *Result) ([]Updated, error) {
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
	var all []Updated
	var errs []error
	for _, file := range files {
		updated, err := updateFile(file, of[file])
		all = append(all, updated...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// updateFile updates the documents of a file from the last to the first, so that
// each is where it was.
func updateFile(file string, proposals []*proposal) ([]Updated, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("updating %s: %w", file, err)
	}
	of := map[int][]*proposal{} // By where the document begins.
	for _, p := range proposals {
		of[p.at.doc.offset] = append(of[p.at.doc.offset], p)
	}
	var all []Updated
	var errs []error
	for _, offset := range slices.Backward(slices.Sorted(maps.Keys(of))) {
		doc := of[offset][0].at.doc
		end := offset + len(doc.text)
		if end > len(data) || string(data[offset:end]) != string(doc.text) {
			return nil, fmt.Errorf("updating %s: it was changed meanwhile", file)
		}
		text, updated, err := updateText(doc, of[offset])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		data = slices.Concat(data[:offset], text, data[end:])
		all = append(updated, all...)
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	if err := overwrite(file, data); err != nil {
		return nil, fmt.Errorf("updating %s: %w", file, err)
	}
	return all, errors.Join(errs...)
}

// updateText returns the text of a document with what is now. It is only good if
// it says that, and the same as before otherwise.
func updateText(doc *document, proposals []*proposal) ([]byte, []Updated, error) {
	var want any
	if err := unmarshal(doc.text, &want); err != nil {
		return nil, nil, err
	}
	var updated []Updated
	var all []replacement
	for _, p := range proposals {
		want = with(want, p.at.keys, p.now)
		for _, r := range plan(p.at, p.now, nil) {
			all = append(all, r)
			updated = append(updated, p.updated(&r))
		}
	}
	for _, write := range []func([]byte, []replacement) ([]byte, error){splice, reencode} {
		var is any
		text, err := write(doc.text, all)
		if err == nil && unmarshal(text, &is) == nil && tree.Equal(is, want) {
			return text, updated, nil
		}
	}
	return nil, nil, fmt.Errorf("updating %s: %s shares parts with another case; change it by hand", doc.place, doc.name)
}

func (p *proposal) updated(r *replacement) Updated {
	_, field, _ := strings.Cut(r.at.path, ".expect.")
	c := render.Mask(p.kind, tree.Change{Path: p.pointer(r), Op: tree.OpReplace, Before: r.at.is, After: r.now})
	return Updated{
		File: r.at.doc.place.File, Line: r.at.line, Field: field,
		Before: render.Text(c.Before), After: render.Text(c.After),
	}
}

// pointer returns the place in the object that a replacement speaks of; what is
// about none is at no place that is secret.
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

// with returns the value with another one in the place that keys lead to. It
// modifies nothing.
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

// overwrite replaces the content of a file at once. A link stays one.
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
