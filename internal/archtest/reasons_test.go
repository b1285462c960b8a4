package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreDocumented: whoever reads a reason in a status finds it in the guide.
func TestReasonsAreDocumented(t *testing.T) {
	for name, tc := range map[string]struct {
		guide   string
		sources []string       // Files, or folders for all in them.
		names   *regexp.Regexp // Of the constants that are reasons.
		least   int            // How many there are at least, so that they are found at all.
	}{
		"Propagation": {
			"operate.md", []string{"internal/controller/propagation/desired.go"}, regexp.MustCompile(`^reason`), 20,
		},
		"Injection": {
			"operate-injection.md",
			[]string{"internal/controller/rollout", "internal/controller/injection/implicit", "inject/inject.go", "inject/examine.go", "api/refract/v1beta1"},
			regexp.MustCompile(`^(reason|Reason|Phase)[A-Z]`), 45,
		},
		"Conversion": {"convert-without-code.md", []string{"internal/controller/conversion/state.go"}, regexp.MustCompile(`^reason`), 17},
		"Migration": {
			"convert-without-code.md", []string{"internal/controller/migration/result.go"},
			regexp.MustCompile(`^(Migrated|WouldMigrate|Declined|Refused|Failed)$`), 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			guide, err := os.ReadFile(filepath.Join(root, "docs", "guide", tc.guide))
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, source := range tc.sources {
				found = append(found, constantsIn(t, filepath.Join(root, source), tc.names)...)
			}
			for _, reason := range found {
				if !strings.Contains(string(guide), "`"+reason+"`") {
					t.Errorf("docs/guide/%s does not say what %s means, and what to do", tc.guide, reason)
				}
			}
			if len(found) < tc.least {
				t.Errorf("want the reasons found, got %d", len(found))
			}
		})
	}
}

// constantsIn returns the texts of constants whose names match, of a file or of a folder.
func constantsIn(t *testing.T, source string, names *regexp.Regexp) []string {
	t.Helper()
	files := []string{source}
	if filepath.Ext(source) == "" {
		var err error
		if files, err = filepath.Glob(filepath.Join(source, "*.go")); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	for _, file := range slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") }) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !names.MatchString(spec.Names[0].Name) {
				return true
			}
			if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, text)
			}
			return true
		})
	}
	return found
}
