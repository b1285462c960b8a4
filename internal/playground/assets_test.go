package playground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAssets(t *testing.T) {
	complete, partial := t.TempDir(), t.TempDir()
	fill(t, complete, binaries...)
	fill(t, complete, "refract")
	fill(t, partial, "refract", "etcd", "kube-apiserver", "kube-controller-manager")
	links := t.TempDir()
	if err := os.Symlink(filepath.Join(complete, "refract"), filepath.Join(links, "refract")); err != nil {
		t.Fatal(err)
	}

	cases := map[string]struct {
		reason string
		env    string
		exe    string
		want   string
		err    []string // Texts that the error must contain.
	}{
		"BesideExecutable": {
			reason: "The command make puts all binaries in one folder.",
			exe:    filepath.Join(complete, "refract"),
			want:   complete,
		},
		"BehindLink": {
			reason: "A link to the executable may be in a folder on the PATH.",
			exe:    filepath.Join(links, "refract"),
			want:   complete,
		},
		"Environment": {
			reason: "The variable has precedence over the folder of the executable.",
			env:    complete,
			exe:    filepath.Join(partial, "refract"),
			want:   complete,
		},
		"Missing": {
			reason: "The error names the missing binaries and the command that builds them.",
			exe:    filepath.Join(partial, "refract"),
			want:   partial,
			err:    []string{"kube-scheduler, kwok", partial, "make controlplane", "KUBEBUILDER_ASSETS"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(assetsEnv, tc.env)
			got, err := Assets(tc.exe)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nAssets(): -want, +got:\n%s", tc.reason, diff)
			}
			if (err != nil) != (tc.err != nil) {
				t.Fatalf("%s\nAssets(): want an error: %t, got %v", tc.reason, tc.err != nil, err)
			}
			for _, part := range tc.err {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s\nAssets(): want %q in the error, got %v", tc.reason, part, err)
				}
			}
		})
	}
}

// fill creates empty files and their folders.
func fill(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
