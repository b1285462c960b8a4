package policytest

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/tree"
)

// FuzzParse checks that no file makes the parser panic, that what it finds wrong
// has a place, and that any value of a test can be replaced by any other: if
// updateText says that it is, it is.
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
		for _, doc := range split(data) {
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
	text, _, err := updateText(doc, []*proposal{{at: at, now: now}})
	if err != nil {
		return
	}
	again := &document{text: text}
	root, ok := again.parse()
	if m, object := root.is.(map[string]any); !ok || !object || !tree.Equal(m[at.key()], now) {
		t.Errorf("replacing %s by %v made:\n%s", at.path, now, text)
	}
}
