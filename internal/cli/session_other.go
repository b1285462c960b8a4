//go:build !unix

package cli

import "syscall"

// ownSession should detach a process from this terminal. On this system it does nothing.
func ownSession() *syscall.SysProcAttr { return nil }
