//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// apart puts a command and its children into a separate process group. So all of them get the signals of this program
// together, and none from the terminal.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalAll sends a signal to the process group of the command.
func signalAll(cmd *exec.Cmd, s os.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal)) //nolint:forcetypeassert // There is no other on Unix. They may have ended.
}
