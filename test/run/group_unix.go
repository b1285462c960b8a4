//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// apart has a command and what it starts be a group, which can be sent signals together.
// The terminal sends it none.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalAll sends a signal to the command and what it has started.
func signalAll(cmd *exec.Cmd, s os.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal)) //nolint:forcetypeassert // There is no other on Unix. They may have ended.
}
