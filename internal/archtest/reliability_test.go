package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReliability checks that docs/reliability.md names only existing tests, and that the total in its table is the
// number of listed faults.
func TestReliability(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testsByFolder(t)
	for _, m := range regexp.MustCompile("`([a-z0-9]+\\.(?:Test|Fuzz|Benchmark)\\w+)(?:/[\\w-]+)?`").FindAllStringSubmatch(string(text), -1) {
		if !tests[m[1]] && m[1] != "package.TestName" {
			t.Errorf("docs/reliability.md names %s, which is no test: correct the name, or say which test there is instead", m[1])
		}
	}
	rows := len(regexp.MustCompile(`(?m)^\| [A-Z][0-9]+ \| (critical|high|medium|low) \|`).FindAll(text, -1))
	all := regexp.MustCompile(`(?m)^\| \*\*All\*\* \| \*\*([0-9]+)\*\*`).FindSubmatch(text)
	if all == nil {
		t.Fatal("docs/reliability.md has no number of all faults")
	}
	if n, _ := strconv.Atoi(string(all[1])); n != rows {
		t.Errorf("docs/reliability.md counts %d faults and lists %d: correct the table", n, rows)
	}
}

// testsByFolder returns all tests of the repository, as FOLDER.NAME. FOLDER is the last part of the path of the folder.
func testsByFolder(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				found[filepath.Base(filepath.Dir(path))+"."+f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
