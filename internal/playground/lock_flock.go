//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package playground

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock is a lock on a file. The kernel releases it when the process ends in any way. Child processes do not inherit it.
type lock struct {
	file *os.File
}

// acquire locks the file, which it creates if necessary. It returns [errLocked] at once if another process holds the
// lock.
func acquire(path string) (*lock, error) {
	for {
		l, err := tryLock(path)
		if err != nil {
			return nil, err
		}
		// The previous owner of the lock may have removed the file, and a third process may have created a new one.
		// Then this lock is on a removed file.
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

// isOn reports whether path still refers to the locked file.
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

// lockHeld reports whether a process holds the lock on the file. It takes a shared lock for a moment to find out.
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

// flock locks the file, or returns [errLocked] at once.
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
