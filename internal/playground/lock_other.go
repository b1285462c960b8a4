//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package playground

import (
	"errors"
	"fmt"
	"runtime"
)

// lock is not available on this system: see [acquire].
type lock struct{}

// acquire returns an error: without a lock that ends with its process, a running playground cannot be detected.
func acquire(string) (*lock, error) {
	return nil, fmt.Errorf("playgrounds on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (l *lock) release() error { return nil }

// lockHeld returns false: a playground cannot run on this system.
func lockHeld(string) (bool, error) { return false, nil }
