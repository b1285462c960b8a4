package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	module  = "refract.dev/"
	harness = module + "test/harness"
)

// kind is the way to run the tests of a package.
type kind int

const (
	none  kind = iota // Not run here: the package has no tests, or its tests have their own make target.
	plain             // Without control planes and the race detector.
	race              // With the race detector.
	alive             // With control planes.
)

// serial lists packages with goroutines that are tested without the race detector. Their tests work in sequence and
// take minutes: they process hundreds of fleets, or run the command hundreds of times. Other tests cover the called
// code with the race detector.
var serial = []string{module + "test/generate", module + "test/offline", module + "test/simulate", module + "test/ui", module + "internal/cli"}

// sequential lists tests without goroutines in packages that have goroutines elsewhere. They run without the race
// detector, which would find nothing in them and would take minutes.
var sequential = map[string]string{
	module + "conversion/policy": "TestRandomPolicies",
	module + "fleet/member":      "TestHostileAnswers",
	module + "fleet/propagation": "TestPendingRemovals",
	module + "injection/restart": "TestRandomWorlds",
}

// onNode is the package with tests on a Node, inBrowser the package with tests in a browser. elsewhere has the packages
// with their own make targets: these two and the benchmarks.
const (
	onNode    = module + "test/node"
	inBrowser = module + "test/browser"
)

var elsewhere = []string{module + "test/bench", onNode, inBrowser}

// longest are the slowest live packages. They start first and in this order, so that none of them runs alone at the
// end. The order alternates between packages that mostly wait and packages that mostly compute.
var longest = []string{"test/rollout", "test/drills", "test/injection", "test/e2e", "test/kinds", "test/conversion", "test/installation", "test/pizza"}

// pkg is the output of `go list` for a package.
type pkg struct {
	ImportPath   string   `json:"ImportPath"`
	Dir          string   `json:"Dir"`
	GoFiles      []string `json:"GoFiles"`
	TestGoFiles  []string `json:"TestGoFiles"`
	XTestGoFiles []string `json:"XTestGoFiles"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`

	kind kind
}

// list returns the packages that match the patterns.
func list(ctx context.Context, patterns ...string) ([]pkg, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,TestImports,XTestImports"}, patterns...)
	cmd := exec.CommandContext(ctx, goTool(), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	all, err := decode[pkg](bytes.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("decoding the list of packages: %w", err)
	}
	for i := range all {
		if all[i].kind, err = all[i].find(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// goTool returns the go command from the variable of make, by default go.
func goTool() string { return cmp.Or(os.Getenv("GO"), "go") }

// concurrent matches goroutines and synchronization in source text.
var concurrent = regexp.MustCompile(`(?m)^\s*go (func|[a-z])|\.Go\(|"sync"|"sync/atomic"|\.Parallel\(\)|"golang\.org/x/sync`)

// find determines how the package is tested.
func (p *pkg) find() (kind, error) {
	tests := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
	switch {
	case len(tests) == 0 || slices.ContainsFunc(elsewhere, func(path string) bool { return strings.HasPrefix(p.ImportPath, path) }):
		return none, nil
	case p.ImportPath == harness, p.ImportPath == module+"internal/playground", slices.Contains(slices.Concat(p.TestImports, p.XTestImports), harness):
		return alive, nil
	case slices.Contains(serial, p.ImportPath):
		return plain, nil
	}
	for _, file := range slices.Concat(p.GoFiles, tests) {
		text, err := os.ReadFile(filepath.Join(p.Dir, file))
		if err != nil {
			return none, err
		}
		if concurrent.Match(text) {
			return race, nil
		}
	}
	return plain, nil
}

// ofKind returns the import paths of the packages of these kinds, live packages in the order of their start.
func ofKind(all []pkg, kinds ...kind) (paths []string) {
	for i := range all {
		if slices.Contains(kinds, all[i].kind) {
			paths = append(paths, all[i].ImportPath)
		}
	}
	rank := func(path string) int {
		if i := slices.Index(longest, strings.TrimPrefix(path, module)); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return rank(a) - rank(b) })
	return paths
}
