//go:build unix

package render

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriteDirModes verifies that the umask determines the mode of a file, unless the file is private.
func TestWriteDirModes(t *testing.T) {
	public := File{Path: "a/public", Content: []byte("1")}
	private := File{Path: "a/private", Content: []byte("2"), Private: true}
	cases := map[string]struct {
		reason string
		umask  int
		before map[string]fs.FileMode // Of existing files with the same content.
		want   map[string]fs.FileMode
	}{
		"Usual": {
			reason: "Other users may read files that are not private.", umask: 0o022,
			want: map[string]fs.FileMode{Inventory: 0o644, "a": 0o755, "a/public": 0o644, "a/private": 0o600},
		},
		"Careful": {
			reason: "The umask also restricts files that are not private.", umask: 0o077,
			want: map[string]fs.FileMode{Inventory: 0o600, "a": 0o700, "a/public": 0o600, "a/private": 0o600},
		},
		"Group": {
			reason: "The umask may allow the group to write.", umask: 0o002,
			want: map[string]fs.FileMode{Inventory: 0o664, "a": 0o775, "a/public": 0o664, "a/private": 0o600},
		},
		"There": {
			reason: "An existing file keeps its mode, unless it is private and others may read it.", umask: 0o022,
			before: map[string]fs.FileMode{"a/public": 0o640, "a/private": 0o640},
			want:   map[string]fs.FileMode{Inventory: 0o644, "a": 0o755, "a/public": 0o640, "a/private": 0o600},
		},
		"ReadOnly": {
			reason: "A private file may have an even stricter mode.", umask: 0o022,
			before: map[string]fs.FileMode{"a/private": 0o400},
			want:   map[string]fs.FileMode{Inventory: 0o644, "a": 0o755, "a/public": 0o644, "a/private": 0o400},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			defer syscall.Umask(syscall.Umask(tc.umask))
			dir := t.TempDir()
			for _, f := range []File{public, private} {
				mode, ok := tc.before[f.Path]
				if !ok {
					continue
				}
				at := filepath.Join(dir, f.Path)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, f.Content, mode); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(at, mode); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := WriteDir(dir, owner, []File{public, private}, true); err != nil {
				t.Fatal(err)
			}
			got := map[string]fs.FileMode{}
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || path == dir {
					return err
				}
				info, err := d.Info()
				if err == nil {
					got[relative(t, dir, path)] = info.Mode().Perm()
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nWriteDir(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
