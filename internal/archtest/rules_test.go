package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fake returns a small module that follows all rules of fakeLayers and fakeBans.
func fake() Graph {
	return Graph{
		"m/cmd/m":           {Name: "main", Imports: []string{"m/internal/cli"}},
		"m/internal/cli":    {Name: "cli", Imports: []string{"m/internal/east", "m/internal/west", "m/tree", "os"}},
		"m/internal/east":   {Name: "east", Imports: []string{"m/tree", "client"}},
		"m/internal/east/x": {Name: "x", Imports: []string{"m/internal/east"}},
		"m/internal/west":   {Name: "west", Imports: []string{"m/api/v1"}},
		"m/tree":            {Name: "tree", Imports: []string{"m/api/v1", "yaml"}, XTestImports: []string{"m/tree", "os"}},
		"m/api/v1":          {Name: "v1", Imports: []string{"yaml"}},
		"client":            {Name: "client", Imports: []string{"net/http"}},
		"yaml":              {Name: "yaml", Imports: []string{"os"}},
	}
}

var (
	fakeLayers = []Layer{
		{Name: "cmd", Packages: []string{"m/cmd/..."}, Imports: []string{"cli"}},
		{Name: "cli", Packages: []string{"m/internal/cli"}, Imports: []string{"service", "core", "api"}},
		{Name: "service", Packages: []string{"m/internal/east/...", "m/internal/west/..."}, Imports: []string{"core", "api"}, Apart: true},
		{Name: "core", Packages: []string{"m/tree/..."}, Imports: []string{"api"}},
		{Name: "api", Packages: []string{"m/api/..."}},
	}
	fakeBans = []Ban{
		{From: []string{"m/tree/..."}, To: []string{"client/..."}, Through: []string{"trusted"}, Why: "no client"},
		{From: []string{"m/tree/..."}, To: []string{"os/...", "net"}, Direct: true, Why: "no files"},
	}
	fakeNames = []string{"*util", "common"}
)

func TestRulesCanFail(t *testing.T) {
	cases := map[string]struct {
		reason string
		add    Graph // Packages that replace packages of the fake module.
		want   []string
	}{
		"Kept": {
			reason: "A module that follows the rules has no violation. This shows that the cases below find their own.",
		},
		"Upwards": {
			reason: "An upward import is found in any package of the layer.",
			add:    Graph{"m/tree/sub": {Name: "sub", Imports: []string{"m/internal/west"}}},
			want:   []string{"m/tree/sub → m/internal/west: core may import api, and this is service"},
		},
		"OnTheGround": {
			reason: "The lowest layer may import no layer, and the message says so.",
			add:    Graph{"m/api/v1": {Name: "v1", Imports: []string{"m/tree"}}},
			want:   []string{"m/api/v1 → m/tree: api imports no other layer, and this is core"},
		},
		"Skipping": {
			reason: "An import may skip layers only if the layer permits it: main imports only the command line.",
			add:    Graph{"m/cmd/m": {Name: "main", Imports: []string{"m/tree"}}},
			want:   []string{"m/cmd/m → m/tree: cmd may import cli, and this is core"},
		},
		"Sideways": {
			reason: "Packages of a layer with Apart must not import each other, in either direction.",
			add:    Graph{"m/internal/west": {Name: "west", Imports: []string{"m/internal/east/x"}}},
			want:   []string{"m/internal/west → m/internal/east/x: service packages do not import each other"},
		},
		"InTests": {
			reason: "Tests follow the layers, too: a test that needs an upper layer belongs there.",
			add:    Graph{"m/tree": {Name: "tree", XTestImports: []string{"m/internal/west"}}},
			want:   []string{"m/tree → m/internal/west: core may import api, and this is service"},
		},
		"OnNoLayer": {
			reason: "A new folder needs a layer, because otherwise no rule applies to it.",
			add:    Graph{"m/attic": {Name: "attic"}},
			want:   []string{"m/attic: the package is on no layer"},
		},
		"Client": {
			reason: "A client in an indirect dependency is found, with the chain that leads to it.",
			add: Graph{
				"yaml": {Name: "yaml", Imports: []string{"far", "near"}},
				"far":  {Name: "far", Imports: []string{"near"}},
				"near": {Name: "near", Imports: []string{"client/sub"}},
			},
			want: []string{
				"m/tree → yaml → near → client/sub: no client",
			},
		},
		"Trusted": {
			reason: "A dependency is allowed through a trusted package only, and not by another chain.",
			add: Graph{
				"m/tree":     {Name: "tree", Imports: []string{"trusted"}},
				"m/tree/sub": {Name: "sub", Imports: []string{"other", "trusted"}},
				"trusted":    {Name: "trusted", Imports: []string{"client"}},
				"other":      {Name: "other", Imports: []string{"client"}},
			},
			want: []string{"m/tree/sub → other → client: no client"},
		},
		"Direct": {
			reason: "A direct ban finds a direct import of the banned package or of one below it, but not of one with a similar prefix.",
			add:    Graph{"m/tree": {Name: "tree", Imports: []string{"net/url", "os/exec", "osmosis"}}},
			want:   []string{"m/tree → os/exec: no files"},
		},
		"Circle": {
			reason: "A cycle of imports does not keep the search from ending.",
			add: Graph{
				"m/tree": {Name: "tree", Imports: []string{"yaml"}},
				"yaml":   {Name: "yaml", Imports: []string{"m/tree", "yaml"}},
			},
		},
		"Names": {
			reason: "The name of a package and of its folder is checked, as a whole and by its suffix.",
			add: Graph{
				"m/api/stringutil": {Name: "stringutil"},
				"m/api/common/v1":  {Name: "v1"},
				"m/api/x":          {Name: "common"},
				"m/api/utility":    {Name: "uncommon"},
			},
			want: []string{
				`m/api/common/v1: the name "common" does not say what the package does`,
				`m/api/stringutil: the name "stringutil" does not say what the package does`,
				`m/api/x: the name "common" does not say what the package does`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := fake()
			maps.Copy(g, tc.add)

			var got []string
			for _, check := range [][]Violation{
				CheckLayers(g, "m", fakeLayers),
				CheckBans(g, fakeBans),
				CheckNames(g, "m", fakeNames),
			} {
				for _, v := range check {
					got = append(got, v.String())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	got, err := decode(strings.NewReader(`
		{"ImportPath": "m/tree", "Name": "tree", "Imports": ["os"]}
		{"ImportPath": "os", "Name": "os"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Graph{
		"m/tree": {ImportPath: "m/tree", Name: "tree", Imports: []string{"os"}},
		"os":     {ImportPath: "os", Name: "os"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decode(): -want, +got:\n%s", diff)
	}

	if g, err := decode(strings.NewReader(`{"ImportPath": `)); err == nil {
		t.Errorf("decode() of half an object: got %v, want an error", g)
	}
}

func TestLoadTellsWhatGoListSaid(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n",
		"m.go":   "package m\n\nimport _ \"m/nowhere\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "m/nowhere") {
		t.Errorf("Load() of a module with a dead import: got %v, want what go list says of m/nowhere", err)
	}
}
