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
	root   = "../.." // Root of the module, relative to this folder.
)

// layers has the layers: cmd → cli → controller → support → kit → core → api. Each product (fleet, injection,
// conversion) has controllers, support packages, and engines in the core. The examples may import only packages with a
// stable interface: the kit, the core and api.
var layers = []Layer{
	{
		Name:     "test",
		Packages: []string{"refract.dev/test/..."},
		Imports:  []string{"cli", "controller", "support", "kit", "example", "files", "core", "api", "golden"},
	},
	{
		Name:     "show", // Runs an example on local control planes.
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
			"refract.dev/fleet/propagation/...",
			"refract.dev/fleet/inventory/...",
			"refract.dev/injection/injector/...",
			"refract.dev/injection/restart/...",
			"refract.dev/conversion/converter/...",
			"refract.dev/conversion/migration/...",
		},
		Imports: []string{"support", "kit", "core", "api", "golden"},
		Apart:   true,
	},
	{
		Name:     "golden", // Only tests may import these packages.
		Packages: []string{"refract.dev/internal/golden", "refract.dev/internal/fuzzed", "refract.dev/internal/poll"},
	},
	{
		Name:     "kit", // Public packages, also for other servers. They are not pure.
		Packages: []string{"refract.dev/kit/..."},
		Imports:  []string{"core", "api", "golden"},
	},
	{
		Name:     "files", // Embedded files without code.
		Packages: []string{"refract.dev/config", "refract.dev/examples"},
	},
	{
		Name:     "core",
		Packages: core,
		Imports:  []string{"api", "golden"},
	},
	{
		Name: "support",
		Packages: []string{ // Packages that no other layer contains.
			"refract.dev/internal/...", "refract.dev/fleet/...", "refract.dev/injection/...", "refract.dev/conversion/...",
		},
		Imports: []string{"kit", "files", "core", "api", "golden"},
	},
	{
		Name:     "api",
		Packages: []string{"refract.dev/api/..."},
	},
	{
		Name:     "generate",
		Packages: []string{"refract.dev"}, // Contains only generate.go.
	},
}

// core has the engines. The depguard rules of .golangci.yml name them, too.
var core = []string{
	"refract.dev/tree/...",
	"refract.dev/fleet/policy/match/...",
	"refract.dev/fleet/policy/podtemplate/...",
	"refract.dev/fleet/policy/reference/...",
	"refract.dev/fleet/policy/local/...",
	"refract.dev/fleet/policy/override/...",
	"refract.dev/fleet/policy/placement/...",
	"refract.dev/fleet/policy/rollout/...",
	"refract.dev/fleet/variant/...",
	"refract.dev/fleet/decide/...",
	"refract.dev/injection/inject/...",
	"refract.dev/conversion/convert/...",
	"refract.dev/conversion/expression/...",
	"refract.dev/conversion/policy/...",
	"refract.dev/conversion/suggest/...",
	"refract.dev/conversion/verify/...",
	"refract.dev/conversion/structural/...",
}

// waitless is the core without conversion/structural and conversion/verify. conversion/structural calls functions of
// the API server that require a context, although they do not wait. conversion/verify searches for violations until its
// context ends.
var waitless = slices.DeleteFunc(slices.Clone(core), func(pattern string) bool {
	return pattern == "refract.dev/conversion/structural/..." || pattern == "refract.dev/conversion/verify/..."
})

// timeless is the core without fleet/policy/rollout, which compares times but gets them as arguments: see
// [TestNoClock].
var timeless = slices.DeleteFunc(slices.Clone(core), func(pattern string) bool { return pattern == "refract.dev/fleet/policy/rollout/..." })

// bans define the purity of the core: its input and output are only bytes and objects.
var bans = []Ban{
	{
		From: core,
		To:   []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."},
		// The API server's package that validates CustomResourceDefinitions imports a package that can call webhooks.
		Through: []string{"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"},
		Why:     "the core talks to no API server, not even through a library",
	},
	{
		From: core,
		To:   []string{"k8s.io/apiserver/...", "k8s.io/component-base/..."},
		Through: []string{
			// conversion/structural and conversion/convert must treat custom resources and CEL exactly as an API server
			// does, so they use the API server's own code.
			"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/...",
			"k8s.io/apiextensions-apiserver/pkg/apiserver/validation/...",
			"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/...",
			"k8s.io/apiserver/pkg/apis/cel", // Cost limits.
			"k8s.io/apiserver/pkg/cel/...",
		},
		Why: "of an API server the core needs the schemas and the CEL library only",
	},
	{
		From:   core,
		Direct: true, // The library apimachinery imports most of these packages itself.
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
	{
		From: []string{"refract.dev/cmd/...", "refract.dev/kit/...", "refract.dev/examples/..."},
		To:   []string{"refract.dev/internal/poll"}, // test/harness imports it.
		Why:  "it is for tests",
	},
}

// names has the patterns of forbidden names of packages and folders.
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

// positions returns one line for each file that contains the first import of the chain. With tests, it includes test
// files.
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
