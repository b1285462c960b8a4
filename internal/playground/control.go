package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Component is a program of a cluster that can be stopped and started again, to test its clients.
type Component string

// The components that can be controlled.
const (
	Etcd      Component = "etcd"
	APIServer Component = "kube-apiserver"
)

// Halt sends SIGTERM to a component of the cluster, kills it if it is still running after three seconds, and returns
// when the process has ended. From then on its port refuses connections. [Playground.Wait] does not report this end.
// Halt has no effect on a halted component.
//
// This method and those below may be called by only one goroutine at a time.
func (p *Playground) Halt(cluster string, c Component) error {
	return p.halt(cluster, c, grace)
}

// Kill is [Playground.Halt] with SIGKILL at once.
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
		_ = process.handle.Kill() // An error means that the process has already ended.
	}
	process.stop(within)
	return nil
}

// Revive starts a halted component again with its previous ports, data and certificates, and returns when it answers.
// An API server needs its etcd to be running.
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
		// A connection of another process temporarily has this port as its local port.
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Program is an additional program of a cluster, such as the kubelet of a Node.
type Program struct {
	// Name is the name of the log, and of the component for [Playground.Halt] and [Playground.Kill].
	Name string
	// Path is the path of the binary.
	Path string
	Args []string
	// Env is added to the environment, which otherwise has only HOME, PATH and GOGC.
	Env []string
	// Ready returns nil when the program is ready.
	Ready func(context.Context) error
}

// Launch starts a program that belongs to the cluster from then on, and returns when it is ready. If the program ends
// by itself, [Playground.Wait] reports it. The program ends with the playground. A halted program may be launched
// again, with a new log.
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

// Wipe removes the stored data of the cluster, as a lost disk would. Its etcd and its API server must be halted. When
// they are revived they have an empty cluster, which is another cluster for clients that compare the UID of a
// namespace. Nodes are not restored.
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

// Save copies the stored data of the cluster to a new folder, as a backup. Its etcd must be halted.
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

// Restore replaces the stored data of the cluster by saved data. Its etcd and its API server must be halted.
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

// halted returns the cluster with this name, or an error unless these of its components are halted.
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
