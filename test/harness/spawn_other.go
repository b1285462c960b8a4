//go:build !linux

package fleet

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
