//go:build !unix

package cli

import "syscall"

// ownSession detaches a process from this terminal as far as the system permits.
func ownSession() *syscall.SysProcAttr { return nil }
