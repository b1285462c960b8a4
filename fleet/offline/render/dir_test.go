package render

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// owner is the command that manages the folder, for tests where its name does not matter.
const owner = "this command"

func TestWriteDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	file := func(path, content string) File { return File{Path: path, Content: []byte(content)} }
	steps := []struct {
		reason string
		files  []File
		keep   bool // Do not prune.
		want   Written
		there  []string
	}{
		{
			reason: "Missing folders are created, and all files are written.", files: []File{file("a/b/c.yaml", "1"), file("a/d.yaml", "2")},
			want:  Written{Written: []string{"a/b/c.yaml", "a/d.yaml"}},
			there: []string{"a/b/c.yaml=1", "a/d.yaml=2"},
		},
		{
			reason: "An unchanged file is not touched.", files: []File{file("a/b/c.yaml", "1"), file("a/d.yaml", "3")},
			want:  Written{Written: []string{"a/d.yaml"}, Unchanged: 1},
			there: []string{"a/b/c.yaml=1", "a/d.yaml=3"},
		},
		{
			reason: "Without prune, the files of earlier calls stay, and are reported as stale.", files: []File{file("e.yaml", "4")}, keep: true,
			want:  Written{Written: []string{"e.yaml"}, Stale: []string{"a/b/c.yaml", "a/d.yaml"}},
			there: []string{"a/b/c.yaml=1", "a/d.yaml=3", "e.yaml=4"},
		},
		{
			reason: "Files that are no longer rendered are removed, and so are empty folders.", files: []File{file("e.yaml", "4")},
			want:  Written{Unchanged: 1, Removed: []string{"a/b/c.yaml", "a/d.yaml"}},
			there: []string{"e.yaml=4"},
		},
	}
	long := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, s := range steps {
		done, err := WriteDir(dir, owner, s.files, !s.keep)
		if err != nil {
			t.Fatalf("%s\nWriteDir(): %v", s.reason, err)
		}
		if diff := cmp.Diff(s.want, *done); diff != "" {
			t.Errorf("%s\nWriteDir(): -want, +got:\n%s", s.reason, diff)
		}
		var got []string
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == Inventory {
				return err
			}
			content, err := os.ReadFile(path)
			name := relative(t, dir, path)
			got = append(got, name+"="+string(content))
			info, statErr := d.Info()
			if statErr != nil {
				return statErr
			}
			if touched := !info.ModTime().Equal(long); touched != slices.Contains(s.want.Written, name) {
				t.Errorf("%s\n%s: touched: %t", s.reason, name, touched)
			}
			return errors.Join(err, os.Chtimes(path, long, long))
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.there, got); diff != "" {
			t.Errorf("%s\nWriteDir(): -want, +got:\n%s", s.reason, diff)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WriteDir() left an empty folder: %v", err)
	}
	if _, err := WriteDir(filepath.Join(dir, "e.yaml"), owner, []File{file("a", "")}, true); err == nil {
		t.Error("WriteDir() to a file that is no folder succeeded")
	}
}

func TestWriteDirKeepsToItself(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"mine.yaml": "mine", Inventory: keptBy + owner + "\n../mine.yaml\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := WriteDir(dir, owner, nil, true); err == nil || errors.As(err, new(*KeptError)) {
		t.Error("WriteDir() accepted an inventory with a file outside of the folder")
	}
	if err := os.Remove(filepath.Join(dir, Inventory)); err != nil {
		t.Fatal(err)
	}
	done, err := WriteDir(dir, owner, nil, true)
	if diff := cmp.Diff(&Written{}, done); diff != "" || err != nil {
		t.Errorf("WriteDir() in a folder of another command: %v, -want, +got:\n%s", err, diff)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine.yaml")); err != nil {
		t.Errorf("WriteDir() removed what it had not written: %v", err)
	}
}

// TestWriteDirOfAnother verifies that a folder which another command manages stays unchanged.
func TestWriteDirOfAnother(t *testing.T) {
	cases := map[string]struct {
		reason    string
		inventory string
		want      *KeptError // Without the path.
	}{
		"None":    {reason: "A command can manage a folder that no command manages yet."},
		"Same":    {reason: "A command keeps managing its own folder.", inventory: keptBy + owner + "\na.yaml\n"},
		"Windows": {reason: "Git may have changed the line endings.", inventory: keptBy + owner + "\r\na.yaml\r\n"},
		"Another": {reason: "Files of another command are not removed.", inventory: keptBy + "another\na.yaml\n", want: &KeptError{Owner: "another"}},
		"Nobody":  {reason: "Files in an inventory without a command are not removed.", inventory: "a.yaml\n", want: &KeptError{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			before := map[string]string{"a.yaml": "a"}
			if tc.inventory != "" {
				before[Inventory] = tc.inventory
			}
			for name, content := range before {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := WriteDir(dir, owner, []File{{Path: "b.yaml"}}, true)
			var got *KeptError
			if errors.As(err, &got) != (err != nil) {
				t.Fatalf("%s\nWriteDir(): %v", tc.reason, err)
			}
			if tc.want != nil {
				tc.want.Inventory = filepath.Join(dir, Inventory)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nWriteDir() error: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.want == nil {
				return
			}
			after := map[string]string{}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				content, err := os.ReadFile(filepath.Join(dir, e.Name()))
				if err != nil {
					t.Fatal(err)
				}
				after[e.Name()] = string(content)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s\nWriteDir(): -before, +after:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestFileNames verifies that names which are too long for a file are shortened, and stay distinct.
func TestFileNames(t *testing.T) {
	long := strings.Repeat("a", 249)
	cases := map[string]struct {
		reason, name, suffix, want string
	}{
		"Short":     {reason: "A short name is not changed.", name: "a", suffix: ".yaml", want: "a.yaml"},
		"Longest":   {reason: "A name of the maximum length is not changed.", name: long + "b", suffix: ".yaml", want: long + "b.yaml"},
		"TooLong":   {reason: "A longer name is cut and ends in a hash.", name: long + "bc", suffix: ".yaml", want: long[:233] + "~e5a3058ab632d9cd.yaml"},
		"Another":   {reason: "Another name gets another hash.", name: long + "bd", suffix: ".yaml", want: long[:233] + "~e8d1b09a43a4902d.yaml"},
		"NoSuffix":  {reason: "A folder needs no suffix, so its name can be longer.", name: long + "abcdef", want: long + "abcdef"},
		"Escaped":   {reason: "The limit applies to the escaped name.", name: strings.Repeat(":", 84), suffix: ".yaml", want: strings.Repeat("%3A", 77) + "%3~330ffa1e10cb06ee.yaml"},
		"NotHashed": {reason: "No other name gives the file name of a hashed one.", name: "a~fd", suffix: ".yaml", want: "a%7Efd.yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := fileName(tc.name, tc.suffix)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nfileName(): -want, +got:\n%s", tc.reason, diff)
			}
			if len(got) > longestName {
				t.Errorf("%s\nfileName(): %d bytes", tc.reason, len(got))
			}
		})
	}
}

// TestFilesOfSecrets verifies that the files of Secrets are private.
func TestFilesOfSecrets(t *testing.T) {
	var objects []map[string]any
	for _, o := range [][2]string{{"v1", "Secret"}, {"v1", "ConfigMap"}, {"example.com/v1", "Secret"}} {
		objects = append(objects, map[string]any{"apiVersion": o[0], "kind": o[1], "metadata": map[string]any{"name": "a"}})
	}
	files, err := FilesOf(objects)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range files {
		got[f.Path] = f.Private
	}
	want := map[string]bool{"_cluster/secret-a.yaml": true, "_cluster/configmap-a.yaml": false, "_cluster/secret.example.com-a.yaml": false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("FilesOf(): private: -want, +got:\n%s", diff)
	}
}

// TestLongNames verifies that every name which an API server accepts gives a valid file name.
func TestLongNames(t *testing.T) {
	r := &Result{}
	for _, c := range []string{"c", "d"} {
		cluster := Cluster{Name: strings.Repeat(c, 253)}
		for _, o := range []string{"x", "y"} {
			cluster.Objects = append(cluster.Objects, map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": strings.Repeat("x", 252) + o}})
		}
		r.Clusters = append(r.Clusters, cluster)
	}
	files, err := Files(r)
	if err != nil {
		t.Fatal(err)
	}
	done, err := WriteDir(t.TempDir(), owner, files, true)
	if err != nil || len(done.Written) != 4 {
		t.Errorf("WriteDir(): %v, error %v, want four files written", done, err)
	}
}

func relative(t *testing.T, dir, path string) string {
	t.Helper()
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(rel)
}
