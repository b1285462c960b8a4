package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Files in the folder of a playground, in addition to a folder for each cluster.
const (
	stateFile      = "playground.json"
	lockFile       = "playground.lock"
	kubeconfigsDir = "kubeconfigs"
	logsDir        = "logs" // In the folder of a cluster.
)

// clusterName matches the names that playgrounds give to their clusters.
var clusterName = regexp.MustCompile(`^(hub|member-[1-9][0-9]*)$`)

// home is the folder of a playground. This process holds its lock.
type home struct {
	dir     string // Absolute.
	created bool   // Created for the playground, and removed with it.
	lock    *lock
}

// claim makes dir the empty home of a playground. It creates dir if it does not exist, and removes the files of an
// earlier playground. It touches no other files. If a playground is running in dir, claim returns a [*RunningError].
func claim(ctx context.Context, dir string) (*home, error) {
	created, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	l, err := seize(ctx, dir)
	if err != nil {
		return nil, err
	}
	if old, err := readState(dir); err == nil && old.Created {
		created = true
	}
	h := &home{dir: dir, created: created, lock: l}
	if err := h.clean(false); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return h, nil
}

// makeDir creates the folder, and reports whether it did.
func makeDir(dir string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // The parent folders need no protection.
		return false, fmt.Errorf("making the playground's folder: %w", err)
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("making the playground's folder: %w", err)
	}
	return true, nil
}

// checkOurs returns an error if dir has files but no playground's lock: the files belong to another program.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the playground's folder: %w", err)
	}
	isLock := func(e fs.DirEntry) bool { return e.Name() == lockFile }
	if len(entries) == 0 || slices.ContainsFunc(entries, isLock) {
		return nil
	}
	return fmt.Errorf("%s is not empty, and has no playground: choose another folder", dir)
}

// seize takes the lock of the folder.
func seize(ctx context.Context, dir string) (*lock, error) {
	// A process that looks for a running playground holds the lock for a moment.
	for range 10 {
		l, err := acquire(filepath.Join(dir, lockFile))
		if err == nil || !errors.Is(err, errLocked) {
			return l, err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("locking the playground's folder: %w", err)
		}
	}
	s, err := Find(ctx, dir)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("the playground in %s has just ended: try again", dir)
	}
	return nil, &RunningError{State: *s}
}

// record writes the state for other processes.
func (h *home) record(s State) error {
	return writeState(h.dir, s)
}

// leave removes the files of the playground, and the folder if it was created for the playground. Then it releases the
// lock. If logs are kept, the lock file stays too, because the next playground recognizes the folder by it.
func (h *home) leave(keepLogs bool) error {
	err := h.clean(keepLogs)
	if keepLogs || err != nil {
		return errors.Join(err, h.lock.release())
	}
	err = errors.Join(os.Remove(filepath.Join(h.dir, lockFile)), h.lock.release())
	if h.created {
		// This fails, as it should, if the folder has other files or a new playground has it.
		_ = os.Remove(h.dir)
	}
	return err
}

// clean removes the files of a playground, except its lock.
func (h *home) clean(keepLogs bool) error {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return fmt.Errorf("reading the playground's folder: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if clusterName.MatchString(e.Name()) {
			errs = append(errs, h.cleanCluster(e.Name(), keepLogs))
		}
	}
	for _, name := range []string{stateFile, stateFile + nextSuffix} {
		errs = append(errs, ignoreMissing(os.Remove(filepath.Join(h.dir, name))))
	}
	// The user may keep other files in this folder.
	_ = os.Remove(filepath.Join(h.dir, kubeconfigsDir))

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the playground's files: %w", err)
	}
	return nil
}

// cleanCluster removes the files of one cluster.
func (h *home) cleanCluster(name string, keepLogs bool) error {
	dir := filepath.Join(h.dir, name)
	errs := []error{ignoreMissing(os.Remove(kubeconfigFile(h.dir, name)))}

	entries, err := os.ReadDir(dir)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, e := range entries {
		if keepLogs && e.Name() == logsDir {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	if !keepLogs {
		errs = append(errs, ignoreMissing(os.Remove(dir)))
	}
	return errors.Join(errs...)
}

// ignoreMissing returns err, or nil if err means that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
