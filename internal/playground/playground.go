// Package playground runs a hub and member clusters on this machine, for a demo, an end-to-end test or experiments.
//
// The API servers, their etcds and their controllers are the real ones, built by `make controlplane`. Only the kubelets
// are simulated, by kwok: a scheduled Pod on a fake Node is running at once. No container runtime, root rights or
// network are needed. All servers listen only on 127.0.0.1, behind TLS, with certificates of this playground.
//
// A playground lives as long as the process that started it, its supervisor. When the supervisor ends in any way, the
// components end too (on Linux; on other systems only if the supervisor stops them). All data is temporary. A
// playground owns one folder:
//
//	playground.json      the state of the playground for other processes: see [State]
//	playground.lock      locked by the supervisor
//	kubeconfigs/         hub.yaml, member-1.yaml, …: kubeconfigs of administrators
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

// Options are the options of [Start].
type Options struct {
	// Dir is the folder of the playground. It must be empty, left from an earlier playground, or missing. Required.
	Dir string
	// Assets is the folder with the components' binaries. Required; see [Assets].
	Assets string
	// Members is the number of member clusters; 0 or more.
	Members int
	// Bare reduces the members to an API server and etcd: they store objects, and no controllers run.
	Bare bool
	// Alike makes all clusters equal. Otherwise they differ in their [Traits].
	Alike bool
	// OrdinaryHub makes the hub an ordinary cluster with all controllers, a scheduler and Nodes, so it runs the
	// workloads that users create there. Otherwise it has only the controllers that clean up.
	OrdinaryHub bool
	// LargeHub lets the hub store objects of more than 1.5 MiB. The members do not.
	LargeHub bool
	// Audit lets every API server write an audit log: one JSON object per line, which is an Event of audit.k8s.io/v1 at
	// the level Metadata for each answered write. See [Playground.AuditLog].
	Audit bool
	// Address, if set, is an address of this machine, other than a loopback address, where Pods reach the API servers.
	// The addresses in the kubeconfigs remain valid. The hub then runs Pods: it has all controllers and a scheduler,
	// and Pods find its API server by its Service. The caller starts the programs of its Nodes with
	// [Playground.Launch]. The API server of the hub authorizes kubelets by Node, and with Audit it also logs reads.
	Address string
	// Progress, if set, receives short sentences for the user about the progress of the start. Calls do not overlap.
	Progress func(msg string)
}

// Cluster is a running cluster.
type Cluster struct {
	// Name is "hub", "member-1", "member-2", and so on.
	Name string `json:"name"`
	// Kubeconfig is the absolute path of the kubeconfig of an administrator.
	Kubeconfig string `json:"kubeconfig"`
	// Endpoint is the URL of the API server; empty until the API server is ready.
	Endpoint string `json:"endpoint,omitempty"`
	// Etcd is the URL of the cluster's etcd; empty until etcd is ready.
	Etcd string `json:"etcd,omitempty"`
	// Traits are the properties that differ between clusters, unless the clusters are alike.
	Traits Traits `json:"traits"`
}

// Playground is a running hub with its members.
type Playground struct {
	View

	home    *home
	crew    *crew
	starter *starter

	background sync.WaitGroup // Goroutines of this process that serve the playground.
	leave      context.CancelFunc

	stopOnce sync.Once
	stopErr  error
}

// Start starts a playground, and returns when every API server is ready and the other components run: Deployments on
// members that are not bare become ready within seconds. The caller must call [Playground.Stop].
//
// If ctx ends before Start returns, Start stops all components and returns the context's cause. After that, ctx has no
// effect. If a component ends or does not become ready, Start also stops all components and returns the reason, which
// is a [*ComponentError] for a component that ended. Then the logs remain where the error says, unless ctx was
// canceled. If a playground is running in the folder, Start returns a [*RunningError].
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

// check returns the options with absolute paths, or an error if they are invalid.
func (o Options) check() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("starting a playground: no folder given")
	}
	if o.Members < 0 {
		return o, fmt.Errorf("starting a playground: members: want 0 or more, got %d", o.Members)
	}
	if o.Address != "" && (!o.Alike || o.OrdinaryHub) {
		return o, errors.New("starting a playground: a hub with running Pods needs clusters that are alike, and has all controllers already")
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

// record writes the state of the playground for other processes.
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

// Wait returns nil after [Playground.Stop] was called. It returns a [*ComponentError] if a component ends by itself
// before that. The other components keep running until [Playground.Stop].
func (p *Playground) Wait() error {
	return p.crew.wait()
}

// Failed reports whether one of the processes has ended by itself.
func (p *Playground) Failed() bool { return p.crew.failed() }

// Stop ends all components in order, and removes all files of the playground, and the folder if Start created it. It
// returns when both are done. If a component had ended by itself, the logs remain. A second call waits for the first
// and returns the same result.
func (p *Playground) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = p.end(p.crew.failed()) })
	return p.stopErr
}

// end stops all components and gives up the folder. It may be called once.
func (p *Playground) end(keepLogs bool) error {
	p.leave()
	p.background.Wait()
	p.crew.stop()
	return p.home.leave(keepLogs)
}

// clusters returns the clusters for the options. None of them runs yet.
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

// oneAtATime returns a function whose calls of f do not overlap.
func oneAtATime(f func(string)) func(string) {
	var mu sync.Mutex
	return func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		f(msg)
	}
}
