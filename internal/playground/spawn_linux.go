package playground

import "syscall"

// spawnAttr prevents a child from receiving the terminal's Ctrl-C, which the supervisor handles. It also lets the
// kernel kill the child when the thread that started it ends, so even kill -9 of the supervisor leaves no processes.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
