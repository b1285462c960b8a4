//go:build !linux

package cluster

import (
	"fmt"
	"os"
	"runtime"
)

// Enter ends the process, because containers need Linux.
func Enter() {
	fmt.Fprintf(os.Stderr, "error: a node for tests: its containers take Linux, and this is %s\n", runtime.GOOS)
	os.Exit(1)
}
