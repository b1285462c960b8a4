//go:build unix

package harness

import (
	"os"
	"syscall"
)

// lock takes the lock on a file, unless somebody has it. The kernel gives it back when
// the file is closed or the process ends; children do not inherit it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
