package policytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

const small = `apiVersion: refract.dev/v1alpha1
kind: PolicyTest
metadata: {name: x}
spec:
  inputs: [in, /abs]
  cases:
  - {name: a, object: a/b, cluster: c, expect: {placed: true}}
`

func TestLoadPaths(t *testing.T) {
	cases := map[string]struct {
		reason   string
		paths    []string
		files    []string // The files of the returned tests.
		inputs   []string // The inputs of the first test.
		problems string
	}{
		"Folder": {
			reason: "All files in the folder and its subfolders are read, except hidden files and files with other extensions.",
			paths:  []string{"d"},
			files:  []string{"d/a.yaml", "d/e/b.yml"},
			inputs: []string{"d/in", "/abs"},
		},
		"Twice": {
			reason: "A file is read once, and its paths are relative to its folder.",
			paths:  []string{"d/e/b.yml", "d/e", "./d/e/b.yml"},
			files:  []string{"d/e/b.yml"},
			inputs: []string{"d/e/in", "/abs"},
		},
		"Named": {
			reason: "A named file is read whatever its extension.",
			paths:  []string{"d/a.txt", "d/.hidden.yaml"},
			files:  []string{"d/a.txt", "d/.hidden.yaml"},
			inputs: []string{"d/in", "/abs"},
		},
		"Missing": {
			reason:   "A missing path is a problem, and the others are read.",
			paths:    []string{"nowhere", "d/e"},
			files:    []string{"d/e/b.yml"},
			inputs:   []string{"d/e/in", "/abs"},
			problems: "nowhere: does not exist\n",
		},
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"d/a.yaml", "d/e/b.yml", "d/a.txt", "d/.hidden.yaml", "d/.git/a.yaml", "d/a.json"} {
		write(t, name, []byte(small))
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tests, problems := Load(tc.paths)
			var files []string
			for i := range tests {
				files = append(files, tests[i].Place.File)
			}
			if diff := cmp.Diff(tc.files, files); diff != "" {
				t.Errorf("%s\nfiles: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.inputs, tests[0].Inputs); diff != "" {
				t.Errorf("%s\ninputs: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.problems, listed(problems)); diff != "" {
				t.Errorf("%s\nproblems: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUpdateLink verifies that an update follows a link, keeps the mode of the file, and leaves no temporary file.
func TestUpdateLink(t *testing.T) {
	t.Chdir(t.TempDir())
	archive, err := txtar.ParseFile(filepath.Join(root(t), "testdata", "no-clusters.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, "tests/all.yaml", archive.Files[0].Data)
	write(t, "real/web.yaml", []byte(`apiVersion: refract.dev/v1alpha1
kind: PolicyTest
metadata: {name: link}
spec:
  cases:
  - name: a
    object: configmap/shop/web
    cluster: {name: a, labels: {region: eu}}
    expect: {fields: {/metadata/labels/region: us}}
`))
	if err := os.Chmod("real/web.yaml", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../real/web.yaml", "tests/web.yaml"); err != nil {
		t.Fatal(err)
	}
	result, problems := runAll(t)
	if len(problems) > 0 {
		t.Fatal(listed(problems))
	}
	if _, _, err := Update(result); err != nil {
		t.Fatal(err)
	}
	if after, _ := runAll(t); after == nil || !after.Passed() {
		t.Error("the update did not reach the file")
	}
	for name, want := range map[string]os.FileMode{"real/web.yaml": 0o600, "tests/web.yaml": os.ModeSymlink | 0o777} {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s: mode %v, want %v", name, info.Mode(), want)
		}
	}
	for _, dir := range []string{"real", "tests"} {
		if left, _ := filepath.Glob(dir + "/.refract-*"); len(left) > 0 {
			t.Errorf("left behind: %s", left)
		}
	}
}

// TestUpdateCRLF verifies that an update keeps the line endings of a file, also in added lines, and that a second
// update changes nothing.
func TestUpdateCRLF(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join(root(t), "testdata", "no-clusters.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ reason, before, after string }{
		"BlockBelowKey": {
			reason: "A block that replaces a value on one line adds lines.",
			before: "/metadata/labels: {}\n",
			after:  "/metadata/labels:\n          region: eu\n",
		},
		"BlockText": {
			reason: "The end of the last line of a block text belongs to the file.",
			before: "/metadata/labels/region: |\n          x\n          y\n        /metadata/name: web\n",
			after:  "/metadata/labels/region: eu\n        /metadata/name: web\n",
		},
		"Scalar": {
			reason: "The rest of the line after a value stays.",
			before: "/metadata/labels/region: us # Why.\n",
			after:  "/metadata/labels/region: eu # Why.\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "tests/all.yaml", archive.Files[0].Data)
			text := func(fields string) string {
				return strings.ReplaceAll(`apiVersion: refract.dev/v1alpha1
kind: PolicyTest
metadata: {name: crlf}
spec:
  cases:
  - name: a
    object: configmap/shop/web
    cluster: {name: a, labels: {region: eu}}
    expect:
      fields:
        `+fields, "\n", "\r\n")
			}
			write(t, "tests/web.yaml", []byte(text(tc.before)))
			result, problems := runAll(t)
			if len(problems) > 0 {
				t.Fatal(listed(problems))
			}
			if _, refused, err := Update(result); err != nil || len(refused) > 0 {
				t.Fatalf("%s\nUpdate(): refused %v, error %v", tc.reason, refused, err)
			}
			if diff := cmp.Diff(text(tc.after), read(t, "tests/web.yaml")); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			checkSettled(t, result)
		})
	}
}

// start is the folder of this package; tests change the working directory.
var start, errStart = os.Getwd()

func root(t *testing.T) string {
	t.Helper()
	if errStart != nil {
		t.Fatal(errStart)
	}
	return start
}
