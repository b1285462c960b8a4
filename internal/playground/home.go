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

// The files in the folder of a playground. The folder also has one folder for each cluster.
const (
	stateFile      = "playground.json"
	lockFile       = "playground.lock"
	kubeconfigsDir = "kubeconfigs"
	logsDir        = "logs" // In the folder of a cluster.
)

// clusterName matches the names of the clusters of a playground.
var clusterName = regexp.MustCompile(`^(hub|member-[1-9][0-9]*)$`)

// home is the folder of a playground. This process holds its lock.
type home struct {
	dir     string // Absolute.
	created bool   // Whether the folder was created for the playground. Then it is removed with the playground.
	lock    *lock
}

// claim makes dir the folder of a new playground. It creates dir if necessary, and removes the files of an earlier
// playground, but no other files. If a playground is running in dir, claim returns a [*RunningError].
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

// makeDir creates the folder if it does not exist, and reports whether it has created it.
func makeDir(dir string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // Other users may read the parent folders.
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

// checkOurs returns an error if dir has files but not the lock of a playground, because the files then belong to
// another program.
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

// seize locks the folder.
func seize(ctx context.Context, dir string) (*lock, error) {
	// Processes that only check whether a playground is running hold the lock for a moment.
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

// record writes the state of the playground, for other processes.
func (h *home) record(s State) error {
	return writeState(h.dir, s)
}

// leave removes the files of the playground, and the folder if it was created for the playground. Then it releases the
// lock. If the logs are kept, the lock file remains, too, so that the next playground recognizes the folder.
func (h *home) leave(keepLogs bool) error {
	err := h.clean(keepLogs)
	if keepLogs || err != nil {
		return errors.Join(err, h.lock.release())
	}
	err = errors.Join(os.Remove(filepath.Join(h.dir, lockFile)), h.lock.release())
	if h.created {
		// If the folder is not empty, Remove fails: it has other files, or a new playground.
		_ = os.Remove(h.dir)
	}
	return err
}

// clean removes the files of a playground, except for its lock.
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
	// This fails if the user has other files in this folder.
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

// ignoreMissing returns err, or nil if the error is that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
