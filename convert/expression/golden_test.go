package expression

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// structural reads a schema as a CustomResourceDefinition has it; "" is nil.
func structural(tb testing.TB, text string) *schema.Structural {
	tb.Helper()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var v1 apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte(text), &v1); err != nil {
		tb.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &internal, nil); err != nil {
		tb.Fatal(err)
	}
	s, err := schema.NewStructural(&internal)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestGolden goes through testdata. A session has expressions on lines with > (and | for
// further lines), each followed by what is wrong with it, on lines with ?, or by values and what becomes of each
// of them: the result on a line with =, or the error on a line with !.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sections := map[string]string{}
			for _, f := range want.Files {
				sections[f.Name] = string(f.Data)
			}
			got := &txtar.Archive{Comment: want.Comment}
			for _, f := range want.Files {
				if f.Name == "session.txt" {
					f.Data = session(t, sections)
				}
				got.Files = append(got.Files, f)
			}
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

func session(t *testing.T, sections map[string]string) []byte {
	t.Helper()
	in, out := structural(t, sections["in.yaml"]), structural(t, sections["out.yaml"])
	var b strings.Builder
	var text []string
	var p *Program
	compile := func() {
		if len(text) == 0 {
			return
		}
		var problems []Problem
		p, problems = Compile(strings.Join(text, "\n"), in, out, Limits{OutputItems: 1000})
		for _, problem := range problems {
			b.WriteString("? " + problem.String() + "\n")
		}
		text = nil
	}
	for line := range strings.Lines(sections["session.txt"]) {
		line = strings.TrimSuffix(line, "\n")
		expression, begins := strings.CutPrefix(line, "> ")
		more, goesOn := strings.CutPrefix(line, "| ")
		if !goesOn {
			compile()
		}
		switch {
		case begins:
			text = []string{expression}
			b.WriteString(line + "\n")
		case goesOn:
			text = append(text, more)
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "= ") || strings.HasPrefix(line, "! ") || strings.HasPrefix(line, "? "):
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			b.WriteString(line + "\n")
		case p == nil:
			t.Errorf("%s: the expression does not compile", line)
		default:
			b.WriteString(line + "\n")
			got, err := p.Convert(nil, []byte(line))
			if err != nil {
				b.WriteString("! " + err.Error() + "\n")
				continue
			}
			b.WriteString("= " + string(got) + "\n")
		}
	}
	compile()
	return []byte(b.String())
}
