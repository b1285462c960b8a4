// Package archtest checks the rules for imports: the layers of packages, and the purity of the core. The tables with
// the rules are in house_test.go. The other files compare an import graph with such tables.
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

// A Package has the properties of a Go package that the rules need.
type Package struct {
	// ImportPath is the import path, such as "refract.dev/tree". Name is the package name, such as "tree".
	ImportPath string `json:"ImportPath"`
	Name       string `json:"Name"`
	// Imports are the import paths of its files, without tests.
	Imports []string `json:"Imports"`
	// TestImports are the import paths of the test files in the package itself, and XTestImports those of the test
	// files in package name_test.
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
}

// A Graph has packages by import path. A package may be missing although others import it; then its imports are
// unknown.
type Graph map[string]Package

// Load returns the packages of the module at root and all their dependencies, from `go list -deps`.
func Load(ctx context.Context, root string) (Graph, error) {
	// `go test` caches the result of a test until a file changes that the test process has read. It does not notice the
	// files that `go list` reads. So visit reads the same folders.
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

// decode reads the output of `go list -json`, a stream of JSON objects.
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

// visit reads every folder below root that can contain packages.
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

// Chain returns a shortest chain of imports. It begins with the given package, and ends with a package that matches a
// pattern in the second argument. Except for the given package, no package in the chain matches a pattern in the third
// argument. Chain returns nil if there is no such chain.
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

// match reports whether a pattern matches an import path. A pattern is an import path; with the suffix "/..." it also
// matches all paths below.
func match(pattern, path string) bool {
	prefix, deep := strings.CutSuffix(pattern, "/...")
	return path == prefix || deep && strings.HasPrefix(path, prefix+"/")
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}
