package convert

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/tree/raw"
)

var update = flag.Bool("update", false, "write what was answered into the golden files")

// TestGolden answers the review of every archive in testdata. The archives are meant to be
// read: each begins with what it shows.
//
// Engine names one of the test engines, and review.json is the request. If there is a
// back.txt the objects of the answer are converted once more, to the version that it names;
// with an edit.txt only after its first line has been replaced by its second one.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no golden files")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want/") })
			if n < 0 {
				n = len(archive.Files)
			}
			got := answerArchive(t, archive.Files[:n])
			if *update {
				archive.Files = append(archive.Files[:n:n], got...)
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(texts(archive.Files[n:]), texts(got)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s\nIf this is as it should be: go test ./convert -run TestGolden -update", archive.Comment, diff)
			}
		})
	}
}

func texts(files []txtar.File) map[string]string {
	m := map[string]string{}
	for _, f := range files {
		m[f.Name] = string(f.Data)
	}
	return m
}

// answerArchive returns the wanted files.
func answerArchive(t *testing.T, files []txtar.File) []txtar.File {
	t.Helper()
	in := texts(files)
	e := testEngine(t, strings.TrimSpace(in["engine"]))
	answered := answer(t, e, []byte(in["review.json"]))
	out := []txtar.File{{Name: "want/answer.json", Data: answered}}
	to, ok := in["back.txt"]
	if !ok {
		return out
	}
	if edit, ok := in["edit.txt"]; ok {
		old, replacement, _ := strings.Cut(strings.TrimSpace(edit), "\n")
		if !strings.Contains(string(answered), old) {
			t.Fatalf("the answer does not have what edit.txt replaces:\n%s", answered)
		}
		answered = []byte(strings.ReplaceAll(string(answered), old, replacement))
	}
	review := fmt.Sprintf(`{"apiVersion":%q,"kind":"ConversionReview","request":{"uid":"back","desiredAPIVersion":"%s/%s","objects":%s}}`,
		reviewV1, pizzaGroup, strings.TrimSpace(to), objectsOf(t, answered))
	return append(out, txtar.File{Name: "want/back.json", Data: objectsOf(t, answer(t, e, []byte(review)))})
}

// answer returns the answer with a line feed. It checks what holds for all answers.
func answer(t *testing.T, e *Engine, review []byte) []byte {
	t.Helper()
	before := bytes.Clone(review)
	a, err := e.Review(review)
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	var b bytes.Buffer
	if n, err := a.WriteTo(&b); err != nil || n != a.Len() || int64(b.Len()) != n || !bytes.Equal(b.Bytes(), a.Bytes()) {
		t.Errorf("WriteTo() = %d, %v; Len() = %d; Bytes() has %d", n, err, a.Len(), len(a.Bytes()))
	}
	if !json.Valid(b.Bytes()) {
		t.Errorf("the answer is not JSON:\n%s", b.Bytes())
	}
	if !bytes.Equal(before, review) {
		t.Errorf("the review was modified:\n%s", review)
	}
	return append(b.Bytes(), '\n')
}

func objectsOf(t *testing.T, answer []byte) []byte {
	t.Helper()
	response, err := raw.Field(answer, "response")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := raw.Field(response, "convertedObjects")
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(objects), '\n')
}
