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

	"refract.dev/fleet/offline/manifest/nearest"
)

// source is a file to read.
type source struct {
	name string
	// asked reports whether the user named the file itself, and not only a folder above it. Then the file must contain
	// a manifest.
	asked bool
	// complete reports whether the file was found in a folder of the user. There, an empty file indicates a failed
	// write.
	complete bool
	// truncated reports whether the file has no newline at the end. It is set after reading.
	truncated bool
	read      func() ([]byte, error)
}

// extensions are the extensions of files that are read in folders.
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

// findIn finds the files in the folder dir.
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
			Fact:  "this folder has no manifest (*.yaml, *.yml or *.json)",
		})
	}
	return sources, problems
}

// once removes duplicates.
func once(sources []source) []source {
	seen := make(map[string]bool, len(sources))
	return slices.DeleteFunc(sources, func(s source) bool {
		again := seen[s.name]
		seen[s.name] = true
		return again
	})
}

// missing returns the problem of a path that cannot be read.
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
		problem.Hint = "only the shell expands patterns: leave out the quotes, or name the folder"
		return problem
	case strings.Contains(p, ","):
		problem.Hint = "repeat the flag for each: -f " + strings.Join(strings.Split(p, ","), " -f ")
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
