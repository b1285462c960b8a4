// Package restart safely recreates pods that are older than a policy, by means of their own controllers. It also
// reports in the policies' status which pods are injected.
//
// For each namespace it gathers a snapshot, decides, and carries out the resulting plan. The decision is a pure
// function of the snapshot. If a workload must be checked before it is touched, the decision requests the check, and is
// then repeated with the result.
//
// The progress of a recreation survives a restart of the controller. It is stored in the annotation of the workload's
// template, and in the status of policies, which is written before a workload is touched. State that is only in memory
// can delay a recreation, but never speed it up.
package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/rescue"
)

// interval is the shortest time between two reconciliations of a namespace. The first event is handled at once. Events
// within the interval are handled together.
const interval = time.Second

// workers is the number of namespaces that are reconciled in parallel.
const workers = 3

// preflights is the maximum number of rounds of checks in one reconciliation.
const preflights = 4

// DefaultPatience is how long a workload may be without progress before the rollout is halted.
const DefaultPatience = 10 * time.Minute

// Options configure the controller.
type Options struct {
	// Client reads and writes without a cache.
	Client client.Client
	// SystemNamespace is the namespace of the controller. Its pods are not injected.
	SystemNamespace string
	// Disabled is true if existing pods are not recreated. The controller then only writes statuses.
	Disabled bool
	// Patience is how long a workload may be without progress; zero means DefaultPatience.
	Patience time.Duration
	// Log logs the actions of the controller.
	Log logr.Logger
	// Now is the clock that all replicas share; nil means the clock of the machine.
	Now func() time.Time
}

// controller reconciles each namespace with at most one worker at a time, and stores the state between two
// reconciliations. See [Setup].
type controller struct {
	log       logr.Logger
	dynamic   dynamic.Interface
	view      *view
	queue     workqueue.TypedRateLimitingInterface[string] // Set by Start.
	gatherer  gatherer
	preflight preflight
	applier   applier
	census    census

	mu         sync.Mutex
	namespaces map[string]*namespaceState
	lastRun    map[string]time.Time
}

// Setup registers the controller with the manager, which runs it in the leading replica.
func Setup(mgr ctrl.Manager, o Options) error {
	from, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return mgr.Add(newController(o, from, mgr.GetEventRecorder("refract")))
}

func newController(o Options, from dynamic.Interface, recorder events.EventRecorder) *controller {
	now, patience := o.Now, cmp.Or(o.Patience, DefaultPatience)
	if now == nil {
		now = time.Now
	}
	excluded := map[string]bool{}
	for _, namespace := range refractv1beta1.ExemptNamespaces(o.SystemNamespace) {
		excluded[namespace] = true
	}
	c := &controller{
		log: o.Log, dynamic: from,
		preflight:  preflight{client: o.Client, log: o.Log, now: now},
		applier:    applier{client: o.Client, recorder: recorder, log: o.Log, now: now},
		namespaces: map[string]*namespaceState{}, lastRun: map[string]time.Time{},
	}
	c.view = newView(o.Log, now, c.changed)
	c.gatherer = gatherer{
		client: o.Client, view: c.view, log: o.Log, now: now, patience: patience, disabled: o.Disabled, excluded: excluded,
	}
	return c
}

var _ manager.LeaderElectionRunnable = (*controller)(nil)

// NeedLeaderElection returns true: only the leading replica runs the controller.
func (c *controller) NeedLeaderElection() bool { return true }

// changed adds a namespace to the queue if it has policies or had some.
func (c *controller) changed(namespace string) {
	c.mu.Lock()
	known := c.namespaces[namespace] != nil
	c.mu.Unlock()
	if known || c.view.policies.has(namespace) {
		c.queue.Add(namespace)
	}
}

// newQueue returns an empty queue. Its goroutine runs until the queue is shut down.
func newQueue() workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](interval, lastLook))
}

// Start runs the controller until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.queue = newQueue()
	defer c.queue.ShutDown()
	if err := c.view.follow(ctx, c.dynamic, &running); err != nil {
		return nil // The context has ended before everything was listed. This is no error.
	}
	for range workers {
		running.Go(func() {
			for c.processQueue(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// processQueue reconciles the next namespace. It returns false after the queue was shut down.
func (c *controller) processQueue(ctx context.Context) bool {
	namespace, over := c.queue.Get()
	if over {
		return false
	}
	defer c.queue.Done(namespace)
	if wait := c.early(namespace); wait > 0 {
		c.queue.AddAfter(namespace, wait)
		return true
	}
	again, err := c.rescued(ctx, namespace)
	switch {
	case ctx.Err() != nil:
	case rescue.Is(err): // The log and the status of the policies already have the panic.
		c.queue.AddRateLimited(namespace)
		return true
	case err != nil:
		c.log.Error(err, "Cannot update all objects of a namespace; trying again", "namespace", namespace)
		c.queue.AddRateLimited(namespace)
		return true
	case again > 0:
		c.queue.AddAfter(namespace, again)
	}
	c.queue.Forget(namespace)
	return true
}

// rescued calls reconcile. It reports a panic in the status of the namespace's policies, whose rollouts stop. Rollouts
// in other namespaces continue.
func (c *controller) rescued(ctx context.Context, namespace string) (time.Duration, error) {
	again, err := func() (again time.Duration, err error) {
		defer rescue.To(&err, c.log, "rollout", "namespace", namespace)
		return c.reconcile(ctx, namespace)
	}()
	if rescue.Is(err) {
		return 0, errors.Join(err, c.applier.reportPanic(ctx, c.namespace(namespace), c.view.policies.all(namespace), err))
	}
	return again, err
}

// early returns how long the next reconciliation of a namespace must still wait; zero if it may begin now.
func (c *controller) early(namespace string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // The machine's clock and not the clock of the options, because this limits the load on the machine.
	if wait := c.lastRun[namespace].Add(interval).Sub(now); wait > 0 {
		return wait
	}
	c.lastRun[namespace] = now
	return 0
}

// reconcile reconciles a namespace. It returns the time after which it must be reconciled again even without an event;
// zero if this is not necessary.
func (c *controller) reconcile(ctx context.Context, namespace string) (again time.Duration, err error) {
	if !c.view.policies.has(namespace) {
		return c.forget(namespace), nil
	}
	ns := c.namespace(namespace)
	s := c.gatherer.gather(ctx, ns)
	p := decide(s)
	for range preflights {
		if len(p.resolve)+len(p.probe)+len(p.owners) == 0 {
			break
		}
		c.preflight.resolve(ctx, ns, p.resolve)
		for _, q := range p.probe {
			c.preflight.probe(ctx, ns, q)
		}
		if len(p.owners) > 0 {
			c.gatherer.expire(ns, p.owners)
			s = c.gatherer.gather(ctx, ns)
		}
		s.now = c.gatherer.now()
		p = decide(s)
	}
	err = c.applier.apply(ctx, ns, s, p)
	c.census.set(namespace, p.pods)
	if len(p.resolve)+len(p.probe)+len(p.owners)+len(p.touches) > 0 {
		return interval, err
	}
	return p.again, err
}

func (c *controller) namespace(name string) *namespaceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespaces[name] == nil {
		c.namespaces[name] = newNamespaceState(name)
	}
	return c.namespaces[name]
}

// forget drops the state of a namespace that has no policies any more. It keeps recent evictions, because the same
// policy may be created again. It returns the time after which it must be called again for these; zero without any.
func (c *controller) forget(namespace string) time.Duration {
	c.census.set(namespace, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := newNamespaceState(namespace)
	if was := c.namespaces[namespace]; was != nil {
		now, patience := c.gatherer.now(), c.gatherer.patience
		for uid, m := range was.workloads {
			if m.lacks(now, patience) {
				kept.workloads[uid] = workloadState{ref: m.ref, evicted: m.evicted, pods: m.pods, changed: m.changed}
			}
		}
	}
	if len(kept.workloads) > 0 {
		c.namespaces[namespace] = kept
		return c.gatherer.patience
	}
	delete(c.namespaces, namespace)
	delete(c.lastRun, namespace)
	return 0
}
