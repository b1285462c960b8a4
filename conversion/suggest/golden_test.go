package suggest

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/internal/golden"
)

// TestGolden suggests a policy for the definition crd.yaml in each archive in testdata. A line "hub: VERSION" in the
// comment of the archive sets the hub. The other files are the expected spec, notes, and findings of the compiler;
// empty files are omitted.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", suggested)
}

// suggested returns the files that the archive should contain.
func suggested(t *testing.T, in *txtar.Archive) []txtar.File {
	t.Helper()
	def := compile(t, in.Files[0].Data)
	hub := ""
	for line := range strings.Lines(string(in.Comment)) {
		if version, ok := strings.CutPrefix(line, "# hub: "); ok {
			hub = strings.TrimSpace(version)
		}
	}
	p, notes, err := Policy(def, hub)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	_, findings := policy.Compile(&p.Spec, def)
	var found []string
	for _, f := range findings {
		found = append(found, string(f.Severity)+": "+f.String())
	}
	out := []txtar.File{{Name: "want/spec.yaml", Data: spec}}
	for _, f := range []struct {
		name  string
		lines []string
	}{{"want/notes.txt", notes}, {"want/findings.txt", found}} {
		if len(f.lines) > 0 {
			out = append(out, txtar.File{Name: f.name, Data: []byte(strings.Join(f.lines, "\n") + "\n")})
		}
	}
	return out
}

// compile compiles a definition.
func compile(t *testing.T, text []byte) *structural.Definition {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	def, err := structural.New(crd)
	if err != nil {
		t.Fatal(err)
	}
	return def
}
