package generate

import (
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFleetFiles: the files of a file system and of a folder have the content of the fleet.
func TestFleetFiles(t *testing.T) {
	f := Fleet{
		"a/b.yaml": {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": Document{"name": "x"}, "n": int64(1)<<53 + 1}, {"apiVersion": "v1", "kind": "Pod", "metadata": Document{"name": "y"}}},
		"c.json":   {{"apiVersion": "v1", "kind": "Secret", "metadata": Document{"name": "z"}, "list": []any{"yes", true, 0.5}}},
	}
	want := map[string]string{
		"a/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n\"n\": 9007199254740993\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: \"y\"\n",
		"c.json": `{
  "apiVersion": "v1",
  "kind": "Secret",
  "list": [
    "yes",
    true,
    0.5
  ],
  "metadata": {
    "name": "z"
  }
}
`,
	}
	if diff := cmp.Diff(want, contents(t, f.FS())); diff != "" {
		t.Errorf("FS(): -want, +got:\n%s", diff)
	}
	dir := t.TempDir()
	if err := f.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, contents(t, os.DirFS(dir))); diff != "" {
		t.Errorf("WriteDir(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(f, f.Clone()); diff != "" {
		t.Errorf("Clone(): -want, +got:\n%s", diff)
	}
}

func contents(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		out[name] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
