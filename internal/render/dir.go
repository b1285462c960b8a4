package render

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Inventory is the file that says which files of a folder [WriteDir] has written,
// a line for each.
const Inventory = ".refract-files"

// Written is what [WriteDir] did. Paths are as it was given them.
type Written struct {
	// Written were not there with the same content.
	Written []string
	// Unchanged is how many were.
	Unchanged int
	// Removed were written before and are not among the files any more.
	Removed []string
	// Stale should have been removed, had it been asked for.
	Stale []string
}

// WriteDir writes the files below dir. One that is there with the same content is
// not touched, and neither is anything that WriteDir has not written. Files that
// it wrote before and that are not among these it removes, if prune is true; else
// they stay, and a later call may remove them. A file is never seen half-written.
func WriteDir(dir string, files []File, prune bool) (*Written, error) {
	before, err := readInventory(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].Path
	}
	slices.Sort(names)
	// First, so that nothing is forgotten if this ends half-way.
	if err := writeInventory(dir, slices.Concat(before, names)); err != nil {
		return nil, err
	}
	done := &Written{}
	for _, f := range files {
		wrote, err := write(dir, f)
		switch {
		case err != nil:
			return nil, err
		case wrote:
			done.Written = append(done.Written, f.Path)
		default:
			done.Unchanged++
		}
	}
	for _, name := range before {
		if _, found := slices.BinarySearch(names, name); found {
			continue
		}
		if !prune {
			done.Stale = append(done.Stale, name)
			continue
		}
		if err := remove(dir, name); err != nil {
			return nil, err
		}
		done.Removed = append(done.Removed, name)
	}
	return done, writeInventory(dir, slices.Concat(names, done.Stale))
}

const inventoryHeader = "# The files of this folder that refract keeps. It removes those that are no longer rendered.\n"

func writeInventory(dir string, names []string) error {
	slices.Sort(names)
	names = slices.Compact(names)
	_, err := write(dir, File{Path: Inventory, Content: []byte(inventoryHeader + strings.Join(append(names, ""), "\n"))})
	return err
}

// readInventory returns the paths that were written before, sorted.
func readInventory(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, Inventory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what was written before: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name := strings.TrimRight(line, "\r\n")
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) { // It would be removed.
			return nil, fmt.Errorf("%s: %q is not a file of the folder", filepath.Join(dir, Inventory), name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// remove removes a file, and the folders that are then empty. That it is not there
// is as good.
func remove(dir, name string) error {
	at := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for at = filepath.Dir(at); at != filepath.Clean(dir); at = filepath.Dir(at) {
		left, err := os.ReadDir(at)
		if err != nil || len(left) > 0 {
			return nil //nolint:nilerr // What cannot be looked at is not known to be empty.
		}
		if err := os.Remove(at); err != nil {
			return err
		}
	}
	return nil
}

// write reports whether the file was not there with the same content.
func write(dir string, f File) (bool, error) {
	to := filepath.Join(dir, filepath.FromSlash(f.Path))
	is, err := os.ReadFile(to)
	switch {
	case err == nil && bytes.Equal(is, f.Content):
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("reading what is there: %w", err)
	}
	return true, replace(to, f.Content)
}

// replace writes a file under another name and then renames it.
func replace(to string, content []byte) (err error) {
	dir := filepath.Dir(to)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, ".refract-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	_, err = temp.Write(content)
	if err := errors.Join(err, temp.Close(), os.Chmod(temp.Name(), 0o644)); err != nil {
		return err
	}
	return os.Rename(temp.Name(), to)
}
