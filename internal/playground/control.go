package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Component is a component of a cluster that a test can stop and start.
type Component string

// The components that a test can stop and start.
const (
	Etcd      Component = "etcd"
	APIServer Component = "kube-apiserver"
)

// Halt stops a component of the cluster: it sends SIGTERM and, if the process still runs after three seconds, SIGKILL.
// It returns when the process has ended. From then on its port refuses connections. [Playground.Wait] does not report
// this end. If the component is already halted, Halt does nothing.
//
// Only one goroutine at a time may call this method and the methods below.
func (p *Playground) Halt(cluster string, c Component) error {
	return p.halt(cluster, c, grace)
}

// Kill is like [Playground.Halt], but sends SIGKILL at once.
func (p *Playground) Kill(cluster string, c Component) error {
	return p.halt(cluster, c, 0)
}

func (p *Playground) halt(cluster string, c Component, within time.Duration) error {
	_, process, err := p.lookUp(cluster, c)
	if err != nil {
		return err
	}
	process.halted.Store(true)
	if within == 0 {
		_ = process.handle.Kill() // It returns an error if the process has already ended.
	}
	process.stop(within)
	return nil
}

// Revive starts a halted component with its previous ports, data and certificates. It returns when the component
// responds. The etcd of an API server must be running.
func (p *Playground) Revive(ctx context.Context, cluster string, c Component) error {
	at, process, err := p.lookUp(cluster, c)
	if err != nil {
		return err
	}
	if !process.ended() {
		return fmt.Errorf("%s: %s is running already", cluster, c)
	}
	ctx, cancel := p.crew.bind(ctx)
	defer cancel()
	url, newProbe := at.Endpoint, at.apiServerProbe
	if c == Etcd {
		url, newProbe = at.Etcd, at.etcdProbe
	}
	probe, done, err := newProbe()
	if err != nil {
		return err
	}
	defer done()
	for {
		process, err = p.crew.start(p.starter.spec(at, at.servers[c]))
		if err != nil {
			return err
		}
		err = process.await(ctx, func(ctx context.Context) error { return probe(ctx, url) })
		if err == nil {
			p.crew.watch(process)
			return nil
		}
		if !process.lostItsPort() {
			process.stop(0)
			return err
		}
		// Another process has a connection that temporarily uses this port.
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Program is an additional program of a cluster, such as the kubelet of a Node.
type Program struct {
	// Name is the name of the program in [Playground.Halt] and [Playground.Kill], and the name of its log.
	Name string
	// Path is the path of the binary.
	Path string
	Args []string
	// Env is added to the environment of the program, which has only HOME, PATH and GOGC.
	Env []string
	// Ready returns nil as soon as the program is ready.
	Ready func(context.Context) error
}

// Launch starts an additional program of a cluster, and returns when it is ready. The program ends with the playground.
// If it ends earlier by itself, [Playground.Wait] reports this. A halted program may be launched again; it then gets a
// new log.
func (p *Playground) Launch(ctx context.Context, cluster string, what Program) error {
	at, err := p.cluster(cluster)
	if err != nil {
		return err
	}
	ctx, cancel := p.crew.bind(ctx)
	defer cancel()
	s := p.starter.spec(at, component{name: what.Name, rank: rankClient, args: what.Args})
	s.binary, s.env = what.Path, append(s.env, what.Env...)
	process, err := p.crew.start(s)
	if err != nil {
		return err
	}
	if err := process.await(ctx, what.Ready); err != nil {
		return err
	}
	p.crew.watch(process)
	return nil
}

// Wipe deletes all data of the cluster, like the loss of a disk. etcd and the API server must be halted. After
// [Playground.Revive] the cluster is empty. The UIDs of its namespaces have changed, so clients that compare them see
// another cluster. Nodes are not created again.
func (p *Playground) Wipe(cluster string) error {
	at, err := p.halted(cluster, Etcd, APIServer)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(at.path(etcdData)); err != nil {
		return fmt.Errorf("%s: removing the data of etcd: %w", cluster, err)
	}
	return nil
}

// Save copies the data of the cluster to a new folder, as a backup. etcd must be halted.
func (p *Playground) Save(cluster, to string) error {
	at, err := p.halted(cluster, Etcd)
	if err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(at.path(etcdData))); err != nil {
		return fmt.Errorf("%s: copying the data of etcd: %w", cluster, err)
	}
	return nil
}

// Restore replaces the data of the cluster by a backup. etcd and the API server must be halted.
func (p *Playground) Restore(cluster, from string) error {
	if err := p.Wipe(cluster); err != nil {
		return err
	}
	at, err := p.cluster(cluster)
	if err != nil {
		return err
	}
	if err := os.CopyFS(at.path(etcdData), os.DirFS(from)); err != nil {
		return fmt.Errorf("%s: restoring the data of etcd: %w", cluster, err)
	}
	if err := os.Chmod(at.path(etcdData), 0o700); err != nil { // etcd requires this mode.
		return fmt.Errorf("%s: restoring the data of etcd: %w", cluster, err)
	}
	return nil
}

// lookUp returns a cluster and the process of one of its components.
func (p *Playground) lookUp(name string, c Component) (*cluster, *process, error) {
	at, err := p.cluster(name)
	if err != nil {
		return nil, nil, err
	}
	process := p.crew.find(name, string(c))
	if process == nil {
		return nil, nil, fmt.Errorf("%s: there is no component %q", name, c)
	}
	return at, process, nil
}

// halted returns the cluster with this name. If any of the given components is not halted, it returns an error.
func (p *Playground) halted(name string, components ...Component) (*cluster, error) {
	var errs []error
	for _, c := range components {
		_, process, err := p.lookUp(name, c)
		if err == nil && !process.ended() {
			err = fmt.Errorf("%s: %s has to be halted first", name, c)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p.cluster(name)
}
