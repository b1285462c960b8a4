package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// freely has the files whose deletions need no precondition. The values are the reasons.
var freely = map[string]string{
	"internal/cli/demo_fleet.go": "the control planes were made for the demo, and nobody else has them",
}

// decidedUpon matches a UID or preconditions in a delete request. They identify one object, while its name may be
// reused.
var decidedUpon = regexp.MustCompile(`(?i)preconditions|\buid\b|\.UID\b`)

// TestDeletionsHavePreconditions checks that each delete request has the UID of the object that is to be deleted. By
// the time of the request, another object may have the same name.
func TestDeletionsHavePreconditions(t *testing.T) {
	used := map[string]bool{}
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"test", "controlplane", "testdata"}, d.Name()) || path != root && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		all, blind := deletions(t, text)
		n += all
		for _, line := range blind {
			if freely[file] == "" {
				t.Errorf("%s:%d deletes an object by its name: name its UID by client.Preconditions, or say in freely why that is not needed", file, line)
			}
			used[file] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for file := range freely {
		if !used[file] {
			t.Errorf("freely[%q]: the file deletes nothing by its name", file)
		}
	}
	if n < 10 {
		t.Errorf("Found %d deletions: they are not recognized well.", n)
	}
}

// deletions returns the number of delete requests in a file, and the lines of the requests without a UID. A call is a
// delete request if its first argument is a context. It is also one if it has no arguments: then it is part of a chain
// of calls, and deletions searches the whole function for the UID.
func deletions(t *testing.T, text []byte) (all int, blind []int) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	show := func(n any) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, fset, n); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, decl := range file.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Delete", "DeleteAllOf", "DeleteCollection"}, sel.Sel.Name) {
				return true
			}
			var said string
			switch {
			case len(call.Args) == 0:
				said = show(decl)
			case strings.Contains(show(call.Args[0]), "ctx"):
				said = show(call)
			default:
				return true // This call deletes from a set, a map or a slice.
			}
			all++
			if !decidedUpon.MatchString(said) {
				blind = append(blind, fset.Position(call.Pos()).Line)
			}
			return true
		})
	}
	return all, blind
}

func TestDeletions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, body string
		all, blind   int
	}{
		"Blind":         {"Another object may have the name by now.", `c.Delete(ctx, o)`, 1, 1},
		"Derived":       {"A derived context is a context, too.", `c.Delete(context.WithoutCancel(ctx), o)`, 1, 1},
		"Many":          {"The request deletes all existing objects.", `c.DeleteAllOf(ctx, o)`, 1, 1},
		"Preconditions": {"The request names the object that was read.", `c.Delete(ctx, o, client.Preconditions{UID: &o.UID})`, 1, 0},
		"Parts":         {"The chain of calls does not identify the object.", `c.rest.Delete().Name(name).Do(ctx)`, 1, 1},
		"PartsWithBody": {"The body identifies the object.", `c.rest.Delete().Body(metav1.DeleteOptions{Preconditions: p}).Do(ctx)`, 1, 0},
		"Slice":         {"These calls are not requests.", `slices.Delete(s, 0, 1); m.Delete(key)`, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all, blind := deletions(t, []byte("package p\nfunc f() { "+tc.body+" }\n"))
			if all != tc.all || len(blind) != tc.blind {
				t.Errorf("%s: want %d deletions, %d of them blind, got %d and %v", tc.reason, tc.all, tc.blind, all, blind)
			}
		})
	}
}
