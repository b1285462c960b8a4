package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// assetsEnv is the environment variable with the folder of the binaries. The tests of controller-runtime use the same
// variable: https://book.kubebuilder.io/reference/envtest
const assetsEnv = "KUBEBUILDER_ASSETS"

// binaries are the programs of a playground.
var binaries = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// Assets returns the folder with the components' binaries. This is $KUBEBUILDER_ASSETS, or else the folder of exe,
// which is usually the running executable. If exe is a link, its target counts.
//
// If binaries are missing, the error names them, and the command that builds them.
func Assets(exe string) (string, error) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		dir = filepath.Dir(exe)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving the binaries' folder %q: %w", dir, err)
	}
	return dir, checkAssets(dir)
}

func checkAssets(dir string) error {
	var missing []string
	for _, name := range binaries {
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
			continue
		}
		if err != nil {
			return fmt.Errorf("looking for the binaries of a control plane: %w", err)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("no %s in %s: run `make controlplane` to build the control plane, or set $%s to its folder",
		strings.Join(missing, ", "), dir, assetsEnv)
}
