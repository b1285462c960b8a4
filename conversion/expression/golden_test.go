package expression

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/golden"
)

// structural returns the schema in a text in the format of a CustomResourceDefinition; nil for "".
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

// TestGolden runs the sessions in testdata. In a session, a line with > is an expression, and lines with | continue it.
// After it come either its problems, on lines with ?, or values. After each value comes its result, on a line with =,
// or its error, on a line with !.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		return []txtar.File{{Name: "session.txt", Data: session(t, golden.Texts(archive.Files))}}
	})
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
