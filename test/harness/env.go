// Package fleet runs the program as its users do, for tests: a hub with bare
// members, and the controllers, each as processes of their own.
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"refract.dev/internal/playground"
)

// Fleet is a running hub with its members, and perhaps the controllers. It is
// for one goroutine but for [Fleet.Kubectl], [Fleet.Refract], [Fleet.Client] and
// [Fleet.Writes].
type Fleet struct {
	// Members are the names of the member clusters.
	Members []string
	// Log is the file that the controllers write to.
	Log string

	// Playground is where the clusters run if they were started by [StartControlled];
	// nil if they are processes of `refract up`.
	Playground *playground.Playground

	dir        string // Of the playground.
	assets     string
	refract    string // The binary.
	controller *exec.Cmd
	log        *os.File
	replicas   []*Replica
	mu         sync.Mutex // Of replicas.
}

// Start builds refract from the module's sources and starts a fleet in dir, with
// the control planes that are beside bin/refract of the module at root, or where
// $KUBEBUILDER_ASSETS says. The controllers do not run yet.
func Start(dir, root string, members int) (*Fleet, error) {
	f, err := build(context.Background(), dir, root)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("KUBEBUILDER_ASSETS", f.assets); err != nil {
		return nil, err
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

// Stop ends everything, processes first that need others.
func (f *Fleet) Stop() error {
	if f.Playground != nil {
		var errs []error
		for _, r := range f.replicas {
			_ = r.Signal(syscall.SIGCONT) // Or one that is frozen would not hear of its end.
			errs = append(errs, r.Stop(syscall.SIGTERM), crashed(r.Log))
		}
		return errors.Join(append(errs, f.Playground.Stop())...)
	}
	f.StopControllers(syscall.SIGTERM)
	_, err := f.Refract("down", "--dir", f.dir)
	return errors.Join(err, f.log.Close(), crashed(f.log.Name()))
}

// StartControllers starts `refract run`.
func (f *Fleet) StartControllers() error {
	f.controller = exec.Command(f.refract, "run", "--kubeconfig", f.Kubeconfig("hub"), "--lease-duration", "15s", "--deletion-guard", "100",
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
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
