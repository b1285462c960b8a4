package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"refract.dev/internal/offline/manifest/nearest"
)

// source is a file to be read.
type source struct {
	name string
	// asked is whether it was asked for by itself, and not found in a folder: then
	// it must hold something.
	asked bool
	// complete is whether the file was found in a folder in which a file without a byte is one that could not be written.
	complete bool
	// truncated is whether its last line has no end, once it was read.
	truncated bool
	read      func() ([]byte, error)
}

// extensions are those of files that are read when they are found in a folder.
var extensions = []string{".yaml", ".yml", ".json"}

// find finds the files of these paths.
func find(paths []string, stdin io.Reader) ([]source, []*Problem) {
	var sources []source
	var problems []*Problem
	for _, p := range paths {
		if p == Stdin {
			sources = append(sources, source{name: "stdin", asked: true, read: func() ([]byte, error) { return io.ReadAll(stdin) }})
			continue
		}
		info, err := os.Stat(p)
		switch {
		case err != nil:
			problems = append(problems, missing(p, err))
		case info.IsDir():
			before := len(sources)
			sources, problems = findIn(os.DirFS(p), p, sources, problems)
			for i := range sources[before:] {
				sources[before+i].complete = true
			}
		default:
			sources = append(sources, source{name: filepath.Clean(p), asked: true, read: func() ([]byte, error) { return os.ReadFile(p) }})
		}
	}
	return once(sources), problems
}

// findIn finds the files in a folder, whose name is dir.
func findIn(fsys fs.FS, dir string, sources []source, problems []*Problem) ([]source, []*Problem) {
	found, failed := len(sources), len(problems)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		at := filepath.Join(dir, filepath.FromSlash(name))
		switch {
		case err != nil:
			problems = append(problems, &Problem{Place: Place{File: at}, Fact: fmt.Sprintf("cannot be read: %v", reason(err))})
		case strings.HasPrefix(d.Name(), ".") && name != ".":
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && slices.Contains(extensions, path.Ext(name)):
			sources = append(sources, source{name: at, read: func() ([]byte, error) { return fs.ReadFile(fsys, name) }})
		}
		return nil
	})
	if err == nil && len(sources) == found && len(problems) == failed {
		problems = append(problems, &Problem{
			Place: Place{File: filepath.Clean(dir)},
			Fact:  "no manifest is in this folder (*.yaml, *.yml or *.json)",
		})
	}
	return sources, problems
}

// once drops what is named a second time.
func once(sources []source) []source {
	seen := make(map[string]bool, len(sources))
	return slices.DeleteFunc(sources, func(s source) bool {
		again := seen[s.name]
		seen[s.name] = true
		return again
	})
}

// missing is the problem of a path that cannot be looked at.
func missing(p string, err error) *Problem {
	if !errors.Is(err, fs.ErrNotExist) {
		return &Problem{Place: Place{File: p}, Fact: fmt.Sprintf("cannot be read: %v", reason(err))}
	}
	problem := &Problem{Place: Place{File: p}, Fact: "does not exist"}
	if strings.Contains(p, "://") {
		problem.Fact, problem.Hint = "is not a file or folder", "to read from a URL, fetch it and pipe it in with -f -"
		return problem
	}
	switch {
	case strings.ContainsAny(p, "*?["):
		problem.Hint = "patterns are for the shell: leave out the quotes, or name the folder"
		return problem
	case strings.Contains(p, ","):
		problem.Hint = "give the flag once for each: -f " + strings.Join(strings.Split(p, ","), " -f ")
		return problem
	}
	dir, base := filepath.Split(p)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return problem // The folder does not exist either.
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if near := nearest.To(base, names); near != "" {
		problem.Hint = fmt.Sprintf("did you mean %s?", filepath.Join(dir, near))
	}
	return problem
}
