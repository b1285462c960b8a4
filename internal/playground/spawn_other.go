//go:build !unix

package playground

import "syscall"

func spawnAttr() *syscall.SysProcAttr { return nil }
