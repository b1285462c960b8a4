//go:build unix && !linux

package playground

import "syscall"

// spawnAttr prevents a child from receiving the terminal's Ctrl-C, which the supervisor handles.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
