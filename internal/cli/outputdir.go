package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// apartFrom returns an error if an input is inside the output folder, or if the output folder is inside an input. In
// both cases the next run would read its output as input, or the output would overwrite an input. An input may be next
// to the output folder.
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

// within reports whether a path is below a folder. Both must be absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// resolve returns the absolute path without symbolic links. The path, or the last part of it, may not exist.
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
		return path, nil // Not even the root exists, such as a missing drive on Windows.
	}
	if dir, err = resolve(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// explainOutput adds advice to an error that [render.WriteDir] has returned.
func explainOutput(err error) error {
	hint := ""
	if kept := (*render.KeptError)(nil); errors.As(err, &kept) {
		hint = "give each command a folder of its own"
		if kept.Owner == "" {
			hint = fmt.Sprintf("if no other command uses the folder, remove %s", kept.Inventory)
		}
	}
	if link := (*render.LinkError)(nil); errors.As(err, &link) {
		hint = "remove the link: the command reads, writes and removes only files inside the folder"
	}
	return withHint(err, hint)
}
