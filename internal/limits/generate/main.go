// Command generate writes docs/reference/limits.md from limits.md.tmpl. It takes the values of the limits from
// constants in the code, so the page is always correct.
//
// It must run in the root of this module.
package main

import (
	"bytes"
	_ "embed" // For the page.
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

const target = "docs/reference/limits.md"

//go:embed limits.md.tmpl
var page string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:forbidigo // This is a main package, although it is not in cmd.
	}
}

func run() error {
	text, err := write()
	if err != nil {
		return err
	}
	return os.WriteFile(target, text, 0o644)
}

// write returns the page with the values of the constants.
func write() ([]byte, error) {
	known := map[string]map[string]int64{} // Constants by folder.
	value := func(dir, name string) (int64, error) {
		if known[dir] == nil {
			var err error
			if known[dir], err = constants(dir); err != nil {
				return 0, err
			}
		}
		n, ok := known[dir][name]
		if !ok {
			return 0, fmt.Errorf("package %s has no constant %s that is an integer", dir, name)
		}
		return n, nil
	}
	t, err := template.New(target).Funcs(template.FuncMap{
		"number": func(dir, name string) (string, error) {
			n, err := value(dir, name)
			return number(n), err
		},
		"bytes": func(dir, name string) (string, error) {
			n, err := value(dir, name)
			return size(n), err
		},
	}).Parse(page)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, nil); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// constants returns the integer constants of a package that do not depend on other packages.
func constants(dir string) (map[string]int64, error) {
	files := token.NewFileSet()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	check := types.Config{
		IgnoreFuncBodies: true,
		Error:            func(error) {}, // Missing imports cause errors, which do not matter.
		Importer:         nothing{},
	}
	pkg, _ := check.Check(dir, files, parsed, nil)
	if pkg == nil {
		return nil, fmt.Errorf("package %s cannot be read", dir)
	}
	all := map[string]int64{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() != constant.Int {
			continue
		}
		if n, exact := constant.Int64Val(c.Val()); exact {
			all[name] = n
		}
	}
	return all, nil
}

// nothing is an importer that finds no packages.
type nothing struct{}

// Import implements [types.Importer].
func (nothing) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

// size returns a number of bytes in the largest unit without a fraction.
func size(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return number(n)
}

// number returns a number with commas.
func number(n int64) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
