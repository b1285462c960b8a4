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

// What a playground keeps in its folder, beside a folder for each cluster.
const (
	stateFile      = "playground.json"
	lockFile       = "playground.lock"
	kubeconfigsDir = "kubeconfigs"
	logsDir        = "logs" // In a cluster's folder.
)

// clusterName matches the names that playgrounds give to their clusters.
var clusterName = regexp.MustCompile(`^(hub|member-[1-9][0-9]*)$`)

// home is the folder of a playground, held by this process alone.
type home struct {
	dir     string // Absolute.
	created bool   // Made for a playground, and to be removed with it.
	lock    *lock
}

// claim makes dir the empty home of a playground: it is made if it is not there,
// and what an earlier playground left there is removed. No other file is
// touched. If a playground is running there, claim returns a [*RunningError].
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

// makeDir makes the folder, and says whether it was not there.
func makeDir(dir string) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { // What lies above the playground is no secret.
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

// checkOurs returns an error if dir has files and no playground's lock is among
// them: they belong to somebody else.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the playground's folder: %w", err)
	}
	isLock := func(e fs.DirEntry) bool { return e.Name() == lockFile }
	if len(entries) == 0 || slices.ContainsFunc(entries, isLock) {
		return nil
	}
	return fmt.Errorf("%s is not empty, and what is in it is not a playground's: choose another folder", dir)
}

// seize takes the lock of the folder.
func seize(ctx context.Context, dir string) (*lock, error) {
	// Whoever looks whether a playground is running holds the lock for an instant.
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

// record writes the state for other processes to find.
func (h *home) record(s State) error {
	return writeState(h.dir, s)
}

// leave removes what the playground has written, and the folder if it was made
// for it, and lets others have it. Logs that are kept stay where they are, and
// so does the lock's file, by which the next playground knows the folder.
func (h *home) leave(keepLogs bool) error {
	err := h.clean(keepLogs)
	if keepLogs || err != nil {
		return errors.Join(err, h.lock.release())
	}
	err = errors.Join(os.Remove(filepath.Join(h.dir, lockFile)), h.lock.release())
	if h.created {
		// Not if somebody has put something there, or taken it over already.
		_ = os.Remove(h.dir)
	}
	return err
}

// clean removes the files of a playground, other than its lock.
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
	// The user may keep files of their own beside ours.
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

// ignoreMissing returns err unless it says that a file is not there.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
