package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/golden"
	"refract.dev/tree/raw"
)

// TestGolden answers the review of every archive in testdata. Each archive starts with a description of its case.
//
// The file engine names a test engine, and review.json is the request. If the archive has a back.txt, the objects of
// the answer are converted to the version in back.txt. If it has an edit.txt, the first line of edit.txt is replaced by
// the second line in the objects before that conversion.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", answerArchive)
}

// answerArchive returns the expected files.
func answerArchive(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.Texts(golden.Inputs(archive))
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

// answer returns the answer with a line feed. It checks the properties of all answers.
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
