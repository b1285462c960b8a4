//go:build unix && !linux

package playground

import "syscall"

// spawnAttr keeps a child from receiving the terminal's Ctrl-C, which is for the
// supervisor to act on.
func spawnAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
