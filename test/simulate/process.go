package simulate

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/leadership"
	"refract.dev/fleet/propagation"
)

// leaseDuration is the time after which another replica takes over the Lease of a killed replica. It is long, because
// renewals are most of the requests.
const leaseDuration = 2 * time.Minute

// Process is one run of a replica of the controllers. After a restart, the replica is a new process.
type Process struct {
	// Name is unique among processes, and the user of its requests.
	Name string
	// Replica is the name of the replica. All processes of a replica have the same one.
	Replica string

	skew    time.Duration    // Error of its machine's clock.
	cut     map[*Target]bool // API servers that it cannot reach.
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
	killed  bool
	unique  string    // Its number among all processes.
	to      io.Writer // Nil without logging.
	leading *leadership.Leadership
}

// Running reports whether the process was neither killed nor has ended.
func (p *Process) Running() bool {
	if p.killed {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// start runs a replica against the hub.
func (w *World) start(replica string) *Process { return w.launch(replica, w.Hub, (*Process).propagate) }

// launch runs a program against an API server.
func (w *World) launch(replica string, home *Target, program func(*Process, context.Context, *rest.Config, gate) error) *Process {
	p := &Process{
		Name: fmt.Sprintf("%s.%d", replica, len(w.Processes)+1), Replica: replica,
		unique: strconv.Itoa(len(w.Processes) + 1), cut: map[*Target]bool{}, skew: w.Skews[replica], done: make(chan struct{}), to: w.Journal.to,
	}
	w.Processes = append(w.Processes, p)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	cfg := &rest.Config{
		Host: "https://" + home.Host, Transport: gate{w, p}, QPS: -1, UserAgent: "refract/" + replica, WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	}
	go func() {
		defer close(p.done)
		p.err = program(p, ctx, cfg, gate{w, p})
	}()
	return p
}

// log returns the logger of a process.
func (p *Process) log() logr.Logger {
	if p.to == nil {
		return logr.Discard()
	}
	return funcr.New(func(prefix, args string) { fmt.Fprintf(p.to, "    %s %s %s\n", p.Name, prefix, args) }, funcr.Options{Verbosity: 1})
}

// manage returns a manager like that of `refract run`, and the clock of its API server.
func (p *Process) manage(cfg *rest.Config, elect func(*ctrl.Options) error) (ctrl.Manager, *hub.Clock, error) {
	clock := hub.NewClock(time.Now().Add(p.skew))
	clock.Follow(cfg)
	scheme, err := hub.Scheme()
	if err != nil {
		return nil, nil, err
	}
	o := ctrl.Options{
		Scheme: scheme, Logger: p.log(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: map[string]cache.Config{systemNamespace: {}}}},
		},
	}
	if err := elect(&o); err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(cfg, o)
	return mgr, clock, err
}

// propagate is `refract run` on a hub, without installation and webhook.
func (p *Process) propagate(ctx context.Context, cfg *rest.Config, members gate) error {
	mgr, clock, err := p.manage(cfg, func(*ctrl.Options) error { return nil })
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var controller *propagation.Controller
	options := propagation.Options{
		SystemNamespace: systemNamespace, Identity: p.Replica, Guard: 30, Now: clock.Now, Members: members, Turn: turn,
	}
	part := leadership.Options{
		Leases: clients.CoordinationV1(), Namespace: systemNamespace, Identity: p.Replica, Unique: p.unique, LeaseDuration: leaseDuration,
		Log: p.log().WithName("leadership"),
		OnChange: func() {
			if controller != nil {
				controller.LeadershipChanged()
			}
		},
	}
	if err := members.world.vary(p.Replica, &options, &part); err != nil {
		return err
	}
	if p.leading, err = leadership.New(part); err != nil {
		return err
	}
	options.Leadership = p.leading
	if controller, err = propagation.Setup(ctx, mgr, options); err != nil {
		return err
	}
	if err := mgr.Add(everywhere(p.leading.Run)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// turn makes workers run one at a time: each sleeps until a different time. A worker that is about to take a key sleeps
// until all others wait, so that all keys that arrive at the same time are in the queue.
func turn(work string) {
	if work == "" {
		time.Sleep(time.Nanosecond)
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(work)) // It never fails.
	time.Sleep(time.Duration(1 + h.Sum32()%turns))
}

// turns is the number of possible sleep times, in nanoseconds. All of them are shorter than the wait of [World.settle].
const turns = 10_000

// everywhere is a runnable that every replica runs.
type everywhere func(context.Context) error

// Start runs the function until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }

// kill ends a process immediately: its later requests are not answered.
func (w *World) kill(p *Process) {
	p.killed = true
	w.gates.kill(p)
	p.cancel()
}

// stop ends a process like SIGTERM.
func (w *World) stop(p *Process) { p.cancel() }
