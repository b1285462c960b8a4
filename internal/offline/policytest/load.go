package policytest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	utiljson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
)

// Load reads the tests in these files, and in the files named *.yaml and *.yml of
// these folders and the folders inside them, without hidden ones. Other documents
// in these files are not looked at. Tests are in the order of the files, sorted
// by folder; a file that is named twice is read once.
//
// A test that has a problem is not returned. Every mistake that can be found
// without reading the inputs is one, in the order of the files.
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

// find returns the files in which tests may be.
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
		return nil, nil // No test is in here: do not parse what may be a large file.
	}
	var tests []Test
	var problems []*manifest.Problem
	names := map[string]bool{} // Of cases.
	for i, doc := range split(data) {
		doc.place = manifest.Place{File: file, Line: doc.before + 1, Document: i + 1}
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

// isTest reports whether a document is a PolicyTest, and notes one that nearly is.
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

// split splits a file into its documents, without those that are empty.
//
// Source: YAML 1.2.2, section 9.1.2: a marker ends a document wherever it stands.
func split(data []byte) []*document {
	var docs []*document
	start, line, first := 0, 0, 0
	cut := func(end int) {
		if text := data[start:end]; len(meaning(text)) > 0 {
			docs = append(docs, &document{text: text, offset: start, before: first})
		}
		start, first = end, line
	}
	if bytes.HasPrefix(data, []byte("\uFEFF")) {
		start = len("\uFEFF")
	}
	for at := start; at < len(data); line++ {
		end := len(data)
		if n := bytes.IndexByte(data[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		text := bytes.TrimRight(data[at:end], " \t\r\n")
		switch {
		case string(text) == "---" || bytes.HasPrefix(text, []byte("--- ")) || bytes.HasPrefix(text, []byte("---\t")):
			cut(at)
		case string(text) == "...":
			cut(at)
			start, first = end, line+1
		}
		at = end
	}
	cut(len(data))
	return docs
}

// meaning returns the lines that are neither empty, comments nor markers.
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

// parse reads the document as kubectl would. What is not a PolicyTest may be as
// broken as it likes.
func (d *document) parse() (value, bool) {
	var node yaml.Node
	err := yaml.Unmarshal(d.text, &node)
	v := value{doc: d, line: d.place.Line}
	if err == nil {
		err = unmarshal(d.text, &v.is)
	}
	if err != nil {
		if bytes.Contains(d.text, []byte(kind)) && bytes.Contains(d.text, []byte(refractv1alpha1.GroupVersion.Group)) {
			d.invalid(err)
		}
		return v, false
	}
	if len(node.Content) == 1 {
		v.node = node.Content[0]
		v.line = d.before + v.node.Line
		d.place.Line = v.line
	}
	return v, true
}

// unmarshal decodes YAML as kubectl would; integers are int64.
func unmarshal(text []byte, to *any) error {
	data, err := kyaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	return utiljson.UnmarshalCaseSensitivePreserveInts(data, to)
}

// invalid notes an error of the YAML library, which counts lines from the
// beginning of the document.
func (d *document) invalid(err error) {
	place := d.place
	fact, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: "), "\n  line 0")
	fact = strings.TrimPrefix(fact, "unmarshal errors:\n  ")
	if rest, ok := strings.CutPrefix(fact, "line "); ok {
		number, rest, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			place.Line, fact = d.before+n, rest
		}
	}
	fact, _, _ = strings.Cut(fact, "\n")
	d.problems = append(d.problems, &manifest.Problem{Place: place, Fact: "is not valid YAML: " + fact})
}
