package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocsKeepsToItself: the command removes only its own pages from the folder.
func TestDocsKeepsToItself(t *testing.T) {
	cases := map[string]struct {
		flag        string
		stays, goes []string
		page        string // A page that must exist.
	}{
		"Markdown": {flag: "--markdown", stays: []string{"refraction-guide.md", "refract-guide.md", "refract.1", "README.md"}, goes: []string{"refract_gone.md"}, page: "refract_render.md"},
		"Man":      {flag: "--man", stays: []string{"refraction.1", "refract_guide.1", "refract.md"}, goes: []string{"refract-gone.1"}, page: "refract-render.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "[docs]") // This name is also a valid glob pattern, but it must be taken literally.
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range slices.Concat(tc.stays, tc.goes) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if code := Main(t.Context(), []string{"refract", "docs", tc.flag, dir}, nil, t.Output(), t.Output()); code != exitOK {
				t.Fatalf("refract docs ended with %d", code)
			}
			want := map[string]bool{tc.page: true}
			for _, name := range tc.stays {
				want[name] = true
			}
			for _, name := range tc.goes {
				want[name] = false
			}
			got := map[string]bool{}
			for name := range want {
				_, err := os.Stat(filepath.Join(dir, name))
				got[name] = err == nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("files: -want, +got:\n%s", diff)
			}
			for _, name := range tc.stays {
				if text, err := os.ReadFile(filepath.Join(dir, name)); string(text) != "mine" || err != nil {
					t.Errorf("%s was written to: %q, %v", name, text, err)
				}
			}
		})
	}
}
