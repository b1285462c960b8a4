// Package rollout has the pods that were there before a policy recreated by their own
// controllers, safely, and says in the policies' status which pods have what is injected.
//
// It works by namespace: gather what is known into a snapshot, decide (a pure
// function of it), apply. Where something must be found out before a workload is
// touched, the decision says what, and is made anew with the answer.
//
// What has been begun is written where it survives a restart: in the annotation of a
// workload's template, and in the status of policies, which is written before anything
// is touched. What is only remembered makes the controller more patient, never less.
package rollout

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

// interval is how soon a namespace is looked at again: the first event at once, what
// comes after it together.
const interval = time.Second

// workers is how many namespaces are looked at in parallel.
const workers = 3

// preflights bounds how often more is found out for one decision.
const preflights = 4

// DefaultPatience is how long a workload may make no progress before the rollout is
// halted.
const DefaultPatience = 10 * time.Minute

// Options are what the controller is set up with.
type Options struct {
	// Client reads and writes live. What it reads is not cached.
	Client client.Client
	// SystemNamespace is that of the controller: nothing is injected there.
	SystemNamespace string
	// Disabled has pods that are there left alone, and only the status written.
	Disabled bool
	// Patience is how long a workload may make no progress; zero means DefaultPatience.
	Patience time.Duration
	// Log is told what is done.
	Log logr.Logger
	// Now is the clock, which all replicas share; nil means that of the machine.
	Now func() time.Time
}

// controller decides when a namespace is reconciled, by one worker at a time, and keeps
// what is remembered between two of its reconciliations. See [Setup].
type controller struct {
	log       logr.Logger
	dynamic   dynamic.Interface
	view      *view
	queue     workqueue.TypedRateLimitingInterface[string]
	gatherer  gatherer
	preflight preflight
	applier   applier
	census    census

	mu         sync.Mutex
	namespaces map[string]*namespaceState
	lastRun    map[string]time.Time
}

// Setup registers the controller with the manager, of which the replica that leads
// runs it.
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
		queue:      workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](interval, lastLook)),
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

// NeedLeaderElection says that one replica runs it.
func (c *controller) NeedLeaderElection() bool { return true }

// changed has a namespace looked at if there are policies, or were.
func (c *controller) changed(namespace string) {
	c.mu.Lock()
	known := c.namespaces[namespace] != nil
	c.mu.Unlock()
	if known || c.view.policies.has(namespace) {
		c.queue.Add(namespace)
	}
}

// Start runs the controller until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer c.queue.ShutDown()
	if err := c.view.follow(ctx, c.dynamic, &running); err != nil {
		return nil // It ended before everything was listed, which is no failure.
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

// processQueue looks at the next namespace; it returns false when there will be none.
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
	case rescue.Is(err): // It is logged, and in the status of the policies.
		c.queue.AddRateLimited(namespace)
		return true
	case err != nil:
		c.log.Error(err, "Cannot bring everything of a namespace up to date, and try again", "namespace", namespace)
		c.queue.AddRateLimited(namespace)
		return true
	case again > 0:
		c.queue.AddAfter(namespace, again)
	}
	c.queue.Forget(namespace)
	return true
}

// rescued is reconcile. If Refract panics over a namespace the status of its policies says so:
// their rollout stops, and those of other namespaces go on.
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

// early returns for how long a namespace is to be left alone yet.
func (c *controller) early(namespace string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // Not the clock of the options: this is about the load.
	if wait := c.lastRun[namespace].Add(interval).Sub(now); wait > 0 {
		return wait
	}
	c.lastRun[namespace] = now
	return 0
}

// reconcile brings a namespace up to date. It returns after how long something is due
// without an event, zero if nothing is.
func (c *controller) reconcile(ctx context.Context, namespace string) (again time.Duration, err error) {
	if !c.view.policies.has(namespace) {
		c.forget(namespace)
		return 0, nil
	}
	ns := c.namespace(namespace)
	s := c.gatherer.gather(ctx, ns)
	p := decide(s)
	for range preflights {
		if len(p.resolve)+len(p.probe) == 0 {
			break
		}
		c.preflight.resolve(ctx, ns, p.resolve)
		for _, q := range p.probe {
			c.preflight.probe(ctx, ns, q)
		}
		s.now = c.gatherer.now()
		p = decide(s)
	}
	err = c.applier.apply(ctx, ns, s, p)
	c.census.set(namespace, p.pods)
	if len(p.resolve)+len(p.probe)+len(p.touches) > 0 {
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

// forget drops what is remembered of a namespace without policies.
func (c *controller) forget(namespace string) {
	c.census.set(namespace, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.namespaces, namespace)
	delete(c.lastRun, namespace)
}
