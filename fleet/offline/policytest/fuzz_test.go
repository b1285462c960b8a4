package policytest

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/tree"
)

// FuzzParse verifies that no file makes the parser panic, that every reported mistake has a place, and that updateText
// can replace any value of a test by any other: either the text has the new value and the same line endings, or
// updateText refuses and the text is unchanged.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no archives: %v", err)
	}
	for _, name := range files {
		a, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			f.Add(file.Data, "x")
		}
	}
	f.Add([]byte("a: &x [*x]\nrefract.dev: PolicyTest"), "- a")
	f.Add([]byte(small+"---\r\n"+small), "a: {b: [1, yes, 'c d', \"\\t\"]}")
	language, err := newLanguage()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, other string) {
		_, problems := parse("f.yaml", data, language)
		for _, p := range problems {
			if p.Place.File != "f.yaml" || p.Place.Line < 1 || p.Fact == "" {
				t.Errorf("a problem without a place or a fact: %+v", p)
			}
		}
		var now any
		if unmarshal([]byte(other), &now) != nil {
			return
		}
		for _, part := range manifest.Split(data) {
			doc := &document{Part: part}
			root, ok := doc.parse()
			if _, object := root.is.(map[string]any); !ok || !object {
				continue
			}
			for _, e := range root.entries() {
				checkReplaced(t, doc, e, now)
			}
		}
	})
}

func checkReplaced(t *testing.T, doc *document, at value, now any) {
	t.Helper()
	text, updated, refused := updateText(doc, []*proposal{{at: at, now: now}})
	if len(updated) == 0 && string(text) != string(doc.Text) {
		t.Errorf("an update without replacements made:\n%s", text)
	}
	if lines, crlf := bytes.Count(text, []byte("\n")), bytes.Count(text, []byte("\r\n")); lines != crlf && allCRLF(doc.Text) {
		t.Errorf("replacing %s by %v changed the ends of %d of %d lines", at.path, now, lines-crlf, lines)
	}
	if len(refused) > 0 {
		return
	}
	again := &document{Part: manifest.Part{Text: text, Line: 1}}
	root, ok := again.parse()
	if m, object := root.is.(map[string]any); !ok || !object || !tree.Equal(m[at.key()], now) {
		t.Errorf("replacing %s by %v made:\n%s", at.path, now, text)
	}
}

func allCRLF(text []byte) bool {
	n := bytes.Count(text, []byte("\n"))
	return n > 0 && n == bytes.Count(text, []byte("\r\n"))
}
