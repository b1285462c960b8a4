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
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/member"
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
	// Guard is the share of a member's copies, in percent, that may be deleted at once without
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
	// KeptKinds are the kinds whose copies are deleted without approval only if a user deletes their object.
	KeptKinds KeptKinds
	// Identity names this replica to members, in its user agent.
	Identity string
	// Now is the time by the clock that replicas share: what one writes down others compare.
	Now func() time.Time
	// Started, if it is not nil, is called once when the policies and clusters are
	// known and the work begins.
	Started func()
}

// Controller is the propagation controller. See [Setup].
type Controller struct {
	log      logr.Logger
	members  *member.Set
	clusters *member.Reconciler
	state    *state

	decider    *decider
	dispatcher *dispatcher
	reporter   *reporter
	reviewer   *reviewer
	inventory  *inventory
	namespaces *hubNamespaces
	revisions  *revisions
	spare      *spare

	started atomic.Bool
}

// Setup registers the propagation controller with the manager: the hub's
// FederatedClusters, and all objects that ask to be propagated.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Controller, error) {
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
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	secrets := member.NewSecrets(core.RESTClient(), o.SystemNamespace)
	if err := mgr.Add(secrets); err != nil {
		return nil, err
	}
	c, err := connect(o, hubAccess{
		uid: hub, client: mgr.GetClient(), live: mgr.GetAPIReader(), secrets: secrets, recorder: mgr.GetEventRecorder("refract"), log: mgr.GetLogger(),
	}, newSources(dyn, disco, mgr.GetLogger().WithName("propagation")))
	if err != nil {
		return nil, err
	}
	if err := c.clusters.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the cluster controller: %w", err)
	}
	return c, mgr.Add(&runner{controller: c, manager: mgr, begun: o.Started})
}

// hubAccess is how the stations reach the hub.
type hubAccess struct {
	uid      string
	client   client.Client // Reads from caches.
	live     client.Reader
	secrets  member.SecretReader
	recorder events.EventRecorder
	log      logr.Logger
}

// connect makes the stations, and tells each of those that it hands keys to.
func connect(o Options, hub hubAccess, sources *sources) (*Controller, error) {
	log := hub.log.WithName("propagation")
	members := &member.Set{Log: hub.log.WithName("member")}
	assigned := o.Shards
	o.Shards = &namedShards{assigned, members}
	policies, state := newPolicies(log), newState()
	records := &records{log: log, live: hub.live, successor: members.Successor, items: map[Key]*known{}}

	revisions, err := newRevisions(&revisions{
		client: hub.client, live: hub.live, rollouts: records.rollouts,
		leads: o.Shards.Leads, system: o.SystemNamespace,
	}, log)
	if err != nil {
		return nil, err
	}
	state.owns, state.digest = o.Shards.Owns, revisions.key.digest
	reviewer, err := newReviewer(&reviewer{client: hub.client, shards: o.Shards, members: members, policies: policies, state: state, records: records}, log)
	if err != nil {
		return nil, err
	}
	reporter, err := newReporter(&reporter{
		client: hub.client, live: hub.live, recorder: hub.recorder,
		shards: o.Shards, members: members, records: records, state: state, reviewer: reviewer, revisions: revisions, now: o.Now,
		yielding: newYielding(),
	}, log)
	if err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(&dispatcher{log: log, shards: o.Shards, members: members, state: state, records: records, reporter: reporter})
	if err != nil {
		return nil, err
	}
	decider, err := newDecider(&decider{
		hub: hub.uid, log: log, shards: o.Shards, members: members, sources: sources, policies: policies, records: records, state: state,
		dispatcher: dispatcher, reviewer: reviewer, revisions: revisions, unguarded: o.Guard == unguarded, keptKinds: o.KeptKinds,
		ahead: &ahead{now: time.Now, idle: map[string]time.Time{}},
	})
	if err != nil {
		return nil, err
	}
	dispatcher.decider, reporter.decider, revisions.decider = decider, decider, decider
	reporter.judge, reporter.pend = dispatcher.copyChanged, dispatcher.pend
	// Of what is to be decided about, copies may come, as when a cluster joins that is to have one of everything. Who takes much
	// time for decisions delays no report of others by them, nor does what cannot be decided about yet.
	reporter.yielding.waiting = func() int { return dispatcher.waiting() + decider.queue.wanted() }

	namespaces := newHubNamespaces(hub.live, o.NamespaceLabels, dispatcher.namespaceChanged)
	decider.goBy(namespaces)
	spare := newSpare()
	dispatcher.newApplier = (&applierFactory{
		options: o, hub: hub.uid, log: log, members: members, state: state, stations: dispatcher, namespaces: namespaces,
		renderer: &renderer{
			hub: hub.uid, sources: sources, policies: policies, members: members, state: state,
			outdated: func(key Key) { decider.add(key, priorityDependency) },
		},
		large: make(chan struct{}, maxLarge), spare: spare,
	}).make

	sources.notify = decider.sourceChanged
	policies.changed, policies.deleted = decider.policyChanged, reporter.policyDeleted
	records.found, records.changed, records.deleted = reporter.recordFound, reporter.recordChanged, reporter.recordDeleted
	members.Served = sources.served
	members.OnCopy, members.OnListed = dispatcher.copyChanged, dispatcher.listed
	members.OnReadiness = func(m *member.Member, key Key) {
		dispatcher.defined(m, key)
		reporter.readinessChanged(m, key)
	}
	members.Health = state.health
	members.OnChange = dispatcher.clusterChanged
	members.OnRename, members.Moved = dispatcher.renamed, records.moved
	members.Emptied = dispatcher.emptied
	members.Ours = func(key Key, copied member.Copy) bool { return cameFrom(hub.uid, key, copied) }
	clusters := &member.Reconciler{
		Client: hub.client, Secrets: hub.secrets, Set: members, SystemNamespace: o.SystemNamespace, Identity: o.Identity, Hub: types.UID(hub.uid),
		Owns:    func(name string) bool { return assigned.Owns(members.Shard(name)) },
		Pending: dispatcher.pendingDeletions, Used: dispatcher.usedApproval, Owed: dispatcher.owed, Now: o.Now,
	}
	decider.ahead.behind = func(ctx context.Context, name string) (bool, error) { return clusters.Behind(ctx, hub.live, name) }
	return &Controller{
		log: log, members: members, state: state, clusters: clusters,
		spare: spare, decider: decider, dispatcher: dispatcher, reporter: reporter, reviewer: reviewer, namespaces: namespaces, revisions: revisions,
		inventory: &inventory{client: hub.client, policies: policies, sources: sources, namespaces: namespaces, state: state},
	}, nil
}

// applierFactory makes the appliers of members, with what they have in common.
type applierFactory struct {
	options    Options
	hub        string
	log        logr.Logger
	members    *member.Set
	state      *state
	stations   stations
	namespaces *hubNamespaces
	renderer   *renderer
	large      chan struct{} // Has as many as large copies are being written.
	spare      *spare
}

func (f *applierFactory) make(m *member.Member) (*applier, error) {
	log := f.log.WithValues("cluster", m.Name)
	ns, err := newNamespaces(&namespaces{
		hub: f.hub, member: m, state: f.state, source: f.namespaces, emptyAfter: f.options.EmptyAfter, begin: f.options.Shards.Begin, now: f.options.Now,
	}, log)
	if err != nil {
		return nil, err
	}
	guard := newGuard(f.options.Guard, time.Now)
	guard.all = f.options.GuardAll
	guard.resume(f.members.Held(m.Name))
	return newApplier(&applier{
		hub: f.hub, log: log, member: m, cluster: f.members, state: f.state, stations: f.stations, begin: f.options.Shards.Begin,
		namespaces: ns, guard: guard, keptKinds: f.options.KeptKinds, renderer: f.renderer, large: newLargeWrites(f.large), spare: f.spare,
	})
}

// runner is the controller as the manager runs it.
type runner struct {
	controller *Controller
	manager    ctrl.Manager
	begun      func()
}

// NeedLeaderElection says that every replica runs it.
func (r *runner) NeedLeaderElection() bool { return false }

// Start runs the controller until ctx ends.
func (r *runner) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := r.controller
	var watches sync.WaitGroup
	if err := c.decider.policies.watch(ctx, r.manager, &watches); err != nil {
		return err
	}
	if err := c.decider.records.watch(ctx, r.manager, &watches); err != nil {
		return err
	}
	// Placement is first decided when every cluster has been looked at once.
	if err := c.clusters.Prime(ctx); err != nil {
		return err
	}
	watches.Go(func() {
		c.decider.sources.reflector(namespaceResource, "", c.namespaces.view, func() {}).RunWithContext(ctx)
	})
	c.dispatcher.start(ctx)
	for _, key := range c.decider.allOwed() {
		c.decider.add(key, priorityResync)
	}
	c.started.Store(true)
	if r.begun != nil {
		r.begun()
	}
	var running sync.WaitGroup
	stations := []func(context.Context) error{
		c.decider.sources.run, c.decider.queue.start, c.decider.everything.start, c.reporter.queue.start, c.reviewer.queue.start,
		c.dispatcher.ownership.start, c.dispatcher.pending.start, c.prime, c.revisions.queue.start,
		c.spare.run,
	}
	errs := make(chan error, len(stations))
	for _, run := range stations {
		running.Go(func() { errs <- run(ctx) })
	}
	err := <-errs // The first to end ends all, whether ctx ended or it failed.
	cancel()
	running.Wait()
	c.dispatcher.wait()
	watches.Wait()
	c.members.Close()
	return err
}

// primingPatience is for how long nothing may be decided any more before what is left
// is not waited for.
const primingPatience = 30 * time.Second

// prime waits until everything was decided about that is there at the start, or of which
// there is a Propagation, and then for the end of ctx. Before that nobody knows what is to
// go. What has a Propagation and is not there counts as much as what is: were it not waited
// for, it would reach the guards little by little, and a little may be deleted unasked.
func (c *Controller) prime(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var p priming
	for !c.state.complete.Load() {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			keys, listed := c.decider.sources.all()
			if listed && c.state.unknown(keys) == 0 && p.over(c.state.unknown(append(c.decider.records.keys(), c.decider.allOwed()...)), now) {
				c.state.setComplete()
				if kinds := c.decider.keptKinds.unserved(c.decider.sources.resources()); len(kinds) > 0 {
					c.decider.log.Info("The hub does not serve kinds of --keep-kinds, so they protect no copy: check their names", "kinds", kinds)
				}
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
	case !c.state.complete.Load():
		return errors.New("objects are being read")
	default:
		return nil
	}
}

// ShardsChanged is to be called when this replica owns other members than before,
// or begins to lead. It does not block.
func (c *Controller) ShardsChanged() { c.dispatcher.ownership.add(struct{}{}, priorityRequired) }

// Objects returns what the hub holds of what Refract acts on, as the controllers
// know it: policies, clusters, the objects that travel, and for each of these a
// Propagation that says where it is. They are shared and must not be modified. As
// long as nothing changes the same slice is returned, and what has not changed is the same
// object as before. It ends soon after ctx does; what was collected until then need not be
// the next time.
func (c *Controller) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if !c.state.complete.Load() {
		return nil, c.Ready()
	}
	return c.inventory.objects(ctx)
}

// Scope says of a kind that can travel whether it is namespaced; known is false if
// the hub does not serve it.
func (c *Controller) Scope(kind schema.GroupKind) (namespaced, known bool) {
	return c.decider.sources.scope(kind)
}

// hubUID identifies the hub for as long as it lives.
func hubUID(ctx context.Context, hub client.Reader) (string, error) {
	ns := &corev1.Namespace{}
	if err := hub.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identifying the hub: %w", err)
	}
	return string(ns.UID), nil
}
