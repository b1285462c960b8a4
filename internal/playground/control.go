package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Component is a program of a cluster that can be taken out of service and put
// back, to see what becomes of those who depend on it.
type Component string

// The components that can be controlled.
const (
	Etcd      Component = "etcd"
	APIServer Component = "kube-apiserver"
)

// Halt asks a component of the cluster to end, kills it if it does not within
// seconds, and returns when it has ended: its port refuses connections from then
// on. That is not a loss that [Playground.Wait] would report. A component that is
// halted already is left so.
//
// This method and those below are for one goroutine at a time.
func (p *Playground) Halt(cluster string, c Component) error {
	return p.halt(cluster, c, grace)
}

// Kill is [Playground.Halt] without asking.
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
		_ = process.handle.Kill() // An error means that it has ended already.
	}
	process.stop(within)
	return nil
}

// Revive starts a component again that was halted, with the ports, the data and
// the certificates that it had, and returns when it answers. An API server needs
// its etcd for that.
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
		// Somebody else's connection has come from that very port, and will be gone.
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Program is one that a cluster has beside those of a playground, as the kubelet of a Node.
type Program struct {
	// Name is that of its log, and the component that [Playground.Halt] and [Playground.Kill] take.
	Name string
	// Path is that of the binary.
	Path string
	Args []string
	// Env is added to the environment, of which it sees nothing but HOME and PATH otherwise.
	Env []string
	// Ready returns nil when it is at work.
	Ready func(context.Context) error
}

// Launch starts a program that belongs to the cluster from then on, and returns when it is ready. If it ends, that is a
// loss as any, and it ends with the playground. One that is halted may be launched again; its log is begun anew then.
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

// Wipe removes what the cluster has stored, as if its disk were lost. Its etcd and
// its API server must be halted, and find an empty cluster when they are revived:
// another cluster, to those who remember the UID of a namespace. Nodes do not come
// back.
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

// Save copies what the cluster has stored to a folder that is not there yet: a
// backup. Its etcd must be halted.
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

// Restore puts what was saved in the place of what the cluster has stored. Its
// etcd and its API server must be halted.
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
	if err := os.Chmod(at.path(etcdData), 0o700); err != nil { // Or etcd refuses it.
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

// halted returns the cluster of this name, or an error unless these of its
// components are halted.
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
