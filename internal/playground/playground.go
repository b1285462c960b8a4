// Package playground runs a hub and member clusters on this machine, for a demo,
// an end-to-end test, or an afternoon of trying things out.
//
// The API servers, their etcds and their controllers are the real ones, built by
// `make controlplane`; only the kubelets are played, by kwok: a Pod on a fake
// Node is running as soon as it is scheduled. No container runtime, no root and
// no network is needed. Everything listens on 127.0.0.1 alone, behind TLS, with
// certificates made for this one playground.
//
// A playground lives as long as the process that started it, its supervisor:
// when that ends, however it ends, the components end too (on Linux; elsewhere
// only if it ends in order). Nothing is kept. It owns one folder:
//
//	playground.json      what is running, for other processes: see [State]
//	playground.lock      held by the supervisor
//	kubeconfigs/         hub.yaml, member-1.yaml, …: an administrator's way in
//	hub/, member-1/, …   data, certificates and logs of a cluster
package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options say what to start.
type Options struct {
	// Dir is the folder of the playground. It must be empty, left over from an
	// earlier playground, or not there. Required.
	Dir string
	// Assets is the folder with the components' binaries. Required; see [Assets].
	Assets string
	// Members is how many member clusters there are beside the hub; 0 or more.
	Members int
	// Bare makes the members API servers with an etcd and nothing else: they store
	// objects, and nobody acts on them.
	Bare bool
	// Alike makes the clusters alike. Otherwise they differ as [Cluster] says.
	Alike bool
	// OrdinaryHub makes the hub an ordinary cluster: it has all controllers, a scheduler and Nodes, so it runs what
	// users write to it. Otherwise it has only the controllers that keep it clean.
	OrdinaryHub bool
	// LargeHub has the hub store objects of more than 1.5 MiB, which the members do not.
	LargeHub bool
	// Audit has every API server write down who has written what: one JSON object a
	// line, an Event of audit.k8s.io/v1 at the level Metadata for each request that
	// was answered. See [Playground.AuditLog].
	Audit bool
	// Address, if set, is one of this machine, no loopback one, at which API servers can be reached from Pods, as
	// well as where their kubeconfigs say. The hub then is what a cluster is that runs Pods, but for its Nodes, and
	// the programs of those are the caller's to start, with [Playground.Launch]. It has all controllers and a
	// scheduler; its API server tells kubelets apart, has Pods find it by its Service, and if it is audited writes
	// down who has read what, too.
	Address string
	// Progress, if set, is told what happens while the playground starts: short
	// sentences for a person to read. It is called by one goroutine at a time.
	Progress func(msg string)
}

// Cluster is a running cluster.
type Cluster struct {
	// Name is "hub", "member-1", "member-2", and so on.
	Name string `json:"name"`
	// Kubeconfig is the absolute path of a file that makes its user an administrator.
	Kubeconfig string `json:"kubeconfig"`
	// Endpoint is the URL of the API server; empty until that is ready.
	Endpoint string `json:"endpoint,omitempty"`
	// Etcd is the URL of the cluster's etcd; empty until that is ready.
	Etcd string `json:"etcd,omitempty"`
	// Traits are the properties in which it differs from the other clusters, unless these are alike.
	Traits Traits `json:"traits"`
}

// Playground is a running hub with its members.
type Playground struct {
	View

	home    *home
	crew    *crew
	starter *starter

	background sync.WaitGroup // What runs in this process beside the crew.
	leave      context.CancelFunc

	stopOnce sync.Once
	stopErr  error
}

// Start starts a playground and returns when every API server is ready and the
// other components run: Deployments on members that are not bare become ready
// within seconds. The caller has to [Playground.Stop] it.
//
// If ctx ends first Start stops what it has started and returns the context's
// cause; ctx has no say once Start has returned. If a component ends, or never
// becomes ready, Start does the same and returns the reason, for a component
// that ended a [*ComponentError]. The logs then stay where the error says, unless
// ctx was canceled. If a playground is running in the folder, Start returns a
// [*RunningError].
func Start(ctx context.Context, o Options) (*Playground, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	h, err := claim(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	p := &Playground{View: View{clusters: clusters(o)}, home: h, crew: newCrew()}
	var life context.Context
	life, p.leave = context.WithCancel(context.WithoutCancel(ctx))
	p.starter = &starter{
		crew: p.crew, assets: o.Assets, progress: oneAtATime(o.Progress), freePorts: freePorts, life: life, background: &p.background,
	}
	if err := p.start(ctx, o); err != nil {
		calledOff := errors.Is(ctx.Err(), context.Canceled)
		return nil, errors.Join(err, p.end(!calledOff))
	}
	return p, nil
}

// check returns the options with absolute paths, or why they cannot be met.
func (o Options) check() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("starting a playground: no folder given")
	}
	if o.Members < 0 {
		return o, fmt.Errorf("starting a playground: members: want 0 or more, got %d", o.Members)
	}
	if o.Address != "" && (!o.Alike || o.OrdinaryHub) {
		return o, errors.New("starting a playground: a hub whose Pods really run takes clusters that are alike, and has all controllers already")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("resolving the playground's folder %q: %w", o.Dir, err)
	}
	if o.Assets, err = filepath.Abs(o.Assets); err != nil {
		return o, fmt.Errorf("resolving the binaries' folder %q: %w", o.Assets, err)
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o, checkAssets(o.Assets)
}

func (p *Playground) start(ctx context.Context, o Options) error {
	began := time.Now()
	if err := p.record(o, began, false); err != nil {
		return err
	}
	ctx, cancel := p.crew.bind(ctx)
	defer cancel()

	if err := p.starter.startAll(ctx, p.clusters); err != nil {
		return err
	}
	return p.record(o, began, true)
}

// record writes what other processes can know of the playground.
func (p *Playground) record(o Options, began time.Time, ready bool) error {
	return p.home.record(State{
		PID:         os.Getpid(),
		Started:     began.UTC(),
		Ready:       ready,
		Bare:        o.Bare,
		Alike:       o.Alike,
		OrdinaryHub: o.OrdinaryHub,
		Hub:         p.Hub(),
		Members:     p.Members(),
		Dir:         p.home.dir,
		Created:     p.home.created,
	})
}

// Wait returns nil once the playground has been told to stop, or, if a component
// ends before that by itself, a [*ComponentError]. The rest keeps running until
// [Playground.Stop].
func (p *Playground) Wait() error {
	return p.crew.wait()
}

// Failed reports whether one of its processes has ended that nobody has asked to.
func (p *Playground) Failed() bool { return p.crew.failed() }

// Stop ends all components, in order, and removes what the playground has
// written, as well as its folder if Start made that. It returns when both are
// done. If a component had ended before, the logs stay. Stopping twice is one
// stop: the second call waits for the first and returns the same.
func (p *Playground) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = p.end(p.crew.failed()) })
	return p.stopErr
}

// end stops everything and gives the folder up. It may be called once.
func (p *Playground) end(keepLogs bool) error {
	p.leave()
	p.background.Wait()
	p.crew.stop()
	return p.home.leave(keepLogs)
}

// clusters returns the clusters that the options ask for, none of them running.
func clusters(o Options) []*cluster {
	out := []*cluster{newCluster(o.Dir, "hub", hub)}
	if o.OrdinaryHub {
		out[0].role = full
	}
	member := full
	if o.Bare {
		member = bare
	}
	for i := range o.Members {
		out = append(out, newCluster(o.Dir, fmt.Sprintf("member-%d", i+1), member))
	}
	out[0].large = o.LargeHub
	for i, c := range out {
		c.audit, c.address, c.Traits = o.Audit, o.Address, alike
		if !o.Alike {
			c.Traits = differing(i)
		}
	}
	return out
}

// oneAtATime returns a function that calls f for one goroutine at a time.
func oneAtATime(f func(string)) func(string) {
	var mu sync.Mutex
	return func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		f(msg)
	}
}
