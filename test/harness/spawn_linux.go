package harness

import "syscall"

// dieWithParent makes the kernel kill the child process when the test process ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
