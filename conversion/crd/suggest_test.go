package crd

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"refract.dev/fleet/offline/manifest"
)

// TestSuggestTooMany verifies that a suggestion that an API server would reject has a comment about it at the spoke.
func TestSuggestTooMany(t *testing.T) {
	var properties []string
	for i := range 257 {
		properties = append(properties, fmt.Sprintf("a%d: {type: string}", i))
	}
	var content map[string]any
	if err := yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wides.example.com}
spec:
  group: example.com
  names: {kind: Wide, listKind: WideList, plural: wides, singular: wide}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {%s}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`, strings.Join(properties, ", ")), &content); err != nil {
		t.Fatal(err)
	}
	suggestion, got := suggested(t, content)
	want := "  # It does not compile: Too many: 257: must have at most 256 items.\n  - version: v1\n"
	if !strings.Contains(got, want) || len(suggestion.Findings) != 1 {
		t.Errorf("%d findings; got:\n%.800s\nwant: %s", len(suggestion.Findings), got, want)
	}
}

// suggested returns the suggestion for a definition, and its text.
func suggested(t *testing.T, crd map[string]any) (*Suggestion, string) {
	t.Helper()
	definitions, problems := Compile([]manifest.Document{{Content: crd}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	suggestion, err := Suggest(&definitions[0], "")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := suggestion.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	return suggestion, text.String()
}

// TestSuggestSaysItOnce verifies that a note appears only once if several pairs of a map have it.
func TestSuggestSaysItOnce(t *testing.T) {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string, enum: [red]}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string, enum: [red, green, blue]}}}}}
`), &content); err != nil {
		t.Fatal(err)
	}
	suggestion, got := suggested(t, content)
	if n := strings.Count(got, "# Warning: "); n != 1 || len(suggestion.Findings) != 2 {
		t.Errorf("%d findings, %d warnings, want 2 and 1:\n%s", len(suggestion.Findings), n, got)
	}
}
