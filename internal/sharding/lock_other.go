//go:build !unix || aix || solaris

package sharding

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// lock returns an error: there is no lock that ends with its process.
func lock(*os.File) error { return fmt.Errorf("locks on %s: %w", runtime.GOOS, errors.ErrUnsupported) }
