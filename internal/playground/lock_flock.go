//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package playground

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock is a lock on a file. When the process ends for whatever reason, the kernel releases the lock. Child processes do
// not inherit it.
type lock struct {
	file *os.File
}

// acquire locks a file, and creates it if necessary. It does not wait: if another process holds the lock, it returns
// [errLocked].
func acquire(path string) (*lock, error) {
	for {
		l, err := tryLock(path)
		if err != nil {
			return nil, err
		}
		// The previous holder of the lock may have removed the file, so that this lock is on a file without a name.
		// Another process may have created a new file.
		if l.isOn(path) {
			return l, nil
		}
		if err := l.release(); err != nil {
			return nil, err
		}
	}
}

func tryLock(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := flock(f, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{file: f}, nil
}

// isOn reports whether the locked file still has this path.
func (l *lock) isOn(path string) bool {
	locked, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(locked, there)
}

// release releases the lock.
func (l *lock) release() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("releasing the lock: %w", err)
	}
	return nil
}

// lockHeld reports whether a process holds the lock on the file. To find out, it takes a shared lock for a moment.
func lockHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the lock: %w", err)
	}
	defer func() { _ = f.Close() }()

	err = flock(f, syscall.LOCK_SH)
	if errors.Is(err, errLocked) {
		return true, nil
	}
	return false, err
}

// flock locks the file. It does not wait: if another process holds the lock, it returns [errLocked].
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}
