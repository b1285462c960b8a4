package playground

import "syscall"

// spawnAttr keeps a child from receiving the terminal's Ctrl-C, which is for the
// supervisor to act on, and has the kernel kill it when the thread that started
// it is no more: even kill -9 of the supervisor leaves nothing behind.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
