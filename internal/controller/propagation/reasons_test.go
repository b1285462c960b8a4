package propagation

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreDocumented: whoever reads a reason finds it in the guide.
func TestReasonsAreDocumented(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/guide/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(gotoken.NewFileSet(), "desired.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "reason") || len(spec.Values) != 1 {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		reason, err := strconv.Unquote(value.Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		if !strings.Contains(string(guide), "`"+reason+"`") {
			t.Errorf("docs/guide/operate.md does not say what %s means, and what to do", reason)
		}
		return true
	})
	if found < 20 {
		t.Errorf("want the reasons found, got %d", found)
	}
}
