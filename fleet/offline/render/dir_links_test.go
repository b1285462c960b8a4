package render

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWriteDirLinks verifies that WriteDir follows no symbolic link out of the folder.
func TestWriteDirLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making a symbolic link takes a privilege")
	}
	const theirs, ours = "theirs", "ours"
	kept := func(names string) string { return keptBy + owner + "\n" + names }
	cases := map[string]struct {
		reason string
		links  map[string]string // By path in the folder: the target of the link. "OUTSIDE" is the folder next to it.
		before string            // The inventory.
		files  []File
		link   string            // The link that the error names; empty if the call succeeds.
		want   map[string]string // The content of the folder afterwards, with links and without the inventory.
	}{
		"Parent": {
			reason: "No file is written to a folder behind a link.",
			links:  map[string]string{"a": "OUTSIDE"}, files: []File{{Path: "a/new.yaml", Content: []byte(ours)}},
			link: "a", want: map[string]string{"a": "→ OUTSIDE"},
		},
		"RelativeParent": {
			reason: "The same applies to a relative link.",
			links:  map[string]string{"a": "../outside"}, files: []File{{Path: "a/new.yaml", Content: []byte(ours)}},
			link: "a", want: map[string]string{"a": "→ ../outside"},
		},
		"DeepParent": {
			reason: "No folder is created behind a link.",
			links:  map[string]string{"a/b": "OUTSIDE"}, files: []File{{Path: "a/b/c/new.yaml", Content: []byte(ours)}},
			link: "a/b", want: map[string]string{"a/b": "→ OUTSIDE"},
		},
		"Chain": {
			reason: "The error names the link in the path of the file, not a later one.",
			links:  map[string]string{"a": "b", "b": "OUTSIDE"}, files: []File{{Path: "a/new.yaml", Content: []byte(ours)}},
			link: "a", want: map[string]string{"a": "→ b", "b": "→ OUTSIDE"},
		},
		"File": {
			reason: "No file is read through a link.",
			links:  map[string]string{"new.yaml": "OUTSIDE/file"}, files: []File{{Path: "new.yaml", Content: []byte(theirs)}},
			link: "new.yaml", want: map[string]string{"new.yaml": "→ OUTSIDE/file"},
		},
		"PrivateFile": {
			reason: "No file mode is changed through a link.",
			links:  map[string]string{"new.yaml": "OUTSIDE/file"}, files: []File{{Path: "new.yaml", Content: []byte(theirs), Private: true}},
			link: "new.yaml", want: map[string]string{"new.yaml": "→ OUTSIDE/file"},
		},
		"Nothing": {
			reason: "A link to a missing file creates no file outside of the folder.",
			links:  map[string]string{"new.yaml": "OUTSIDE/new"}, files: []File{{Path: "new.yaml", Content: []byte(ours)}},
			link: "new.yaml", want: map[string]string{"new.yaml": "→ OUTSIDE/new"},
		},
		"Inventory": {
			reason: "An inventory is not read through a link.",
			links:  map[string]string{Inventory: "OUTSIDE/inventory"},
			link:   Inventory, want: map[string]string{},
		},
		"PruneThrough": {
			reason: "A file behind a link is not one that WriteDir has written.",
			links:  map[string]string{"a": "OUTSIDE"}, before: kept("a/file\n"),
			link: "a", want: map[string]string{"a": "→ OUTSIDE"},
		},
		"PruneFolder": {
			reason: "An empty folder behind a link is not removed.",
			links:  map[string]string{"a": "OUTSIDE"}, before: kept("a/empty/gone\n"),
			link: "a", want: map[string]string{"a": "→ OUTSIDE"},
		},
		"PruneLink": {
			reason: "A link in place of a written file is removed, but not its target.",
			links:  map[string]string{"a/file": "OUTSIDE/file"}, before: kept("a/file\n"), want: map[string]string{},
		},
		"Inside": {
			reason: "A link to a place inside the folder is followed.",
			links:  map[string]string{"a": "b/c"}, files: []File{{Path: "b/c/old.yaml", Content: []byte(ours)}, {Path: "a/new.yaml", Content: []byte(ours)}},
			want: map[string]string{"a": "→ b/c", "b/c/old.yaml": ours, "b/c/new.yaml": ours},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "dir"), filepath.Join(top, "outside")
			put(t, filepath.Join(outside, "file"), theirs)
			put(t, filepath.Join(outside, "inventory"), kept("file\n"))
			mkdir(t, filepath.Join(outside, "empty"))
			before := contents(t, outside)
			if tc.before != "" {
				put(t, filepath.Join(dir, Inventory), tc.before)
			}
			for at, target := range tc.links {
				at = filepath.Join(dir, at)
				mkdir(t, filepath.Dir(at))
				if err := os.Symlink(strings.Replace(target, "OUTSIDE", outside, 1), at); err != nil {
					t.Fatal(err)
				}
			}
			_, err := WriteDir(dir, owner, tc.files, true)
			var link string
			if at, ok := errors.AsType[*LinkError](err); ok {
				link = at.Link
			} else if err != nil {
				t.Fatalf("%s\nWriteDir(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.link, link); diff != "" {
				t.Errorf("%s\nWriteDir(): error %v: link: -want, +got:\n%s", tc.reason, err, diff)
			}
			if diff := cmp.Diff(before, contents(t, outside)); diff != "" {
				t.Errorf("%s\nWriteDir() outside: -before, +after:\n%s", tc.reason, diff)
			}
			got := map[string]string{}
			for at, is := range contents(t, dir) {
				if at != Inventory {
					_, is, _ = strings.Cut(is, " ") // The mode depends on the umask.
					got[at] = strings.Replace(is, outside, "OUTSIDE", 1)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nWriteDir() inside: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, at, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(at))
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// contents returns the mode and content of every file below a folder, the target of every link, and the empty folders.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var is string
		switch {
		case d.IsDir():
			entries, err := os.ReadDir(at)
			if err != nil || len(entries) > 0 {
				return err
			}
			is = "an empty folder"
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			is = "→ " + target
		default:
			content, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			is = string(content)
		}
		out[relative(t, dir, at)] = fmt.Sprintf("%v %s", info.Mode(), is)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
