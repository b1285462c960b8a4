package converter

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/fuzzed"
)

// TestReduced checks that parts of a definition that do not affect conversion are removed. A property with the name of
// a removed keyword must stay.
func TestReduced(t *testing.T) {
	crd := read(t, widgets)
	before := crd.DeepCopy()
	got, err := yaml.Marshal(reduced(crd))
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names:
    kind: Widget
    listKind: WidgetList
    plural: widgets
    singular: widget
  scope: Namespaced
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              description:
                type: string
              size:
                type: integer
            type: object
        type: object
    served: true
    storage: true
  - name: v2
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              capacity:
                type: integer
              description:
                type: string
            type: object
        type: object
    served: true
    storage: false
status:
  storedVersions:
  - v1
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("reduced(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(before, crd); diff != "" {
		t.Errorf("reduced() changed its input: -before, +after:\n%s", diff)
	}
}

// TestPacked checks that unpack returns the packed definition, and rejects a definition beyond the limits.
func TestPacked(t *testing.T) {
	definition := reduced(read(t, widgets))
	packed, err := pack(definition)
	if err != nil {
		t.Fatal(err)
	}
	got, text, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("unpack(): -want, +got:\n%s", diff)
	}
	if !samePacked(packed, got) {
		t.Error("It is not the same as itself.")
	}
	got["spec"].(map[string]any)["scope"] = "Cluster"
	if samePacked(packed, got) || samePacked(nil, got) || samePacked([]byte("x"), got) {
		t.Error("It is the same as another one.")
	}
	for name, broken := range map[string][]byte{"nothing": nil, "text": []byte("{}"), "cut off": packed[:len(packed)/2]} {
		if _, _, err := unpack(broken); err == nil {
			t.Errorf("unpack(%s): got no error", name)
		}
	}
	const around = len(`{"x":""}`)
	largest, err := pack(map[string]any{"x": strings.Repeat("x", mostDefinition-around)})
	if err != nil {
		t.Fatal(err)
	}
	if _, text, err := unpack(largest); err != nil || len(text) != mostDefinition {
		t.Errorf("A definition may be as large: got %d bytes, %v", len(text), err)
	}
	for reason, text := range map[string]string{
		"bytes":  `{"x":"` + strings.Repeat("x", mostDefinition) + `"}`,
		"values": `{"x":[` + strings.Repeat("{},", mostDefined) + `{}]}`,
	} {
		bomb := gzipped(t, text)
		fuzzed.Run(t, func() int {
			if _, _, err := unpack(bomb); err == nil || !strings.Contains(err.Error(), reason) {
				t.Errorf("unpack() of %d bytes that become any number of %s: %v", len(bomb), reason, err)
			}
			return len(text)
		})
		var definition map[string]any
		if err := json.Unmarshal([]byte(text), &definition); err != nil {
			t.Fatal(err)
		}
		if _, err := pack(definition); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("pack() of what cannot be unpacked for its %s: %v", reason, err)
		}
	}
}

// gzipped returns a text in gzip, the format of a definition in a status.
func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestCompiler checks that a policy is compiled once for each definition, and that the compiler does not remember the
// program.
func TestCompiler(t *testing.T) {
	c, p, definition := newCompiler(), policyFrom(t, mapped, "widgets", 1), reduced(read(t, widgets))
	first := c.compile(p, definition)
	if first.err != nil {
		t.Fatal(first.err)
	}
	if first.program == nil {
		t.Error("There is no program.")
	}
	if again := c.compile(p, reduced(read(t, widgets))); again.program != nil || again.about != first.about || again.err != nil {
		t.Error("Nothing has changed, and it was compiled again.")
	}
	p.Generation++
	if c.compile(p, definition).program == nil {
		t.Error("The policy has changed, and was not compiled.")
	}
	third := read(t, strings.Replace(widgets, "served: true\n    storage: false", "served: false\n    storage: false", 1))
	if c.compile(p, reduced(third)).about == first.about {
		t.Error("The definition has changed, and nobody has noticed.")
	}
}
