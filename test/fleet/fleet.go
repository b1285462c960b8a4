// Package fleet runs the program as its users do, for tests: a hub with bare
// members, and the controllers, each as processes of their own.
package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"refract.dev/internal/playground"
)

// Fleet is a running hub with its members, and perhaps the controllers. It is
// for one goroutine but for [Fleet.Kubectl] and [Fleet.Refract].
type Fleet struct {
	// Members are the names of the member clusters.
	Members []string
	// Log is the file that the controllers write to.
	Log string

	dir        string // Of the playground.
	assets     string
	refract    string // The binary.
	controller *exec.Cmd
	log        *os.File
}

// Start builds refract from the module's sources and starts a fleet in dir, with
// the control planes that are beside bin/refract of the module at root, or where
// $KUBEBUILDER_ASSETS says. The controllers do not run yet.
func Start(dir, root string, members int) (*Fleet, error) {
	assets, err := playground.Assets(filepath.Join(root, "bin", "refract"))
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", assets); err != nil {
		return nil, err
	}
	f := &Fleet{
		dir: filepath.Join(dir, "fleet"), assets: assets,
		refract: filepath.Join(dir, "refract"), Log: filepath.Join(dir, "run.log"),
	}
	if out, err := exec.Command("go", "build", "-o", f.refract, filepath.Join(root, "cmd", "refract")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building refract: %w\n%s", err, out)
	}
	if f.log, err = os.Create(f.Log); err != nil {
		return nil, err
	}
	if _, err := f.Refract("up", "--dir", f.dir, "--members", strconv.Itoa(members), "--bare", "--detach"); err != nil {
		return nil, err
	}
	for i := range members {
		f.Members = append(f.Members, fmt.Sprintf("member-%d", i+1))
	}
	return f, nil
}

// Stop ends everything.
func (f *Fleet) Stop() error {
	f.StopControllers(syscall.SIGTERM)
	_, err := f.Refract("down", "--dir", f.dir)
	return errors.Join(err, f.log.Close())
}

// StartControllers starts `refract run`.
func (f *Fleet) StartControllers() error {
	f.controller = exec.Command(f.refract, "run", "--kubeconfig", f.Kubeconfig("hub"))
	f.controller.Stderr = f.log
	return f.controller.Start()
}

// StopControllers ends `refract run` with the signal, and waits for that.
func (f *Fleet) StopControllers(signal syscall.Signal) {
	if f.controller == nil {
		return
	}
	_ = f.controller.Process.Signal(signal)
	_ = f.controller.Wait() // A signal ends it: that is no failure here.
	f.controller = nil
}

// Binary returns the path of the program.
func (f *Fleet) Binary() string { return f.refract }

// Kubeconfig returns the path of the kubeconfig of a cluster.
func (f *Fleet) Kubeconfig(cluster string) string {
	return filepath.Join(f.dir, "kubeconfigs", cluster+".yaml")
}

// Refract runs the program and returns its standard output.
func (f *Fleet) Refract(args ...string) (string, error) {
	return output(exec.Command(f.refract, args...))
}

// RefractIn runs the program in a folder and returns its standard output.
func (f *Fleet) RefractIn(dir string, args ...string) (string, error) {
	cmd := exec.Command(f.refract, args...)
	cmd.Dir = dir
	return output(cmd)
}

// Kubectl runs kubectl against a cluster and returns its standard output. The
// manifest is its standard input.
func (f *Fleet) Kubectl(cluster, manifest string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(f.assets, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.Kubeconfig(cluster))
	cmd.Stdin = strings.NewReader(manifest)
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}
