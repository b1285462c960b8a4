//go:build !unix

package harness

import "os"

// lock never succeeds. Control planes are not shared on platforms without file locks.
func lock(*os.File) bool { return false }
