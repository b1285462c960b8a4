// Package golden compares the results of tests with txtar archives in testdata. The archives are written for readers:
// each begins with an explanation, followed by the inputs and the expected files. It is for tests only.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// Update is true if the actual results are to be written to testdata: go test -update.
var Update = flag.Bool("update", false, "write what is made now to testdata, as what is wanted")

// Run runs a subtest for each archive that matches the pattern; it fails if there is none. The function made returns
// the actual files for an archive. They must equal the expected files of the archive, in the same order. If an actual
// file has the name of an input, it must equal this input. made must not modify the archive.
func Run(t *testing.T, pattern string, made func(t *testing.T, archive *txtar.Archive) []txtar.File) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives are %s: %v", pattern, err)
	}
	for _, file := range files {
		path, err := filepath.Abs(file) // The test may change the working directory.
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, path, archive, made(t, archive))
		})
	}
}

// compare compares the actual files with the archive. With Update, it writes them to the archive instead.
func compare(t *testing.T, path string, archive *txtar.Archive, made []txtar.File) {
	t.Helper()
	now := merge(archive, made)
	if *Update {
		if err := os.WriteFile(path, now, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(txtar.Format(archive)), string(now)); diff != "" {
		name, _, _ := strings.Cut(t.Name(), "/")
		t.Errorf("%s\n-want, +got:\n%s\nIf this is as it should be, go test -run '^%s$' -update, in this folder.", archive.Comment, diff, name)
	}
}

// merge returns the text of the archive with the actual files in place of the expected ones.
func merge(archive *txtar.Archive, made []txtar.File) []byte {
	now := &txtar.Archive{Comment: archive.Comment, Files: Inputs(archive)}
	for _, f := range made {
		if i := slices.IndexFunc(Inputs(archive), func(in txtar.File) bool { return in.Name == f.Name }); i >= 0 {
			now.Files[i] = f
		} else {
			now.Files = append(now.Files, f)
		}
	}
	return txtar.Format(now)
}

// Inputs returns the files of an archive that are not named want, want.* or want/*.
func Inputs(archive *txtar.Archive) []txtar.File {
	return slices.DeleteFunc(slices.Clone(archive.Files), func(f txtar.File) bool {
		return f.Name == "want" || strings.HasPrefix(f.Name, "want.") || strings.HasPrefix(f.Name, "want/")
	})
}

// FS returns a file system with the files.
func FS(files []txtar.File) fstest.MapFS {
	fs := fstest.MapFS{}
	for _, f := range files {
		fs[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return fs
}

// Texts returns the contents of the files by their names.
func Texts(files []txtar.File) map[string]string {
	texts := map[string]string{}
	for _, f := range files {
		texts[f.Name] = string(f.Data)
	}
	return texts
}
