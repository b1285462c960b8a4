package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
)

// apartFrom returns an error if a folder to write to holds one of the inputs, or
// is inside of one: what is written there would be read the next time, or would
// take the place of what was read. An input that is a file may lie beside the
// folder.
func apartFrom(inputs []string, dir string) error {
	out, err := resolve(dir)
	if err != nil {
		return err
	}
	for _, name := range inputs {
		if name == manifest.Stdin {
			continue
		}
		in, err := resolve(name)
		if err != nil {
			return err
		}
		var reason string
		switch {
		case in == out:
			reason = "is read by -f"
		case within(in, out):
			reason = fmt.Sprintf("holds %s, which is read by -f", name)
		case within(out, in):
			reason = fmt.Sprintf("is inside %s, which is read by -f", name)
		default:
			continue
		}
		return withHint(fmt.Errorf("--output-dir: %s %s", dir, reason), "give a folder outside of the input")
	}
	return nil
}

// within reports whether a path is below a folder; both are absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// resolve returns the absolute path without symbolic links. The end of it need not
// exist.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return resolved, err
	}
	dir, name := filepath.Split(path)
	if dir = filepath.Clean(dir); dir == path {
		return path, nil // The root is not there: a drive, perhaps.
	}
	if dir, err = resolve(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// explainOutput adds to an error of [render.WriteDir] what to do.
func explainOutput(err error) error {
	hint := ""
	if kept := (*render.KeptError)(nil); errors.As(err, &kept) {
		hint = "give each command a folder of its own"
		if kept.Owner == "" {
			hint = fmt.Sprintf("if nothing else keeps it, remove %s", kept.Inventory)
		}
	}
	if link := (*render.LinkError)(nil); errors.As(err, &link) {
		hint = "remove the link: only what is inside the folder is read, written and removed"
	}
	return withHint(err, hint)
}
