package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recipes has the recipes of CONTRIBUTING.md for which testdata/recipes has a patch as an example. files is the maximum
// number of files in the patch. test has the arguments of go test that verify the result. folders are the folders of
// the repository that this test needs.
var recipes = map[string]struct {
	files   int
	test    []string
	folders []string
}{
	"overrider": {
		5, []string{"-run", "TestGolden|TestEveryOverriderCounts", "./fleet/policy/override"},
		[]string{"api", "fleet/policy", "tree", "injection/inject", "conversion/expression", "internal/golden", "internal/fuzzed", "docs/guide"},
	},
	"condition": {
		6, []string{"-run", "TestSetConditions|TestClusters", "./fleet/member", "./fleet/status"},
		[]string{"api", "fleet", "tree", "injection", "conversion", "internal", "kit", "docs/guide"},
	},
	"command": {
		3, []string{"-run", "TestScript/namespaces", "./internal/cli"},
		[]string{"api", "config", "fleet", "tree", "injection", "conversion", "internal", "kit", "examples", "test/harness"},
	},
}

// TestRecipes applies the patch of each recipe to a copy of the repository, and tests the result.
func TestRecipes(t *testing.T) {
	for name, r := range recipes {
		t.Run(name, func(t *testing.T) {
			patch, err := os.ReadFile(filepath.Join("testdata", "recipes", name+".patch"))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count("\n"+string(patch), "\ndiff --git "); n > r.files {
				t.Errorf("the recipe touches %d files, want at most %d", n, r.files)
			}
			dir := t.TempDir()
			for _, folder := range r.folders {
				if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"go.mod", "go.sum"} {
				text, err := os.ReadFile(filepath.Join(root, file))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			run(t, dir, string(patch), "git", "apply")
			run(t, dir, "", "go", append([]string{"test", "-vet=off"}, r.test...)...)
		})
	}
}

// run runs a command in a folder.
func run(t *testing.T, dir, input, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
