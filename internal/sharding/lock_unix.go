//go:build unix && !aix && !solaris

package sharding

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes the lock on a file, or returns errRuns at once. Children do not inherit it.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errRuns
		default:
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}
