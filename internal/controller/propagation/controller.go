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
	"errors"
	"fmt"
	"strings"
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

	"refract.dev/internal/fair"
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

// Shards say for which members this replica of the controllers writes. They are
// safe for many goroutines.
type Shards interface {
	// Leads reports whether this replica decides on placement and keeps the reports.
	Leads() bool
	// Owns reports whether this replica may write to the member now.
	Owns(member string) bool
	// Begin reports whether work on a member may begin now. If so, no other replica
	// gets the member before end was called, and the work has to end with the context.
	Begin(ctx context.Context, member string) (_ context.Context, end func(), ok bool)
	// SetMembers says which members there are.
	SetMembers(names []string)
}

// Options are what the controller is set up with.
type Options struct {
	// SystemNamespace holds the Secrets of FederatedClusters.
	SystemNamespace string
	// Shards are those of this replica.
	Shards Shards
	// Guard is the share of a member's copies, in percent, that may go at once without
	// somebody's approval; 100 for all.
	Guard int
	// NamespaceLabels are the labels, beside those of pod security, that a namespace which
	// is made on a member has as on the hub; see [CheckNamespaceLabel].
	NamespaceLabels []string
	// EmptyAfter is for how long a namespace that was made on a member is marked as empty
	// before it is deleted; zero if it stays. It is [LeastEmpty] or more.
	EmptyAfter time.Duration
	// GuardAll has it judge copies, too, of objects that somebody deleted on the hub by
	// a call.
	GuardAll bool
	// Identity names this replica to members, in its user agent.
	Identity string
	// Started, if it is not nil, is called once when the policies and clusters are
	// known and the work begins.
	Started func()
}

// mostDecisions is how long decisions on the objects of a namespace may take at once before
// they are made after those of all others.
const mostDecisions = time.Second

// Controller is the propagation controller. See [Setup].
type Controller struct {
	client   client.Client // Reads from caches.
	live     client.Reader
	recorder events.EventRecorder
	log      logr.Logger
	hub      string // UID of the hub: that of its namespace kube-system.

	shards   Shards
	members  *member.Set
	clusters *member.Reconciler
	sources  *sources
	policies *policies
	records  *records
	state    *state

	decide    *workQueue[Key]
	report    *workQueue[Key]
	review    *workQueue[tree.Policy]
	placement *workQueue[struct{}] // Clusters are others than before.
	ownership *workQueue[struct{}] // This replica has other members, or leads.
	pending   *workQueue[string]   // Clusters on which deletions are held back.

	guardPercent int
	emptyAfter   time.Duration // Of namespaces; zero if they stay.

	carried       namespaceLabels
	hubNamespaces *view
	guardAll      bool
	large         chan struct{} // Has as many as large copies are being written.

	charges fair.Charges

	epoch   atomic.Int64 // Of policies and clusters.
	started atomic.Bool
	primed  atomic.Bool // Whether everything was decided about once.

	contents atomic.Pointer[contents] // What was last collected of the hub.

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // The life of the appliers, which begin as members join.
	appliers map[string]*applier
	labels   map[string]map[string]string // Those of the hub's namespaces that members have, too.
	running  sync.WaitGroup
}

// Setup registers the propagation controller with the manager: the hub's
// FederatedClusters, and all objects that ask to be propagated.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Controller, error) {
	set := &member.Set{Log: mgr.GetLogger().WithName("member")}
	hub, err := hubUID(ctx, mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	c := &Controller{
		hub:          hub,
		client:       mgr.GetClient(),
		live:         mgr.GetAPIReader(),
		recorder:     mgr.GetEventRecorder("refract"),
		log:          mgr.GetLogger().WithName("propagation"),
		guardPercent: o.Guard,
		emptyAfter:   o.EmptyAfter,
		carried:      o.NamespaceLabels,
		guardAll:     o.GuardAll,
		large:        make(chan struct{}, maxLarge),
		shards:       o.Shards,
		members:      set,
		state:        newState(),
		appliers:     map[string]*applier{}, labels: map[string]map[string]string{}, charges: fair.Charges{Most: mostDecisions},
	}
	c.clusters = &member.Reconciler{
		Client: mgr.GetClient(), Set: set, SystemNamespace: o.SystemNamespace, Identity: o.Identity, Hub: types.UID(hub),
		Owns: o.Shards.Owns, Pending: c.pendingDeletions,
	}
	if err := c.clusters.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the cluster controller: %w", err)
	}
	c.sources = newSources(dyn, disco, c.log, func(key Key, initial bool) {
		u := priorityChanged
		if initial {
			u = priorityResync
		}
		c.decide.add(key, priorityOf(key, u))
	})
	c.hubNamespaces = &view{changed: c.namespaceChanged}
	c.policies = newPolicies(c.log, c.policyChanged)
	c.records = &records{
		log:     c.log,
		items:   map[Key]*known{},
		found:   func(key Key) { c.decide.add(key, priorityResync) },
		changed: c.recordChanged,
		deleted: func(key Key) { c.report.add(key, priorityResync) },
	}
	set.Served = c.sources.served
	set.OnCopy = c.copyChanged
	set.OnReadiness = func(_ *member.Member, key Key) { c.report.addAfter(key, readinessDelay) }
	set.OnChange = c.clusterChanged
	set.Emptied = c.emptied
	set.Ours = c.ours
	if c.decide, err = newWorkQueue("decide", deciders, c.log, c.decideOne); err != nil {
		return nil, err
	}
	if c.report, err = newWorkQueue("report", reporters, c.log, c.reportOne); err != nil {
		return nil, err
	}
	if c.review, err = newWorkQueue("review", 1, c.log, c.reviewOne); err != nil {
		return nil, err
	}
	if c.placement, err = newWorkQueue("placement", 1, c.log, c.placeAll); err != nil {
		return nil, err
	}
	if c.pending, err = newWorkQueue("held", 1, c.log, func(_ context.Context, name string) (reconcile.Result, error) {
		set.Recheck(name)
		return reconcile.Result{}, nil
	}); err != nil {
		return nil, err
	}
	if c.ownership, err = newWorkQueue("ownership", 1, c.log, c.ownAll); err != nil {
		return nil, err
	}
	return c, mgr.Add(&runner{Controller: c, manager: mgr, begun: o.Started})
}

// priorityOf is u, but for what others need to be there first.
func priorityOf(key Key, u priority) priority {
	if u >= priorityDependency && (key.GroupResource == namespaceResource.GroupResource() || key.GroupResource == crdResource.GroupResource()) {
		return priorityRequired
	}
	return u
}

// runner is the controller as the manager runs it.
type runner struct {
	*Controller

	manager ctrl.Manager
	begun   func()
}

// NeedLeaderElection says that every replica runs it.
func (r *runner) NeedLeaderElection() bool { return false }

// Start runs the controller until ctx ends.
func (r *runner) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	r.decide.queue.costs = func(key Key) bool { return r.charges.Over(key.Namespace, time.Now()) }

	if err := r.policies.watch(ctx, r.manager, &r.running); err != nil {
		return err
	}
	if err := r.records.watch(ctx, r.manager, &r.running); err != nil {
		return err
	}
	// Placement is first decided when every cluster has been looked at once.
	if err := r.clusters.Prime(ctx); err != nil {
		return err
	}
	r.running.Go(func() { r.sources.reflector(namespaceResource, "", r.hubNamespaces, func() {}).RunWithContext(ctx) })
	r.shards.SetMembers(r.members.Names())
	for _, name := range r.members.Names() {
		r.clusterChanged(name) //nolint:contextcheck // It may have joined before there was a ctx; it has that from the controller.
	}
	r.started.Store(true)
	if r.begun != nil {
		r.begun()
	}
	errs := make(chan error, 8)
	for _, run := range []func(context.Context) error{
		r.sources.run, r.decide.start, r.report.start, r.review.start, r.placement.start, r.ownership.start, r.pending.start, r.prime,
	} {
		r.running.Go(func() { errs <- run(ctx) })
	}
	err := <-errs // The first to end ends all, whether ctx ended or it failed.
	cancel()
	r.running.Wait()
	r.members.Close()
	return err
}

// primingPatience is for how long nothing may be decided any more before what is left
// is not waited for.
const primingPatience = 30 * time.Second

// prime waits until everything was decided about that is there at the start, or of which
// there is a Propagation, and then for the end of ctx. Before that nobody knows what is to
// go. What has a Propagation and is not there counts as much as what is: were it not waited
// for, it would come to the guards little by little, and a little may go unasked.
func (c *Controller) prime(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var p priming
	for !c.primed.Load() {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			keys, complete := c.sources.all()
			if complete && c.state.unknown(keys) == 0 && p.over(c.state.unknown(c.records.keys()), now) {
				c.state.primed()
				c.primed.Store(true)
			}
		}
	}
	<-ctx.Done()
	return nil
}

// priming waits for decisions about what the hub reports on.
type priming struct {
	left  int       // The fewest that were left,
	since time.Time // and since when.
}

// over reports whether there is nothing to wait for: none is left, or those that are
// have failed for so long, as of a type that may not be listed, that they may do so for
// ever, which is no reason never to be ready.
func (p *priming) over(left int, now time.Time) bool {
	if p.since.IsZero() || left < p.left {
		p.left, p.since = left, now
	}
	return left == 0 || now.Sub(p.since) > primingPatience
}

// Ready returns nil when the controller is at work: it knows policies and clusters
// and has decided about everything that was there when it began.
func (c *Controller) Ready() error {
	switch {
	case !c.started.Load():
		return errors.New("policies and clusters are being read")
	case !c.primed.Load():
		return errors.New("objects are being read")
	default:
		return nil
	}
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
	for _, key := range c.state.usersOf(ref) {
		c.decide.add(key, priorityDependency)
	}
	c.review.add(ref, priorityDependency)
}

// copyChanged has a member look at a copy that came, changed or went.
func (c *Controller) copyChanged(m *member.Member, key Key) {
	if c.state.desired(key) == nil {
		c.decide.add(key, priorityResync)
		return
	}
	c.mu.Lock()
	a := c.appliers[m.Name]
	c.mu.Unlock()
	if a != nil && a.member == m {
		a.queue.add(key, priorityDependency)
	}
}

// ShardsChanged is to be called when this replica owns other members than before,
// or begins to lead. It does not block.
func (c *Controller) ShardsChanged() { c.ownership.add(struct{}{}, priorityRequired) }

// ownAll looks at every member anew.
func (c *Controller) ownAll(ctx context.Context, _ struct{}) (reconcile.Result, error) {
	for _, name := range c.members.Names() {
		c.members.Recheck(name)
		c.clusterChanged(name) //nolint:contextcheck // What it begins lives as long as the controller.
	}
	return c.placeAll(ctx, struct{}{}) // What came before this replica led waits for it.
}

// clusterChanged keeps the appliers in line with the members, and has
// everything decided anew, soon.
func (c *Controller) clusterChanged(name string) {
	c.epoch.Add(1)
	c.mu.Lock()
	if c.ctx == nil || c.ctx.Err() != nil {
		c.mu.Unlock()
		return // The controller does not run yet, or not any more.
	}
	m := c.members.Get(name)
	owned := c.shards.Owns(name)
	a := c.appliers[name]
	switch {
	case a != nil && !owned:
		a.stop()
		delete(c.appliers, name)
		ended := a.ended // There is no a any more by the time that this is asked.
		c.running.Go(func() {
			<-ended
			c.members.Disown(name)
		})
		a = nil
	case m != nil && !owned:
		c.running.Go(func() { c.members.Disown(name) })
	case a != nil && a.member != m:
		a.stop()
		delete(c.appliers, name)
		a = nil
	}
	if m != nil && owned && a == nil {
		if err := c.begin(m); err != nil {
			c.log.Error(err, "Cannot begin to write to cluster", "cluster", name)
		}
	}
	if a != nil {
		for _, key := range a.guard.keys() {
			a.queue.add(key, priorityDependency) // What is held may have been approved.
		}
		for _, key := range c.state.on(name) {
			a.queue.add(key, priorityResync) // It may have been lost, or reached again.
		}
	}
	if !c.members.Known(name) {
		for _, key := range c.state.leave(name) {
			c.reportLater(key)
		}
		forgetMetrics(name)
	}
	c.mu.Unlock()
	c.shards.SetMembers(c.members.Names())
	c.placement.addAfter(struct{}{}, clusterDelay)
}

// clusterDelay is how long what else changes about clusters is waited for, before
// all objects are placed anew.
const clusterDelay = 50 * time.Millisecond

// placeAll has everything decided anew. Only clusters for which that comes to
// something else will hear of it.
func (c *Controller) placeAll(context.Context, struct{}) (reconcile.Result, error) {
	keys, _ := c.sources.all() // Some may wait for this replica to lead.
	for _, key := range append(keys, c.state.keys()...) {
		c.decide.add(key, priorityResync)
	}
	return reconcile.Result{}, nil
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
	c.running.Go(func() { a.run(ctx) })
	return nil
}

// pendingDeletions says what the guard of a cluster holds back.
func (c *Controller) pendingDeletions(name string) (message string, held bool) {
	c.mu.Lock()
	a := c.appliers[name]
	c.mu.Unlock()
	if a == nil {
		return "", false
	}
	copiesHeld.WithLabelValues(name).Set(float64(a.member.Count()))
	message, keys := a.guard.show(name)
	deletionsPending.WithLabelValues(name).Set(float64(len(keys)))
	return message, message != ""
}

// ours reports whether the object is a copy that came from this hub.
func (c *Controller) ours(key Key, copied member.Copy) bool {
	return strings.HasPrefix(copied.Source, c.hub+"/") &&
		strings.HasSuffix(copied.Source, copyName(key.GroupResource, key.Namespace, key.Name))
}

// emptied reports whether nothing is left on a cluster that is leaving.
func (c *Controller) emptied(name string) bool {
	c.mu.Lock()
	a := c.appliers[name]
	c.mu.Unlock()
	return c.primed.Load() && a != nil && len(c.state.on(name)) == 0
}

// lookAgain completes what is known of an object: one that a cache does not have is looked
// for. It returns why nothing is asked for it, or in which time that may be known.
func (c *Controller) lookAgain(ctx context.Context, key Key, src *source, seen bool) (found cause, again time.Duration, err error) {
	if src.object == nil {
		if src.object, found, err = c.sources.look(ctx, key, *src); err != nil {
			return "", 0, err
		}
		if src.object == nil && found == "" {
			if !seen {
				c.state.none(key) // It may stay like this, as with a type that is not served any more.
			}
			return "", time.Second, nil
		}
	}
	if src.object != nil {
		found = asksNothing(src.object)
	}
	return found, 0, nil
}

// decideOne makes the plan of one object and hands it to the members concerned.
func (c *Controller) decideOne(ctx context.Context, key Key) (reconcile.Result, error) {
	// What changes from here on, while the key is not yet in the state or with
	// other policies, is found by this number.
	epoch := c.epoch.Load()
	told := c.sources.deletion(key)
	was, seen := c.state.previous(key)
	if !seen {
		was = c.remembered(key)
	}
	lead := c.state.followed(key, was.follows)
	if len(lead.by)+len(lead.unknown) > 0 {
		c.sources.want(key)
	}
	c.decideAll(lead.unknown)
	src, known := c.sources.get(key)
	if !known {
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil
	}
	found, again, err := c.lookAgain(ctx, key, &src, seen)
	if err != nil || again > 0 {
		return reconcile.Result{RequeueAfter: again}, err
	}
	s := &inputs{
		hub:         c.hub,
		clusters:    c.members.Clusters(),
		propagation: c.policies.propagation,
		override:    c.policies.override,
		resource:    c.sources.resource,
		followed:    lead,
		may:         c.policies.may,
	}
	if !c.shards.Leads() {
		k, found := c.records.get(key)
		s.recorded = &previous{placed: k.placed, hash: k.hash}
		if src.object != nil && (!found || k.source != src.object.GetUID()) {
			c.state.none(key)
			c.sources.noted(key, told)
			return reconcile.Result{}, nil // The replica that leads has not placed it yet; its record says when.
		}
	}
	began := time.Now()
	p := decideSafely(key, src, was, s, c.log)
	p.made = time.Now()
	c.charges.Add(key.Namespace, p.made.Sub(began), p.made)
	if p.gone && !seen && len(was.placed) == 0 && c.neverWas(key) {
		c.sources.noted(key, told)
		return reconcile.Result{}, nil
	}
	if p.gone {
		if p.cause, err = c.whyGone(ctx, key, found, told, &was, seen); err != nil {
			return reconcile.Result{}, err
		}
	}
	c.sources.noted(key, told)
	clusters, reviewed, followers := c.state.setDesired(key, p, was, policyNames(src.object))
	if !seen {
		c.records.taken(key)
	}
	if c.epoch.Load() != epoch {
		c.decide.add(key, priorityDependency)
	}
	for _, follower := range followers {
		c.sources.want(follower)
	}
	c.decideAll(followers)
	c.hand(key, p, clusters)
	for _, ref := range reviewed {
		c.reviewLater(ref)
	}
	if len(lead.unknown) > 0 {
		return reconcile.Result{RequeueAfter: 200 * time.Millisecond}, nil // They are being decided about.
	}
	return reconcile.Result{}, nil
}

// decideAll has these decided anew, as something else was.
func (c *Controller) decideAll(keys []Key) {
	for _, key := range keys {
		c.decide.add(key, priorityDependency)
	}
}

// neverWas reports whether nothing is known of a key whose object is not there, and
// forgets it then.
func (c *Controller) neverWas(key Key) bool {
	if _, reported := c.records.get(key); reported || c.anywhere(key) {
		return false
	}
	c.state.none(key)
	c.unfollow(key)
	c.decideAll(c.state.dismiss(key))
	return true
}

// unfollow ends that an object is followed that has no label, unless something
// still refers to it: then it may come.
func (c *Controller) unfollow(key Key) {
	if !c.state.follows(key) {
		c.sources.unwant(key)
	}
}

// anywhere reports whether a member holds a copy.
func (c *Controller) anywhere(key Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.appliers {
		if _, sight := a.member.Copy(key); sight == member.Present {
			return true
		}
	}
	return false
}

// hand gives a plan to the members that it concerns.
func (c *Controller) hand(key Key, p *desiredState, clusters []string) {
	concerned := map[string]bool{}
	for _, name := range clusters {
		concerned[name] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, a := range c.appliers {
		if concerned[name] {
			a.queue.add(key, priorityOf(key, priorityDependency))
			continue
		}
		if _, sight := a.member.Copy(key); p.targets[name] == nil && sight == member.Present {
			a.queue.add(key, priorityDependency)
		}
	}
	for name := range concerned {
		switch {
		case c.appliers[name] != nil:
		case c.shards.Owns(name):
			c.reportLater(key)
		default:
			c.report.addAfter(key, 0) // Another replica waits for it.
		}
	}
	if p.blocked != "" || len(concerned) == 0 {
		c.report.addAfter(key, settledDelay)
	}
}

// reportLater has a report written when there is likely to be more to say.
func (c *Controller) reportLater(key Key) {
	c.report.addAfter(key, max(unsettledDelay, time.Duration(len(c.members.Clusters()))*perCluster))
}
