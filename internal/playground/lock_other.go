//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package playground

import (
	"errors"
	"fmt"
	"runtime"
)

// lock is not to be had: see [acquire].
type lock struct{}

// acquire returns an error: without a lock that ends with its process nobody
// could tell whether a playground is running.
func acquire(string) (*lock, error) {
	return nil, fmt.Errorf("playgrounds on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func (l *lock) release() error { return nil }

// lockHeld returns false: there can be no playground.
func lockHeld(string) (bool, error) { return false, nil }
