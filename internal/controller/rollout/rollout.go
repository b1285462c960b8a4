// Package rollout has the pods that were there before a policy recreated by their own
// controllers, safely, and says in the policies' status how pods stand to them.
//
// It works by namespace: gather what is known into a snapshot, decide (a pure
// function of it), apply. Where something must be found out before a workload is
// touched, the decision says what, and is made anew with the answer.
//
// What has been begun stands where it survives: in the annotation of a workload's
// template, and in the status of policies, which is written before anything is
// touched. What is only remembered makes the controller more patient, never less.
package rollout

import (
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

// rounds bounds how often more is found out for one decision.
const rounds = 4

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
	// Now is the clock; nil means that of the machine.
	Now func() time.Time
}

// controller is the rollout controller. See [Setup].
type controller struct {
	client   client.Client
	dynamic  dynamic.Interface
	recorder events.EventRecorder
	log      logr.Logger
	now      func() time.Time
	patience time.Duration
	disabled bool
	excluded map[string]bool // Namespaces into whose pods nothing is injected.

	view      *view
	queue     workqueue.TypedRateLimitingInterface[string]
	census    census
	preflight preflight

	mu     sync.Mutex
	places map[string]*place
	looked map[string]time.Time
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
	c := &controller{
		client: o.Client, dynamic: from, recorder: recorder, log: o.Log, now: o.Now, patience: o.Patience, disabled: o.Disabled,
		excluded: map[string]bool{},
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](interval, lastLook)),
		places:   map[string]*place{}, looked: map[string]time.Time{},
	}
	for _, namespace := range refractv1beta1.ExemptNamespaces(o.SystemNamespace) {
		c.excluded[namespace] = true
	}
	if c.now == nil {
		c.now = time.Now
	}
	if c.patience == 0 {
		c.patience = DefaultPatience
	}
	c.preflight = preflight{client: c.client, log: c.log, now: c.now}
	c.view = newView(c.log, c.changed)
	return c
}

var _ manager.LeaderElectionRunnable = (*controller)(nil)

// NeedLeaderElection says that one replica runs it.
func (c *controller) NeedLeaderElection() bool { return true }

// changed has a namespace looked at if there are policies, or were.
func (c *controller) changed(namespace string) {
	c.mu.Lock()
	known := c.places[namespace] != nil
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
	case rescue.Is(err): // It is logged, and stands in the policies.
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

// rescued is reconcile, and has the policies of a namespace that Refract stumbles over say
// so: their rollout stands still, and those of other namespaces go on.
func (c *controller) rescued(ctx context.Context, namespace string) (time.Duration, error) {
	again, err := func() (again time.Duration, err error) {
		defer rescue.To(&err, c.log, "rollout", "namespace", namespace)
		return c.reconcile(ctx, namespace)
	}()
	if rescue.Is(err) {
		return 0, errors.Join(err, c.admit(ctx, namespace, err))
	}
	return again, err
}

// early returns for how long a namespace is to be left alone yet.
func (c *controller) early(namespace string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now() // Not c.now: this is about the load.
	if wait := c.looked[namespace].Add(interval).Sub(now); wait > 0 {
		return wait
	}
	c.looked[namespace] = now
	return 0
}

// reconcile brings a namespace up to date. It returns after how long something is due
// without an event, zero if nothing is.
func (c *controller) reconcile(ctx context.Context, namespace string) (again time.Duration, err error) {
	if !c.view.policies.has(namespace) {
		c.leave(namespace)
		return 0, nil
	}
	at := c.place(namespace)
	s := c.gather(ctx, namespace, at)
	p := decide(s)
	for range rounds {
		if len(p.resolve)+len(p.probe) == 0 {
			break
		}
		c.preflight.resolve(ctx, namespace, at, p.resolve)
		for _, q := range p.probe {
			c.preflight.probe(ctx, namespace, at, q)
		}
		s.now = c.now()
		p = decide(s)
	}
	err = c.apply(ctx, namespace, at, s, p)
	if len(p.resolve)+len(p.probe)+len(p.touches) > 0 {
		return interval, err
	}
	return p.again, err
}

func (c *controller) place(namespace string) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.places[namespace] == nil {
		c.places[namespace] = newPlace()
	}
	return c.places[namespace]
}

// leave forgets a namespace without policies.
func (c *controller) leave(namespace string) {
	c.census.put(namespace, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.places, namespace)
	delete(c.looked, namespace)
}
