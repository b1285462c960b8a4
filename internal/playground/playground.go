// Package playground runs a hub and member clusters on this machine, for demos, end-to-end tests and experiments.
//
// The API servers, etcds and controllers are real programs, built by `make controlplane`. Only the kubelets are
// simulated, by kwok: a Pod on a fake Node runs as soon as it is scheduled. The playground needs no container runtime,
// no root permissions and no network. All servers listen only on 127.0.0.1, with TLS and certificates of this
// playground.
//
// The process that starts a playground is its supervisor. When the supervisor ends for whatever reason, all components
// end, too. (This holds on Linux. On other systems the supervisor must stop them.) All data is temporary. A playground
// owns one folder:
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
	// Dir is the folder of the playground. It must be empty or missing, or must have files of an earlier playground
	// only. Required.
	Dir string
	// Assets is the folder with the components' binaries. Required; see [Assets].
	Assets string
	// Members is the number of member clusters; 0 or more.
	Members int
	// Bare is true if members have only an API server and etcd. They store objects, but have no controllers.
	Bare bool
	// Alike is true if all clusters have the same properties. Otherwise they differ in their [Traits].
	Alike bool
	// OrdinaryHub is true if the hub has all controllers, a scheduler and Nodes, so that it also runs workloads.
	// Otherwise it only has controllers that do not run workloads.
	OrdinaryHub bool
	// LargeHub is true if the hub can store objects of more than 1.5 MiB. Members cannot.
	LargeHub bool
	// Audit is true if every API server writes an audit log. Each line is a JSON object: an Event of audit.k8s.io/v1
	// with the level Metadata, for each write that was answered. See [Playground.AuditLog].
	Audit bool
	// Address is an address of this machine at which Pods reach the API servers; not a loopback address. If it is not
	// empty, the hub can run Pods in containers. It then has all controllers and a scheduler, and its Pods find the API
	// server by its Service. The caller starts the programs of the hub's Nodes with [Playground.Launch]. The hub's API
	// server authorizes kubelets by Node, and its audit log also has reads. The addresses in the kubeconfigs do not
	// change.
	Address string
	// Progress receives short sentences for the user about the progress of the start; may be nil. Calls do not overlap.
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
	// Traits are the properties that may differ between clusters.
	Traits Traits `json:"traits"`
}

// Playground is a running hub with its members.
type Playground struct {
	View

	home    *home
	crew    *crew
	starter *starter

	background sync.WaitGroup // The goroutines of this process that work for the playground.
	leave      context.CancelFunc

	stopOnce sync.Once
	stopErr  error
}

// Start starts a playground, and returns when every API server is ready and the other components run. After that,
// Deployments become ready within seconds, except on bare members. The caller must call [Playground.Stop].
//
// If ctx ends earlier, Start stops all components and returns the cause of ctx. After Start has returned, ctx has no
// effect. If a component ends or does not become ready, Start also stops all components. The error is then a
// [*ComponentError] if a component has ended. It says where the logs are; they remain unless ctx was canceled. If a
// playground is already running in the folder, Start returns a [*RunningError].
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
		crew: p.crew, assets: o.Assets, progress: oneAtATime(o.Progress), freePorts: FreePorts, life: life, background: &p.background,
	}
	if err := p.start(ctx, o); err != nil {
		calledOff := errors.Is(ctx.Err(), context.Canceled)
		return nil, errors.Join(err, p.end(!calledOff))
	}
	return p, nil
}

// check returns the options with absolute paths. It returns an error if they are not valid.
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

// Wait waits until [Playground.Stop] is called, and then returns nil. If a component ends by itself before that, it
// returns a [*ComponentError]. The other components keep running until [Playground.Stop].
func (p *Playground) Wait() error {
	return p.crew.wait()
}

// Failed reports whether one of the processes has ended by itself.
func (p *Playground) Failed() bool { return p.crew.failed() }

// Stop stops all components in order and removes the files of the playground. It also removes the folder if Start has
// created it. If a component has ended by itself, the logs remain. A second call waits for the first and returns the
// same result.
func (p *Playground) Stop() error {
	p.stopOnce.Do(func() { p.stopErr = p.end(p.crew.failed()) })
	return p.stopErr
}

// end stops all components and releases the folder. It must be called only once.
func (p *Playground) end(keepLogs bool) error {
	p.leave()
	p.background.Wait()
	p.crew.stop()
	return p.home.leave(keepLogs)
}

// clusters returns the clusters that the options require. None of them is running.
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

// oneAtATime returns a function that calls f, such that calls never overlap.
func oneAtATime(f func(string)) func(string) {
	var mu sync.Mutex
	return func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		f(msg)
	}
}
