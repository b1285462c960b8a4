// Package propagation carries objects of the hub to member clusters, each in
// the variant that belongs there, and reports where they are.
//
// Three stations, each with a queue of its own, work on the key of an object:
//
//	decide   what should be true on every cluster   (one queue; pure but for reading caches)
//	apply    make it true on one cluster            (a queue for each member)
//	report   say what came of it                    (one queue; writes the Propagation)
//
// Each station looks at how things are now, so that no event can be lost: what
// happened while the controllers were down is found by listing.
package propagation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/internal/member"
	"refract.dev/tree"
)

// How much is done at once. Decisions are a matter of the processor, writes of
// waiting; reports come last.
const (
	deciders         = 4
	appliersByMember = 8
	reporters        = 2
)

// Controller is the propagation controller. See [Setup].
type Controller struct {
	client   client.Client // Reads from caches.
	live     client.Reader
	recorder events.EventRecorder
	log      logr.Logger
	hub      string // UID of the hub: that of its namespace kube-system.

	members  *member.Set
	primer   func(context.Context) error
	sources  *sources
	policies *policies
	ledger   *ledger

	decide *work[Key]
	report *work[Key]
	review *work[tree.Policy]

	epoch atomic.Int64 // Of policies and clusters.

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // The life of the appliers, which begin as members join.
	appliers map[string]*applier
	running  sync.WaitGroup
}

// Setup registers the propagation controller with the manager: the hub's
// FederatedClusters, whose Secrets lie in the system namespace, and all objects
// that ask to be propagated. Started, if it is not nil, is called once when the
// policies and clusters are known and the work begins.
func Setup(mgr ctrl.Manager, systemNamespace string, started func()) error {
	set := &member.Set{}
	clusters := &member.Reconciler{Client: mgr.GetClient(), Set: set, SystemNamespace: systemNamespace}
	if err := clusters.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("setting up the cluster controller: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	c := &Controller{
		client:   mgr.GetClient(),
		live:     mgr.GetAPIReader(),
		recorder: mgr.GetEventRecorder("refract"),
		log:      mgr.GetLogger().WithName("propagation"),
		members:  set,
		primer:   clusters.Prime,
		ledger:   newLedger(),
		appliers: map[string]*applier{},
	}
	c.sources = newSources(dyn, disco, c.log, func(key Key) { c.decide.add(key) })
	c.policies = newPolicies(c.policyChanged)
	set.OnCopy = c.copyChanged
	set.OnChange = c.clusterChanged
	if c.decide, err = newWork("decide", deciders, c.log, c.decideOne); err != nil {
		return err
	}
	if c.report, err = newWork("report", reporters, c.log, c.reportOne); err != nil {
		return err
	}
	if c.review, err = newWork("review", 1, c.log, c.reviewOne); err != nil {
		return err
	}
	return mgr.Add(&runner{Controller: c, manager: mgr, started: started})
}

// runner is the controller as the manager runs it.
type runner struct {
	*Controller

	manager ctrl.Manager
	started func()
}

// Start runs the controller until ctx ends.
func (r *runner) Start(ctx context.Context) error {
	hub, err := hubUID(ctx, r.live)
	if err != nil {
		return err
	}
	r.hub = hub
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()

	if err := r.policies.watch(ctx, r.manager); err != nil {
		return err
	}
	if err := r.watchReports(ctx, r.manager); err != nil {
		return err
	}
	// Placement is first decided when every cluster has been looked at once.
	if err := r.primer(ctx); err != nil {
		return err
	}
	for _, m := range r.members.All() {
		r.clusterChanged(m.Name) //nolint:contextcheck // It may have joined before there was a ctx; it has that from the controller.
	}
	if r.started != nil {
		r.started()
	}
	errs := make(chan error, 4)
	for _, run := range []func(context.Context) error{r.sources.run, r.decide.start, r.report.start, r.review.start} {
		r.running.Go(func() { errs <- run(ctx) })
	}
	err = <-errs // The first to end ends all, whether ctx ended or it failed.
	cancel()
	r.running.Wait()
	r.members.Close()
	return err
}

// hubUID identifies the hub for as long as it lives.
func hubUID(ctx context.Context, hub client.Reader) (string, error) {
	ns := &corev1.Namespace{}
	if err := hub.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identifying the hub: %w", err)
	}
	return string(ns.UID), nil
}

// policyChanged has everything decided anew that names the policy.
func (c *Controller) policyChanged(ref tree.Policy) {
	c.epoch.Add(1)
	for _, key := range c.ledger.usersOf(ref) {
		c.decide.add(key)
	}
	c.review.add(ref)
}

// copyChanged has a member look at a copy that came, changed or went.
func (c *Controller) copyChanged(m *member.Member, key Key) {
	if c.ledger.plan(key) == nil {
		c.decide.add(key)
		return
	}
	c.mu.Lock()
	a := c.appliers[m.Name]
	c.mu.Unlock()
	if a != nil && a.member == m {
		a.work.add(key)
	}
}

// clusterChanged keeps the appliers in line with the members, and has
// everything decided anew.
func (c *Controller) clusterChanged(name string) {
	c.epoch.Add(1)
	c.mu.Lock()
	if c.ctx == nil || c.ctx.Err() != nil {
		c.mu.Unlock()
		return // The controller does not run yet, or not any more.
	}
	m := c.members.Get(name)
	a := c.appliers[name]
	if a != nil && a.member != m {
		a.stop()
		delete(c.appliers, name)
	}
	if m != nil && (a == nil || a.member != m) {
		if err := c.begin(m); err != nil {
			c.log.Error(err, "Cannot begin to write to cluster", "cluster", name)
		}
	}
	if !c.members.Known(name) {
		for _, key := range c.ledger.leave(name) {
			c.report.addAfter(key, unsettledDelay)
		}
	}
	c.mu.Unlock()
	for _, key := range c.ledger.keys() {
		c.decide.add(key)
	}
}

// begin makes the applier of a member. The lock must be held.
func (c *Controller) begin(m *member.Member) error {
	a, err := newApplier(c, m)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(c.ctx)
	a.stop = stop
	c.appliers[m.Name] = a
	c.running.Go(func() {
		if err := a.work.start(ctx); err != nil {
			c.log.Error(err, "Writing to a cluster ended", "cluster", m.Name)
		}
	})
	return nil
}

// decideOne makes the plan of one object and hands it to the members concerned.
func (c *Controller) decideOne(ctx context.Context, key Key) (reconcile.Result, error) {
	src, known := c.sources.get(key)
	if !known {
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil
	}
	if src.object == nil {
		gone, err := c.sources.gone(ctx, key, src)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !gone {
			return reconcile.Result{RequeueAfter: time.Second}, nil
		}
	}
	// What changes from here on, while the key is not yet in the ledger or with
	// other policies, is found by this number.
	epoch := c.epoch.Load()
	was, seen := c.ledger.recall(key)
	if !seen {
		var err error
		if was, err = c.remembered(ctx, key); err != nil {
			return reconcile.Result{}, err
		}
	}
	p := decide(src, was, &surroundings{
		hub:         c.hub,
		clusters:    c.members.Clusters(),
		propagation: c.policies.propagation,
		override:    c.policies.override,
	})
	clusters, reviewed := c.ledger.put(key, p, was, policyNames(src.object))
	if c.epoch.Load() != epoch {
		c.decide.add(key)
	}
	concerned := map[string]bool{}
	for _, name := range clusters {
		concerned[name] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, a := range c.appliers {
		if _, sight := a.member.Copy(key); concerned[name] || sight == member.Present || sight == member.Unlisted {
			a.work.add(key)
		}
	}
	for name := range concerned {
		if c.appliers[name] == nil {
			c.report.addAfter(key, unsettledDelay)
		}
	}
	if p.held != "" || len(p.targets) == 0 {
		c.report.addAfter(key, settledDelay)
	}
	for _, ref := range reviewed {
		c.review.addAfter(ref, reviewDelay)
	}
	return reconcile.Result{}, nil
}
