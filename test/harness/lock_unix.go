//go:build unix

package harness

import (
	"os"
	"syscall"
)

// lock takes the lock of a file, unless another process has it. The kernel releases it when the file is closed or the
// process ends. Child processes do not inherit it.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
