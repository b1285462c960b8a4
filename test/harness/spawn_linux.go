package harness

import "syscall"

// dieWithParent has the kernel kill a child when the test is no more.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
