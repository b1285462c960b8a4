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

// Inventory is the name of the file that names the command which manages a folder and lists the files that [WriteDir]
// has written there, one on each line.
const Inventory = ".refract-files"

// KeptError reports that another command manages the folder. Both commands would remove the files of each other.
type KeptError struct {
	// Inventory is the path of the inventory file.
	Inventory string
	// Owner is the other command; empty if the file names no command.
	Owner string
}

// Error names the command that manages the folder.
func (e *KeptError) Error() string {
	if e.Owner == "" {
		return e.Inventory + " does not name the command that owns this folder"
	}
	return fmt.Sprintf("%s owns this folder, according to %s", e.Owner, e.Inventory)
}

// LinkError reports a failed operation on a file behind a symbolic link that does not lead to a place inside the
// folder.
type LinkError struct {
	// Link is the path of the link in the folder.
	Link string
	// Err is the error of the operation.
	Err error
}

// Error names the link and the error of the operation.
func (e *LinkError) Error() string {
	return fmt.Sprintf("%s is a symbolic link that leads to nothing inside the folder: %v", e.Link, e.Err)
}

// Unwrap returns the error of the operation.
func (e *LinkError) Unwrap() error { return e.Err }

// Written is the result of [WriteDir]. Paths are those of its argument.
type Written struct {
	// Written are the files that were new or had other content.
	Written []string
	// Unchanged is the number of files that existed with the same content.
	Unchanged int
	// Removed are files of an earlier call that are no longer among the files.
	Removed []string
	// Stale are the files that would have been removed if prune were true.
	Stale []string
}

// WriteDir writes the files below dir. In the inventory, it records that the command owner (one line) manages the
// folder. It does not touch files that already have the content, except for the mode of a private one. It never touches
// files that WriteDir has not written. If prune is true, it removes files of earlier calls that are no longer needed;
// otherwise they stay, and a later call may remove them. Each file is replaced atomically. Its mode is determined by
// the umask, or is 0600 if the file is private.
//
// Nothing outside of dir is read, written or removed, whatever symbolic links dir contains; dir itself may be a link.
// For a link that leads out of dir, the error is a [*LinkError].
//
// If another command manages the folder, WriteDir writes nothing and returns a [*KeptError]. Every error names dir.
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
	defer func() { _ = root.Close() }() // Nothing is written through this handle, so Close cannot lose data.
	before, err := readInventory(root, owner)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i := range files {
		names[i] = files[i].Path
	}
	slices.Sort(names)
	// The inventory comes first, so that all files are recorded even if the call ends halfway.
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

// blame turns the error about a file into a [*LinkError] if the path of the file contains a symbolic link that cannot
// be followed inside the folder.
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

// keptBy is the prefix of the line of an inventory that names the command which manages the folder.
const keptBy = "# kept by: "

func writeInventory(root *os.Root, owner string, names []string) error {
	slices.Sort(names)
	lines := append([]string{keptBy + owner, "# These are its files here. It removes those that it does not write any more."}, slices.Compact(names)...)
	_, err := write(root, File{Path: Inventory, Content: []byte(strings.Join(lines, "\n") + "\n")})
	return err
}

// readInventory returns the sorted paths of files that earlier calls have written. It returns a [*KeptError] if another
// command manages the folder.
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
		if !filepath.IsLocal(filepath.FromSlash(name)) { // Otherwise a file outside the folder would be removed.
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

// remove removes a file and then its empty parent folders. A missing file is no error.
func remove(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		left, err := fs.ReadDir(root.FS(), at)
		if err != nil || len(left) > 0 {
			return nil //nolint:nilerr // A folder that cannot be read may not be empty.
		}
		if err := root.Remove(at); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file, and reports whether the content is new.
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

// protect makes an existing private file readable for its owner only.
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

// replace writes a file under a temporary name and then renames it.
func (f *File) replace(root *os.Root) (err error) {
	dir := path.Dir(f.Path)
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	mode := fs.FileMode(0o666)
	if f.Private {
		mode = privateMode
	}
	// os.CreateTemp would make the file readable only for its owner, whatever the umask.
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
