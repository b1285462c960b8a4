package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocuments verifies that objects are returned unchanged, one by one, with their places.
func TestDocuments(t *testing.T) {
	cases := map[string]struct {
		reason   string
		file     string
		text     string
		want     []map[string]any
		places   []string
		problems []string
	}{
		"AsTheyStand": {
			reason: "Documents adds no namespace, and requires no name; integers keep their value.",
			text:   "a: 9007199254740993\nb: 1.5\n---\nkind: X\n",
			want:   []map[string]any{{"a": int64(9007199254740993), "b": 1.5}, {"kind": "X"}},
			places: []string{"stdin:1: document 1", "stdin:4: document 2"},
		},
		"Lists": {
			reason: "A list is returned as its items, and the items of a typed list get its type.",
			text:   "apiVersion: v1\nkind: List\nitems:\n- {kind: A}\n- apiVersion: g/v1\n  kind: BList\n  items:\n  - {x: 1}\n",
			want:   []map[string]any{{"kind": "A"}, {"apiVersion": "g/v1", "kind": "B", "x": int64(1)}},
			places: []string{"stdin:4: document 1", "stdin:8: document 1"},
		},
		"JSON": {
			reason: "JSON is read, too, also several values in sequence.",
			text:   "{\"a\": 1}\n{\"a\": 2}\n",
			want:   []map[string]any{{"a": int64(1)}, {"a": int64(2)}},
			places: []string{"stdin:1: document 1", "stdin:2: document 2"},
		},
		"Local": {
			reason: "Objects that never go to an API server are left out, except CustomResourceDefinitions.",
			text: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n---\napiVersion: apiextensions.k8s.io/v1\n" +
				"kind: CustomResourceDefinition\nmetadata: {annotations: {config.kubernetes.io/local-config: \"true\"}}\n",
			want: []map[string]any{{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"annotations": map[string]any{LocalConfig: "true"}},
			}},
			places: []string{"stdin:4: document 2"},
		},
		"Twice": {
			reason: "A duplicate key is reported with both lines, also in a list; the other documents are read.",
			text:   "a: 1\na: 2\n---\nb: 1\n",
			want:   []map[string]any{{"b": int64(1)}}, places: []string{"stdin:4: document 2"},
			problems: []string{"stdin:2: document 1: a: is set twice, first on line 1"},
		},
		"NoObject": {
			reason: "A scalar is not an object.", text: "just text\n", problems: []string{"stdin:1: document 1: is a string, want an object"},
		},
		"Nothing": {reason: "A named file must contain a manifest.", text: "# nothing\n", problems: []string{"stdin: has no manifest"}},
		"Missing": {reason: "A named file must exist.", file: "missing.yaml", problems: []string{"missing.yaml: does not exist"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := Stdin
			if tc.file != "" {
				path = tc.file
			}
			documents, problems := Documents([]string{path}, strings.NewReader(tc.text))
			var got []map[string]any
			var places, found []string
			for i := range documents {
				got, places = append(got, documents[i].Content), append(places, documents[i].Place.String())
			}
			for _, p := range problems {
				found = append(found, p.Error())
			}
			for _, diff := range []string{cmp.Diff(tc.want, got), cmp.Diff(tc.places, places), cmp.Diff(tc.problems, found)} {
				if diff != "" {
					t.Errorf("%s\nDocuments(): -want, +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestDocumentAt verifies that the line of a field is found for each notation of its path.
func TestDocumentAt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	text := "# A comment.\nspec:\n  versions:\n  - schema:\n      properties:\n        foo: {type: string}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	documents, problems := Documents([]string{file}, nil)
	if len(problems) > 0 || len(documents) != 1 {
		t.Fatalf("Documents() = %d documents, problems %v", len(documents), problems)
	}
	for path, want := range map[string]int{
		"": 2, "spec.versions[0].schema.properties[foo].type": 6, "spec.versions[0].schema.properties[bar]": 5, "status": 2,
	} {
		if got := documents[0].At(path).Line; got != want {
			t.Errorf("At(%q) is line %d, want %d", path, got, want)
		}
	}
}
