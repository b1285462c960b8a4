package suggest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"refract.dev/convert/policy"
	"refract.dev/structural"
)

var update = flag.Bool("update", false, "take what is suggested now for what should be")

// TestGolden suggests a policy for the definition in each archive of testdata: crd.yaml,
// with the hub in a line "hub: VERSION" of the comment, if there is one. The other files
// are the spec, the notes, and what the compiler finds; empty ones are left out.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := suggested(t, want)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(got))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// suggested returns an archive with its definition, and what is suggested for it.
func suggested(t *testing.T, in *txtar.Archive) *txtar.Archive {
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
	out := &txtar.Archive{Comment: in.Comment, Files: []txtar.File{in.Files[0], {Name: "want/spec.yaml", Data: spec}}}
	for _, f := range []struct {
		name  string
		lines []string
	}{{"want/notes.txt", notes}, {"want/findings.txt", found}} {
		if len(f.lines) > 0 {
			out.Files = append(out.Files, txtar.File{Name: f.name, Data: []byte(strings.Join(f.lines, "\n") + "\n")})
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
