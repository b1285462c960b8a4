//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package playground

import (
	"errors"
	"fmt"
	"runtime"
)

// lock does not exist on this system: see [acquire].
type lock struct{}

// acquire returns an error. This system has no locks that end with their process, so it is not possible to detect a
// running playground.
func acquire(string) (*lock, error) {
	return nil, fmt.Errorf("playgrounds on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (l *lock) release() error { return nil }

// lockHeld returns false, because no playground can run on this system.
func lockHeld(string) (bool, error) { return false, nil }
