//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func apart(*exec.Cmd) {}

// signalAll sends a signal to the command only.
func signalAll(cmd *exec.Cmd, s os.Signal) { _ = cmd.Process.Signal(s) }
