package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
)

// Load reads the tests in these files, and in the files named *.yaml and *.yml of these folders and their subfolders,
// without hidden ones. Other documents in these files are ignored. Tests are in the order of the files, sorted within a
// folder; a file that is named twice is read once.
//
// Tests with a problem are not returned. The problems are all mistakes that can be found without the inputs, in the
// order of the files.
func Load(paths []string) ([]Test, []*manifest.Problem) {
	language, err := newLanguage()
	if err != nil {
		return nil, []*manifest.Problem{{Fact: err.Error()}}
	}
	files, problems := find(paths)
	var tests []Test
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			problems = append(problems, unreadable(file, err))
			continue
		}
		if data, err = manifest.Text(data); err != nil {
			problems = append(problems, manifest.NotText(file, err))
			continue
		}
		if len(data) == 0 {
			problems = append(problems, manifest.Empty(file))
		}
		found, wrong := parse(file, data, language)
		tests = append(tests, found...)
		problems = append(problems, wrong...)
	}
	return tests, problems
}

func unreadable(file string, err error) *manifest.Problem {
	if errors.Is(err, fs.ErrNotExist) {
		return &manifest.Problem{Place: manifest.Place{File: file}, Fact: "does not exist"}
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return &manifest.Problem{Place: manifest.Place{File: file}, Fact: fmt.Sprintf("cannot be read: %v", err)}
}

// find returns the files that may contain tests.
func find(paths []string) (files []string, problems []*manifest.Problem) {
	for _, p := range paths {
		p = filepath.Clean(p)
		err := filepath.WalkDir(p, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				problems = append(problems, unreadable(name, err))
			case name == p && !d.IsDir():
				files = append(files, name)
			case name != p && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
			case !d.IsDir() && slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)):
				files = append(files, name)
			}
			return nil
		})
		if err != nil {
			problems = append(problems, unreadable(p, err))
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(files, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	}), problems
}

// parse returns the tests of a file.
func parse(file string, data []byte, language *language) ([]Test, []*manifest.Problem) {
	if !bytes.Contains(data, []byte(refractv1alpha1.GroupVersion.Group)) {
		return nil, nil // The file has no tests. It may be large, so it is not parsed.
	}
	var tests []Test
	var problems []*manifest.Problem
	names := map[string]bool{} // The names of cases.
	for i, part := range slices.DeleteFunc(manifest.Split(data), func(p manifest.Part) bool { return len(meaning(p.Text)) == 0 }) {
		doc := &document{Part: part, place: manifest.Place{File: file, Line: part.Line, Document: i + 1}}
		root, ok := doc.parse()
		if ok && isTest(&root) {
			d := decoder{document: doc, language: language, names: names}
			if t, ok := d.test(&root); ok {
				tests = append(tests, t)
			}
		}
		slices.SortStableFunc(doc.problems, func(a, b *manifest.Problem) int { return a.Place.Line - b.Place.Line })
		problems = append(problems, doc.problems...)
	}
	return tests, problems
}

// isTest reports whether a document is a PolicyTest. It reports a mistake in a document that is similar to one.
func isTest(root *value) bool {
	m, _ := root.is.(map[string]any)
	version, _ := m["apiVersion"].(string)
	group, _, _ := strings.Cut(version, "/")
	is, _ := m["kind"].(string)
	if group != refractv1alpha1.GroupVersion.Group {
		return false
	}
	if is != kind {
		if nearest.To(is, []string{kind}) != "" {
			at, _ := root.member("kind")
			at.report(fmt.Sprintf("group %s has no kind %s", group, is), "did you mean "+kind+"?")
		}
		return false
	}
	if version != apiVersion {
		at, _ := root.member("apiVersion")
		at.report(fmt.Sprintf("is %s, want %s", version, apiVersion), "")
		return false
	}
	return true
}

// meaning returns the lines that are neither empty nor comments nor markers.
func meaning(text []byte) [][]byte {
	var lines [][]byte
	for l := range bytes.Lines(text) {
		l = bytes.TrimSpace(l)
		if len(l) > 0 && l[0] != '#' && string(l) != "---" {
			lines = append(lines, l)
		}
	}
	return lines
}

// parse parses the document like kubectl. Mistakes in documents other than PolicyTests are ignored.
func (d *document) parse() (value, bool) {
	values, problems := d.Decode(d.place.File)
	if len(values) > 1 {
		fact := fmt.Sprintf("holds %d values: write a line with --- alone between them", len(values))
		problems = append(problems, &manifest.Problem{Place: d.place, Fact: fact})
	}
	var node yaml.Node
	if err := yaml.Unmarshal(d.Text, &node); err != nil && len(problems) == 0 {
		problems = append(problems, &manifest.Problem{Place: d.place, Fact: "is not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
	}
	if len(problems) > 0 {
		if bytes.Contains(d.Text, []byte(kind)) && bytes.Contains(d.Text, []byte(refractv1alpha1.GroupVersion.Group)) {
			for _, p := range problems {
				p.Place.Document = d.place.Document
			}
			d.problems = append(d.problems, problems...)
		}
		return value{}, false
	}
	v := value{doc: d, line: d.place.Line}
	if len(values) == 1 {
		v.is = values[0]
	}
	if len(node.Content) == 1 {
		v.node = node.Content[0]
		v.line = d.before() + v.node.Line
		d.place.Line = v.line
	}
	return v, true
}

// unmarshal decodes the text of one document.
func unmarshal(text []byte, to *any) error {
	values, problems := (&manifest.Part{Text: text, Line: 1}).Decode("")
	switch {
	case len(problems) > 0:
		return errors.New(problems[0].Fact)
	case len(values) != 1:
		return fmt.Errorf("holds %d values, want one", len(values))
	}
	*to = values[0]
	return nil
}
