// Package propagation propagates objects of the hub to member clusters, each in the variant for the cluster, and
// reports the result for each cluster.
//
// Three stations, each with its own queue, work on the key of an object:
//
//	decide   what should be true on every cluster   (one queue; pure but for reading caches)
//	apply    make it true on one cluster            (a queue for each member)
//	report   write the result to the Propagation    (one queue)
//
// Each station reads the present state, so that no event can be lost: lists find the changes that happened while the
// controllers were down.
package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/member"
)

// Numbers of workers. Decisions need the processor, writes mostly wait for members, and reports come last.
const (
	deciders         = 4
	appliersByMember = 8
	reporters        = 2
)

// Leadership is whether this replica leads, so that it may write. All methods are safe for concurrent use.
type Leadership interface {
	// Leads reports whether this replica leads: it decides, and it writes to the hub and to the members.
	Leads() bool
	// Begin reports whether a write may begin now. If so, no other replica leads until end is called, and the work must
	// end with the context.
	Begin(ctx context.Context) (_ context.Context, end func(), ok bool)
}

// lead is the leadership of this replica for each cluster. A renamed cluster gets no writes under its former name.
type lead struct {
	Leadership

	members *member.Set
}

// writes reports whether this replica writes to the member now.
func (l *lead) writes(name string) bool { return l.members.Successor(name) == "" && l.Leads() }

// begin reports whether work on a member may begin now: see [Leadership].
func (l *lead) begin(ctx context.Context, name string) (_ context.Context, end func(), ok bool) {
	ctx, end, ok = l.Begin(ctx)
	if ok && l.members.Successor(name) != "" { // Checked after Begin: a rename waits for work that began before it.
		end()
		return ctx, func() {}, false
	}
	return ctx, end, ok
}

// Options are the settings of the controller.
type Options struct {
	// SystemNamespace holds the Secrets of FederatedClusters.
	SystemNamespace string
	// Leadership is the leadership of this replica.
	Leadership Leadership
	// Guard is the share of the copies of a namespace on a member, in percent, that may be deleted at once without an
	// approval. 100 turns off this limit, and the approval of changes of placements.
	Guard int
	// NamespaceLabels are the labels, besides those of pod security, that a namespace created on a member takes over
	// from the hub; see [CheckNamespaceLabel].
	NamespaceLabels []string
	// EmptyAfter is how long a namespace that was created on a member is marked as empty before it is deleted; zero if
	// it stays. The minimum is [LeastEmpty].
	EmptyAfter time.Duration
	// GuardAll also judges deletions of copies whose objects a user deleted on the hub by a call.
	GuardAll bool
	// KeptKinds are the kinds whose copies are deleted without approval only if a user deletes the object on the hub.
	KeptKinds KeptKinds
	// Identity names this replica to members, in its user agent.
	Identity string
	// Now returns the time of the clock that all replicas share: they compare the times that other replicas have
	// written.
	Now func() time.Time
	// Members sends the requests to members; nil if each member has its own connection.
	Members http.RoundTripper
	// Turn, if not nil, is called by each worker before it takes a key, and again with the name of the work before the
	// work begins. A simulation uses it to run workers one after another, in an order that does not depend on the
	// scheduler of Go.
	Turn func(work string)
	// Started, if not nil, is called once, when the policies and clusters are known and the work begins.
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

	started atomic.Bool // Whether policies, clusters and Propagations are known.
	known   atomic.Bool // Whether the objects are known as well; on the leader, whether they have been decided.
	standby *standby
	begin   func() // Ends the standby: this replica leads for the first time.
}

// Setup registers the propagation controller with the manager. It reconciles the hub's FederatedClusters and all
// objects that ask for propagation.
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
	return c, mgr.Add(&runner{controller: c, manager: mgr, begun: o.Started, turn: o.Turn})
}

// hubAccess contains the clients of the hub.
type hubAccess struct {
	uid      string
	client   client.Client // Reads from caches.
	live     client.Reader
	secrets  member.SecretReader
	recorder events.EventRecorder
	log      logr.Logger
}

// connect creates the stations, and connects each to the stations that receive its keys.
func connect(o Options, hub hubAccess, sources *sources) (*Controller, error) {
	log := hub.log.WithName("propagation")
	members := &member.Set{Log: hub.log.WithName("member"), Transport: o.Members}
	leading := &lead{o.Leadership, members}
	policies, state := newPolicies(log), newState()
	records := &records{log: log, live: hub.live, successor: members.Successor, items: map[Key]*known{}}

	revisions, err := newRevisions(&revisions{
		client: hub.client, live: hub.live, rollouts: records.rollouts,
		leads: leading.Leads, system: o.SystemNamespace,
	}, log)
	if err != nil {
		return nil, err
	}
	state.digest = revisions.key.digest
	reviewer, err := newReviewer(&reviewer{client: hub.client, lead: leading, members: members, policies: policies, state: state, records: records}, log)
	if err != nil {
		return nil, err
	}
	reporter, err := newReporter(&reporter{
		client: hub.client, live: hub.live, recorder: hub.recorder,
		lead: leading, members: members, records: records, state: state, reviewer: reviewer, revisions: revisions, now: o.Now,
		yielding: newYielding(),
	}, log)
	if err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(&dispatcher{log: log, lead: leading, members: members, state: state, records: records, reporter: reporter})
	if err != nil {
		return nil, err
	}
	decider, err := newDecider(&decider{
		hub: hub.uid, log: log, lead: leading, members: members, sources: sources, policies: policies, records: records, state: state,
		dispatcher: dispatcher, reviewer: reviewer, revisions: revisions, unguarded: o.Guard == unguarded, keptKinds: o.KeptKinds,
		ahead: &ahead{now: time.Now, idle: map[string]time.Time{}},
	})
	if err != nil {
		return nil, err
	}
	dispatcher.decider, reporter.decider, revisions.decider = decider, decider, decider
	reporter.judge, reporter.pend = dispatcher.copyChanged, dispatcher.pend
	// Pending decisions count as well, because they may produce copies, for example when a cluster joins that gets
	// every object. Keys of namespaces that use much decision time, and keys that cannot be decided yet, do not count.
	// So they do not delay reports on other objects.
	reporter.yielding.waiting = func() int { return dispatcher.waiting() + decider.queue.wanted() }

	namespaces := newHubNamespaces(hub.live, o.NamespaceLabels, dispatcher.namespaceChanged)
	decider.goBy(namespaces)
	spare := newSpare()
	dispatcher.newApplier = (&applierFactory{
		options: o, lead: leading, hub: hub.uid, log: log, members: members, state: state, stations: dispatcher, namespaces: namespaces,
		renderer: &renderer{
			hub: hub.uid, sources: sources, policies: policies, members: members, state: state,
			outdated: func(key Key) { decider.add(key, priorityDependency) },
		},
		large: make(chan struct{}, maxLarge), spare: spare,
		proven: (&proof{sources: sources, policies: policies, members: members, state: state, live: hub.live, now: time.Now}).holds,
	}).make

	clusters := &member.Reconciler{
		Client: hub.client, Secrets: hub.secrets, Set: members, SystemNamespace: o.SystemNamespace, Identity: o.Identity, Hub: types.UID(hub.uid),
		Leads:   leading.Leads,
		Pending: dispatcher.pendingDeletions, Used: dispatcher.usedApproval, Owed: dispatcher.owed, Now: o.Now,
	}
	decider.ahead.behind = func(ctx context.Context, name string) (bool, error) { return clusters.Behind(ctx, hub.live, name) }
	leads := make(chan struct{})
	c := &Controller{
		log: log, members: members, state: state, clusters: clusters,
		spare: spare, decider: decider, dispatcher: dispatcher, reporter: reporter, reviewer: reviewer, namespaces: namespaces, revisions: revisions,
		inventory: &inventory{
			client: hub.client, policies: policies, sources: sources, namespaces: namespaces, state: state, records: records, remembered: decider.remembered,
		},
		standby: &standby{sources: sources, records: records, state: state, leading: leads},
		begin:   sync.OnceFunc(func() { close(leads) }),
	}
	if c.standby.queue, err = newWorkQueue("standby", 1, log, c.standby.read); err != nil {
		return nil, err
	}
	c.listenToHub(sources, records, policies)
	c.listenToMembers(hub.uid, sources, records)
	return c, nil
}

// listenToMembers directs the questions and events of the members to the stations.
func (c *Controller) listenToMembers(hub string, sources *sources, records *records) {
	members, dispatcher := c.members, c.dispatcher
	members.Served = sources.served
	members.OnCopy, members.OnListed = dispatcher.copyChanged, dispatcher.listed
	members.OnReadiness = func(m *member.Member, key Key) {
		dispatcher.defined(m, key)
		c.reporter.readinessChanged(m, key)
	}
	members.Health = c.state.health
	members.OnChange, members.Emptied = dispatcher.clusterChanged, dispatcher.emptied
	members.OnRename, members.Moved = dispatcher.renamed, records.moved
	members.Ours = func(key Key, copied member.Copy) bool { return cameFrom(hub, key, copied) }
}

// applierFactory creates the appliers of members. Its fields are shared by all appliers.
type applierFactory struct {
	options    Options
	lead       *lead
	hub        string
	log        logr.Logger
	members    *member.Set
	state      *state
	stations   stations
	namespaces *hubNamespaces
	renderer   *renderer
	large      chan struct{} // Has an entry for each large copy that is being written.
	spare      *spare
	proven     func(ctx context.Context, key Key, p *desiredState) (bool, error)
}

func (f *applierFactory) make(m *member.Member) (*applier, error) {
	log := f.log.WithValues("cluster", m.Name)
	ns, err := newNamespaces(&namespaces{
		hub: f.hub, member: m, state: f.state, source: f.namespaces, emptyAfter: f.options.EmptyAfter, begin: f.lead.begin, now: f.options.Now,
	}, log)
	if err != nil {
		return nil, err
	}
	guard := newGuard(f.options.Guard, time.Now)
	guard.all = f.options.GuardAll
	guard.resume(f.members.Held(m.Name))
	return newApplier(&applier{
		hub: f.hub, log: log, member: m, cluster: f.members, state: f.state, stations: f.stations, begin: f.lead.begin,
		namespaces: ns, guard: guard, keptKinds: f.options.KeptKinds, renderer: f.renderer, large: newLargeWrites(f.large), spare: f.spare,
		proven: f.proven,
	})
}

// runner makes the controller a Runnable of the manager.
type runner struct {
	controller *Controller
	manager    ctrl.Manager
	begun      func()
	turn       func(work string)
}

// NeedLeaderElection returns false: every replica runs the controller.
func (r *runner) NeedLeaderElection() bool { return false }

// Start runs the controller until ctx ends.
func (r *runner) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.turn != nil {
		ctx = context.WithValue(ctx, turnKey{}, r.turn)
	}
	c := r.controller
	var watches sync.WaitGroup
	if err := c.decider.policies.watch(ctx, r.manager, &watches); err != nil {
		return err
	}
	if err := c.decider.records.watch(ctx, r.manager, &watches); err != nil {
		return err
	}
	// Every cluster is contacted once before the first decision.
	if err := c.clusters.Prime(ctx); err != nil {
		return err
	}
	watches.Go(func() {
		c.decider.sources.reflector(namespaceResource, "", c.namespaces.view, func() {}).RunWithContext(ctx)
	})
	if c.dispatcher.lead.Leads() {
		c.begin()
	}
	c.started.Store(true)
	if r.begun != nil {
		r.begun()
	}
	err := together(ctx, c.decider.sources.run, c.standby.queue.start, c.work, c.prime)
	cancel()
	watches.Wait()
	c.members.Close()
	return err
}

// primingPatience is how long the start waits without any progress before it ignores the remaining decisions.
const primingPatience = 30 * time.Second

// primingTick is the interval between looks at the missing objects and decisions.
const primingTick = 100 * time.Millisecond

// prime waits until all objects are known. On the leader, it also waits until all objects and Propagations from the
// start have been decided. Then it waits for the end of ctx. Only these decisions make all deletions known. They
// include Propagations without an object: otherwise their deletions would reach the guards in groups so small that they
// need no approval.
func (c *Controller) prime(ctx context.Context) error {
	var p priming
	for _, done := range []func() bool{
		func() bool {
			_, listed := c.decider.sources.all()
			return listed
		},
		func() bool {
			if !c.standby.over() {
				c.known.Store(true)
				return false
			}
			keys, listed := c.decider.sources.all()
			return listed && c.state.unknown(keys) == 0 &&
				p.over(c.state.unknown(append(c.decider.records.keys(), c.members.AllOwed()...)), time.Now())
		},
	} {
		ended := wait.PollUntilContextCancel(ctx, primingTick, false, func(context.Context) (bool, error) { return done(), nil })
		if ended != nil {
			return nil //nolint:nilerr // The end of ctx is no error.
		}
	}
	c.state.setComplete()
	c.known.Store(true)
	if kinds := c.decider.keptKinds.unserved(c.decider.sources.resources()); len(kinds) > 0 {
		c.decider.log.Info("The hub does not serve kinds of --keep-kinds, so they protect no copy: check their names", "kinds", kinds)
	}
	<-ctx.Done()
	return nil
}

// priming waits for the first decisions about all Propagations.
type priming struct {
	left  int       // The smallest number of missing decisions so far,
	since time.Time // and the time when it was reached.
}

// over reports whether the wait is over: no decision is missing, or the number of missing ones has not fallen for
// primingPatience. Some may stay missing forever, for example for a type that Refract may not list; they must not keep
// the controller unready.
func (p *priming) over(left int, now time.Time) bool {
	if p.since.IsZero() || left < p.left {
		p.left, p.since = left, now
	}
	return left == 0 || now.Sub(p.since) > primingPatience
}

// Ready returns nil when the controller is at work: it knows all policies, clusters and objects, and the leader has
// decided all objects that existed at the start. A replica that was ready stays ready when it begins to lead. Otherwise
// the error names the missing part.
func (c *Controller) Ready() error {
	switch {
	case !c.started.Load():
		return errors.New("policies and clusters are being read")
	case !c.known.Load():
		return errors.New("objects are being read")
	default:
		return nil
	}
}

// Objects returns the objects of the hub that Refract acts on, from the caches of the controllers: policies, clusters,
// the propagated objects, and for each of these a Propagation with its clusters. They are shared and must not be
// modified. While nothing changes, the same slice is returned, and an unchanged object is the same pointer as before.
// Objects returns soon after ctx ends; the next call reuses the objects that were collected until then. It returns the
// error of [Controller.Ready] until the controller is ready.
func (c *Controller) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if err := c.Ready(); err != nil {
		return nil, err
	}
	return c.inventory.objects(ctx)
}

// Scope reports whether a kind that can be propagated is namespaced; known is false if the hub does not serve the kind.
func (c *Controller) Scope(kind schema.GroupKind) (namespaced, known bool) {
	return c.decider.sources.scope(kind)
}

// hubUID returns an identifier of the hub that never changes: the UID of its namespace kube-system.
func hubUID(ctx context.Context, hub client.Reader) (string, error) {
	ns := &corev1.Namespace{}
	if err := hub.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("identifying the hub: %w", err)
	}
	return string(ns.UID), nil
}
