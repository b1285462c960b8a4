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

// TestReasonsAreDocumented checks that the guides explain each reason that a status can have.
func TestReasonsAreDocumented(t *testing.T) {
	for name, tc := range map[string]struct {
		guide   string
		sources []string       // Files and folders.
		names   *regexp.Regexp // Matches the names of the constants that are reasons.
		least   int            // The minimum number of reasons. Fewer mean that the search does not work.
	}{
		"Propagation": {
			"operate.md", []string{"fleet/propagation/desired.go"}, regexp.MustCompile(`^reason`), 20,
		},
		"Injection": {
			"operate-injection.md",
			[]string{"injection/restart", "injection/injector/implicit", "injection/inject/inject.go", "injection/inject/examine.go", "api/refract/v1beta1"},
			regexp.MustCompile(`^(reason|Reason|Phase)[A-Z]`), 45,
		},
		"Conversion": {"serve-conversions.md", []string{"conversion/converter/state.go"}, regexp.MustCompile(`^reason`), 17},
		"Migration": {
			"serve-conversions.md", []string{"conversion/migration/result.go"},
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

// constantsIn returns the values of the string constants of a file or folder whose names match.
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
