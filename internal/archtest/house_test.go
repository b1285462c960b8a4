package archtest

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "refract.dev"
	root   = "../.." // Of the module, seen from this folder.
)

// layers is the house from the roof down: cmd → cli → services → support → kit →
// core → api; and the examples, which stand on what everybody can import.
var layers = []Layer{
	{
		Name:     "test",
		Packages: []string{"refract.dev/test/..."},
		Imports:  []string{"cli", "controller", "support", "kit", "example", "files", "core", "api", "golden"},
	},
	{
		Name:     "show", // Has an example run on local control planes.
		Packages: []string{"refract.dev/examples/pizza/demo"},
		Imports:  []string{"controller", "support", "kit", "example", "files", "core", "api"},
	},
	{
		Name:     "example",
		Packages: []string{"refract.dev/examples/pizza/..."},
		Imports:  []string{"kit", "core", "api"},
	},
	{
		Name:     "cmd",
		Packages: []string{"refract.dev/cmd/..."},
		Imports:  []string{"cli"},
	},
	{
		Name:     "cli",
		Packages: []string{"refract.dev/internal/cli/..."},
		Imports:  []string{"controller", "support", "kit", "files", "core", "api", "golden"},
	},
	{
		Name: "controller",
		Packages: []string{
			"refract.dev/internal/controller/propagation/...",
			"refract.dev/internal/controller/injection/...",
			"refract.dev/internal/controller/rollout/...",
			"refract.dev/internal/controller/conversion/...",
			"refract.dev/internal/controller/migration/...",
		},
		Imports: []string{"support", "kit", "core", "api", "golden"},
		Apart:   true,
	},
	{
		Name:     "golden", // Of tests, all of them.
		Packages: []string{"refract.dev/internal/golden", "refract.dev/internal/fuzzed"},
	},
	{
		Name:     "support",
		Packages: []string{"refract.dev/internal/..."}, // What the layers above did not claim.
		Imports:  []string{"kit", "files", "core", "api", "golden"},
	},
	{
		Name:     "kit", // For servers of others too: public, and not pure.
		Packages: []string{"refract.dev/webhook/..."},
		Imports:  []string{"core", "api", "golden"},
	},
	{
		Name:     "files", // Embedded, and no code.
		Packages: []string{"refract.dev/config", "refract.dev/examples"},
	},
	{
		Name:     "core",
		Packages: core,
		Imports:  []string{"api", "golden"},
	},
	{
		Name:     "api",
		Packages: []string{"refract.dev/api/..."},
	},
	{
		Name:     "generate",
		Packages: []string{"refract.dev"}, // generate.go.
	},
}

// core are the engines. The depguard rules of .golangci.yml name them too.
var core = []string{
	"refract.dev/tree/...",
	"refract.dev/match/...",
	"refract.dev/podtemplate/...",
	"refract.dev/reference/...",
	"refract.dev/local/...",
	"refract.dev/override/...",
	"refract.dev/placement/...",
	"refract.dev/inject/...",
	"refract.dev/convert/...",
	"refract.dev/structural/...",
	"refract.dev/release/...",
}

// waitless is the core without structural and without convert/verify: the API server's own
// functions, which the one calls, ask for a context, and do not wait either; the other
// searches for as long as its caller allows.
var waitless = append(
	slices.DeleteFunc(slices.Clone(core), func(pattern string) bool {
		return pattern == "refract.dev/structural/..." || pattern == "refract.dev/convert/..."
	}),
	"refract.dev/convert", "refract.dev/convert/expression/...", "refract.dev/convert/policy/...", "refract.dev/convert/suggest/...",
)

// timeless is the core without release, which compares times that it is given: see [TestNoClock].
var timeless = slices.DeleteFunc(slices.Clone(core), func(pattern string) bool { return pattern == "refract.dev/release/..." })

// bans make the core pure: bytes and objects in, bytes and objects out.
var bans = []Ban{
	{
		From: core,
		To:   []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."},
		// The server's own verdict on a CustomResourceDefinition looks at its webhook
		// with a package that can also call one.
		Through: []string{"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"},
		Why:     "the core talks to no API server, not even through a library",
	},
	{
		From: core,
		To:   []string{"k8s.io/apiserver/...", "k8s.io/component-base/..."},
		Through: []string{
			// How an API server treats custom resources and CEL is what structural and
			// convert promise to do, so it does that with the API server's own code.
			"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/...",
			"k8s.io/apiextensions-apiserver/pkg/apiserver/validation/...",
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/...",
			"k8s.io/apiserver/pkg/apis/cel", // The cost limits.
			"k8s.io/apiserver/pkg/cel/...",
		},
		Why: "of an API server the core needs the schemas and the CEL library only",
	},
	{
		From:   core,
		Direct: true, // apimachinery itself imports most of these.
		To:     []string{"github.com/go-logr/logr/...", "k8s.io/klog/...", "k8s.io/klog/v2/...", "log/..."},
		Why:    "the core returns what it has to say",
	},
	{
		From:   core,
		Direct: true,
		To:     []string{"os/...", "io/fs", "io/ioutil", "embed", "syscall"},
		Why:    "the core reads no file and no environment",
	},
	{
		From:   core,
		Direct: true,
		To:     []string{"net", "net/http/...", "net/rpc/...", "net/smtp"},
		Why:    "the core does not use the network",
	},
	{
		From:   waitless,
		Direct: true,
		To:     []string{"context"},
		Why:    "the core never waits, so nothing can be cancelled",
	},
	{
		From:   core,
		Direct: true,
		To:     []string{"math/rand/...", "crypto/rand"},
		Why:    "the core's answer depends on its arguments alone",
	},
	{
		From:   timeless,
		Direct: true,
		To:     []string{"time"},
		Why:    "the core's answer depends on its arguments alone",
	},
	{
		From:   []string{"refract.dev/..."},
		Direct: true,
		To:     []string{"refract.dev/internal/golden", "refract.dev/internal/fuzzed"},
		Why:    "it is for tests",
	},
}

// names are what no package or folder is called.
var names = []string{
	"*util", "*utils", "*helper", "*helpers",
	"common", "base", "misc", "types", "manager",
}

func TestLayers(t *testing.T) {
	for _, v := range CheckLayers(house(t), module, layers) {
		t.Errorf("%s%s", v, positions(t, v, true))
	}
}

func TestCoreIsPure(t *testing.T) {
	for _, v := range CheckBans(house(t), bans) {
		t.Errorf("%s%s", v, positions(t, v, false))
	}
}

func TestNames(t *testing.T) {
	for _, v := range CheckNames(house(t), module, names) {
		t.Error(v)
	}
}

func TestMainIsShort(t *testing.T) {
	const limit = 40
	src, err := os.ReadFile(filepath.Join(root, "cmd/refract/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(src, []byte("\n")); n > limit {
		t.Errorf("cmd/refract/main.go has %d lines, want at most %d: what it does belongs to internal/cli", n, limit)
	}
}

// house returns the packages of this module.
func house(t *testing.T) Graph {
	t.Helper()
	g, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g[module+"/internal/archtest"]; !ok {
		t.Fatalf("the list of %d packages lacks this one: every rule would hold", len(g))
	}
	return g
}

// positions returns a line for each file that holds the first import of the
// chain, test files among them if tests is set.
func positions(t *testing.T, v Violation, tests bool) string {
	t.Helper()
	if len(v.Chain) < 2 {
		return ""
	}
	dir := filepath.Join(root, strings.TrimPrefix(v.Chain[0], module))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, name := range files {
		if !tests && strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if imp.Path.Value == strconv.Quote(v.Chain[1]) {
				lines.WriteString("\n\t" + strings.TrimPrefix(fset.Position(imp.Pos()).String(), root+"/"))
			}
		}
	}
	return lines.String()
}
