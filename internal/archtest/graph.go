// Package archtest proves the house rules: which package may import which, and
// that the core is pure. The rules are tables in house_test.go; this package
// holds what judges an import graph by such tables.
package archtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Package is what the rules need to know of a Go package.
type Package struct {
	// ImportPath is "refract.dev/tree", Name is "tree".
	ImportPath string `json:"ImportPath"`
	Name       string `json:"Name"`
	// Imports are the import paths of its files, tests excluded.
	Imports []string `json:"Imports"`
	// TestImports and XTestImports are those of its test files, in the package
	// and in package name_test.
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
}

// A Graph holds packages by import path. A package that others import may be
// absent from it: nothing is then known of what it imports.
type Graph map[string]Package

// Load returns the packages of the module at root and all that they depend on,
// as `go list -deps` tells it.
func Load(ctx context.Context, root string) (Graph, error) {
	// `go test` caches a verdict until a file that the test looked at changes, and
	// does not see what `go list` looks at. So look at the same folders.
	if err := visit(root); err != nil {
		return nil, err
	}

	cmd := exec.CommandContext(ctx, "go", "list", "-deps",
		"-json=ImportPath,Name,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages in %s: %w\n%s", root, err, stderr.Bytes())
	}
	return decode(bytes.NewReader(out))
}

// decode reads the stream of objects that `go list -json` prints.
func decode(r io.Reader) (Graph, error) {
	g := Graph{}
	for d := json.NewDecoder(r); ; {
		var p Package
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decoding the list of packages: %w", err)
		}
		g[p.ImportPath] = p
	}
}

// visit reads every folder below root that can hold packages.
func visit(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"
		if d.IsDir() && hidden && path != root {
			return fs.SkipDir
		}
		return nil
	})
}

// Chain returns a shortest way from the package at path from to one that
// matches a pattern of to: from itself first, the match last. Ways through a
// package that matches a pattern of through do not count. It returns nil if
// there is no way.
func (g Graph) Chain(from string, to, through []string) []string {
	seen := map[string]bool{from: true}
	for ways := [][]string{{from}}; len(ways) > 0; ways = ways[1:] {
		way := ways[0]
		for _, next := range g[way[len(way)-1]].Imports {
			if seen[next] || matchAny(through, next) {
				continue
			}
			seen[next] = true
			longer := append(slices.Clone(way), next)
			if matchAny(to, next) {
				return longer
			}
			ways = append(ways, longer)
		}
	}
	return nil
}

// match reports whether path is what pattern names. A pattern is an import path
// or one followed by "/...", which also names all that lies below.
func match(pattern, path string) bool {
	prefix, deep := strings.CutSuffix(pattern, "/...")
	return path == prefix || deep && strings.HasPrefix(path, prefix+"/")
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}
