package playground

import "syscall"

// spawnAttr returns attributes with two effects. A child does not receive Ctrl-C from the terminal, because the
// supervisor handles it. And the kernel kills a child when the thread that started it ends, so no child remains even
// after kill -9 of the supervisor.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
