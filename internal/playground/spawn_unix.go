//go:build unix && !linux

package playground

import "syscall"

// spawnAttr returns attributes with which a child does not receive Ctrl-C from the terminal, because the supervisor
// handles it.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
