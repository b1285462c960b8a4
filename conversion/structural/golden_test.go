package structural

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/golden"
	"refract.dev/tree"
)

// TestGolden runs the archives in testdata through Check, Decode and Validate. Each archive begins with a description
// of its case.
//
// The file crd.yaml is a whole definition. The file schema.yaml is only the schema of version v1 of the kind Thing in
// example.com. The files old-crd.yaml and old-schema.yaml are the definition before an update. If there is no
// object*.yaml, the test checks the definition. Otherwise it decodes each object and validates the result, as an update
// if there is an old.yaml.
func TestGolden(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		t.Parallel()
		return run(t, golden.Texts(golden.Inputs(archive)))
	})
}

// run returns the files that the archive should contain.
func run(t *testing.T, in map[string]string) []txtar.File {
	t.Helper()
	crd := definition(t, in, "")
	var names []string
	for name := range in {
		if strings.HasPrefix(name, "object") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return []txtar.File{{Name: "want/findings.txt", Data: checked(t, crd, definition(t, in, "old-"))}}
	}
	d, err := New(crd)
	if err != nil {
		t.Fatal(err)
	}
	var files []txtar.File
	var changes, found strings.Builder
	for _, name := range names {
		if len(names) > 1 {
			fmt.Fprintf(&changes, "%s:\n", name)
			fmt.Fprintf(&found, "%s:\n", name)
		}
		obj := parse(t, in[name])
		r, v := decoded(t, d, obj, &changes)
		if r == nil {
			found.WriteString("not decoded\n")
			continue
		}
		files = append(files, txtar.File{Name: "want/" + name, Data: toYAML(t, r.Object)})
		if in["old.yaml"] == "" {
			found.WriteString(list(unchanged(t, v.Validate, r.Object)))
			continue
		}
		old := parse(t, in["old.yaml"])
		before := parse(t, in["old.yaml"])
		found.WriteString(list(unchanged(t, func(obj map[string]any) []Finding { return v.ValidateUpdate(obj, old) }, r.Object)))
		if diff := cmp.Diff(before, old); diff != "" {
			t.Errorf("ValidateUpdate() changed the old object: -before, +after:\n%s", diff)
		}
	}
	return append(files,
		txtar.File{Name: "want/changes.txt", Data: []byte(changes.String())},
		txtar.File{Name: "want/findings.txt", Data: []byte(found.String())},
	)
}

// checked returns the findings of Check or CheckUpdate.
func checked(t *testing.T, crd, old map[string]any) []byte {
	t.Helper()
	var err error
	found := unchanged(t, func(crd map[string]any) []Finding {
		var found []Finding
		if old == nil {
			found, err = Check(crd)
		} else {
			found, err = CheckUpdate(crd, old)
		}
		return found
	}, crd)
	if err != nil {
		return []byte("not checked: " + err.Error() + "\n")
	}
	return []byte(list(found))
}

// decoded writes the changes of decoding. It returns nil if obj is rejected.
func decoded(t *testing.T, d *Definition, obj map[string]any, changes *strings.Builder) (*Result, *Version) {
	t.Helper()
	v, err := d.VersionOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	before := parse(t, string(toYAML(t, obj)))
	r, err := v.Decode(obj)
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Errorf("Decode() changed its input: -before, +after:\n%s", diff)
	}
	if err != nil {
		fmt.Fprintf(changes, "error: %v\n", err)
		return nil, nil
	}
	if len(r.Changes) == 0 {
		changes.WriteString("none\n")
	}
	for _, c := range r.Changes {
		changes.WriteString(describe(t, &c))
	}
	for _, path := range r.Unknown {
		fmt.Fprintf(changes, "unknown field %q\n", path)
	}
	return r, v
}

// unchanged calls f, and checks that f does not modify its argument.
func unchanged(t *testing.T, f func(map[string]any) []Finding, obj map[string]any) []Finding {
	t.Helper()
	before := parse(t, string(toYAML(t, obj)))
	found := f(obj)
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Errorf("the input was changed: -before, +after:\n%s", diff)
	}
	return found
}

func list(found []Finding) string {
	if len(found) == 0 {
		return "none\n"
	}
	var text strings.Builder
	for _, f := range found {
		fmt.Fprintf(&text, "%s %s\n    %s\n", f.Severity, f.Rule, f)
	}
	return text.String()
}

func describe(t *testing.T, c *tree.Change) string {
	t.Helper()
	switch c.Op {
	case tree.OpAdd:
		return fmt.Sprintf("add %s: %s\n", c.Path, compact(t, c.After))
	case tree.OpRemove:
		return fmt.Sprintf("remove %s: was %s\n", c.Path, compact(t, c.Before))
	case tree.OpReplace:
		return fmt.Sprintf("replace %s: %s → %s\n", c.Path, compact(t, c.Before), compact(t, c.After))
	}
	t.Fatalf("a change of unknown kind: %+v", c)
	return ""
}

func compact(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func toYAML(t *testing.T, v any) []byte {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parse parses YAML. Its numbers are those that the API server gets from JSON.
func parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	obj, err := parseObject(text)
	if err != nil {
		tb.Fatal(err)
	}
	return obj
}

var errNoObject = errors.New("not an object")

func parseObject(text string) (map[string]any, error) {
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, errNoObject
	}
	return obj, nil
}

// definition returns the definition of an archive, or nil.
func definition(t *testing.T, in map[string]string, prefix string) map[string]any {
	t.Helper()
	if text := in[prefix+"crd.yaml"]; text != "" {
		return parse(t, text)
	}
	if text := in[prefix+"schema.yaml"]; text != "" {
		return thing(parse(t, text))
	}
	return nil
}

// thing returns the definition of Thing in example.com, with one version v1.
func thing(schema map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "things.example.com"},
		"spec": map[string]any{
			"group": "example.com",
			"names": map[string]any{"kind": "Thing", "plural": "things"},
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": schema},
			}},
		},
	}
}
