package render

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Inventory is the file that says which command keeps a folder, and which of its
// files [WriteDir] has written, a line for each.
const Inventory = ".refract-files"

// KeptError is that another command keeps a folder: it would remove what this one
// writes, and the other way round.
type KeptError struct {
	// Inventory is the path of the file that says so.
	Inventory string
	// Owner is the other command; empty if the file does not name one.
	Owner string
}

// Error says who keeps the folder.
func (e *KeptError) Error() string {
	if e.Owner == "" {
		return e.Inventory + " does not say which command keeps this folder"
	}
	return fmt.Sprintf("%s keeps this folder, says %s", e.Owner, e.Inventory)
}

// LinkError is that something stands behind a symbolic link in a folder that does
// not lead to a place inside of it.
type LinkError struct {
	// Link is the path of the link in the folder.
	Link string
	// Err is what could not be done.
	Err error
}

// Error names the link, and what could not be done.
func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a symbolic link that leads to nothing inside the folder: %v", e.Link, e.Err)
}

// Unwrap returns what could not be done.
func (e *LinkError) Unwrap() error { return e.Err }

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

// WriteDir writes the files below dir, which the command that owner names (in one
// line) has for itself from then on. One that is there with the same content is
// not touched, but for the mode of a private one, and neither is anything that
// WriteDir has not written. Files that it wrote before and that are not among
// these it removes, if prune is true; else they stay, and a later call may remove
// them. A file is never seen half-written. Its mode is what the umask leaves, or
// 0600 if it is private.
//
// Nothing outside of dir is read, written or removed, whatever symbolic links lead
// there; dir itself may be one. What cannot be done for one of them is a
// [*LinkError].
//
// WriteDir returns a [*KeptError], and has written nothing, if another command
// keeps the folder. Every error names dir.
func WriteDir(dir, owner string, files []File, prune bool) (*Written, error) {
	done, err := writeDir(dir, owner, files, prune)
	if err != nil {
		return nil, fmt.Errorf("in %s: %w", dir, err)
	}
	return done, nil
}

func writeDir(dir, owner string, files []File, prune bool) (*Written, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // Nothing is written to the folder itself.
	before, err := readInventory(root, owner)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].Path
	}
	slices.Sort(names)
	// First, so that nothing is forgotten if this ends half-way.
	if err := writeInventory(root, owner, slices.Concat(before, names)); err != nil {
		return nil, err
	}
	done := &Written{}
	for _, f := range files {
		wrote, err := write(root, f)
		switch {
		case err != nil:
			return nil, blame(root, f.Path, err)
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
		if err := remove(root, name); err != nil {
			return nil, blame(root, name, err)
		}
		done.Removed = append(done.Removed, name)
	}
	return done, writeInventory(root, owner, slices.Concat(names, done.Stale))
}

// blame returns the error about a file as a [*LinkError] if there is a symbolic link
// on the way to it that nothing can be reached by.
func blame(root *os.Root, name string, err error) error {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		link := name[:i]
		info, lstatErr := root.Lstat(link)
		if lstatErr != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, statErr := root.Stat(link); statErr != nil {
			return &LinkError{Link: link, Err: err}
		}
	}
	return err
}

// keptBy begins the line of an inventory that names the command which keeps the
// folder.
const keptBy = "# kept by: "

func writeInventory(root *os.Root, owner string, names []string) error {
	slices.Sort(names)
	lines := append([]string{keptBy + owner, "# These are its files here. It removes those that it does not write any more."}, slices.Compact(names)...)
	_, err := write(root, File{Path: Inventory, Content: []byte(strings.Join(lines, "\n") + "\n")})
	return err
}

// readInventory returns the paths that were written before, sorted. It is a
// [*KeptError] if that was not by the owner.
func readInventory(root *os.Root, owner string) ([]string, error) {
	text, err := root.ReadFile(Inventory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, blame(root, Inventory, fmt.Errorf("reading what was written before: %w", err))
	}
	kept := &KeptError{Inventory: filepath.Join(root.Name(), Inventory)}
	var names []string
	for line := range strings.Lines(string(text)) {
		name := strings.TrimRight(line, "\r\n")
		if by, ok := strings.CutPrefix(name, keptBy); ok {
			kept.Owner = by
		}
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) { // It would be removed.
			return nil, fmt.Errorf("%s: %q is not a file of the folder", Inventory, name)
		}
		names = append(names, name)
	}
	if kept.Owner != owner {
		return nil, kept
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// remove removes a file, and the folders that are then empty. That it is not there
// is as good.
func remove(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		left, err := fs.ReadDir(root.FS(), at)
		if err != nil || len(left) > 0 {
			return nil //nolint:nilerr // What cannot be looked at is not known to be empty.
		}
		if err := root.Remove(at); err != nil {
			return err
		}
	}
	return nil
}

// write reports whether the file was not there with the same content.
func write(root *os.Root, f File) (bool, error) {
	is, err := root.ReadFile(f.Path)
	switch {
	case err == nil && bytes.Equal(is, f.Content):
		return false, f.protect(root)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("reading what is there: %w", err)
	}
	return true, f.replace(root)
}

// protect takes a private file that is there from everybody else.
func (f *File) protect(root *os.Root) error {
	if !f.Private {
		return nil
	}
	info, err := root.Stat(f.Path)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return err
	}
	return root.Chmod(f.Path, privateMode)
}

const privateMode fs.FileMode = 0o600

// replace writes a file under another name and then renames it.
func (f *File) replace(root *os.Root) (err error) {
	dir := path.Dir(f.Path)
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	mode := fs.FileMode(0o666)
	if f.Private {
		mode = privateMode
	}
	// Not os.CreateTemp, whose files only their owner may read, whatever the umask.
	name := path.Join(dir, ".refract-"+rand.Text())
	temp, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, root.Remove(name))
		}
	}()
	_, err = temp.Write(f.Content)
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return root.Rename(name, f.Path)
}
