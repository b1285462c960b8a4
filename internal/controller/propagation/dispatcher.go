package propagation

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/member"
)

// dispatcher hands what was decided to the appliers of the members that it concerns, and
// keeps the appliers in line with the members: there is one for each that this replica
// writes to.
type dispatcher struct {
	log     logr.Logger
	shards  Shards
	members *member.Set
	state   *state
	records *records
	// newApplier makes the applier of a member.
	newApplier func(*member.Member) (*applier, error)

	decider  *decider
	reporter *reporter

	ownership *workQueue[struct{}] // This replica has other members, or leads.
	pending   *workQueue[string]   // Clusters on which deletions are held back.

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // The life of the appliers, which begin as members join.
	appliers map[string]runningApplier
	running  sync.WaitGroup
}

// runningApplier is an applier that runs until stop is called.
type runningApplier struct {
	applier *applier
	stop    context.CancelFunc
	ended   chan struct{} // Closed when nothing is in flight any more.
}

func newDispatcher(d *dispatcher) (*dispatcher, error) {
	d.appliers = map[string]runningApplier{}
	var err error
	if d.pending, err = newWorkQueue("held", 1, d.log, func(_ context.Context, name string) (reconcile.Result, error) {
		// One that is ready and did not answer is lost when it does not once more: it is asked again by its turn, and says then what is held.
		if m := d.members.Get(name); m == nil || m.Answers() || !m.Ready() {
			d.members.Recheck(name)
		}
		return reconcile.Result{}, nil
	}); err != nil {
		return nil, err
	}
	if d.ownership, err = newWorkQueue("ownership", 1, d.log, d.ownAll); err != nil {
		return nil, err
	}
	return d, nil
}

// start begins the appliers of all members there are. They end with ctx.
func (d *dispatcher) start(ctx context.Context) {
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	d.shards.SetMembers(d.members.Names())
	for _, name := range d.members.Names() {
		d.clusterChanged(name) //nolint:contextcheck // It may have joined before there was a ctx; it has that from the dispatcher.
	}
}

// wait waits for the appliers, when the context that they were begun with has ended.
func (d *dispatcher) wait() {
	d.mu.Lock()   // Whoever has seen that context before it ended has begun what it was to begin.
	d.mu.Unlock() //nolint:staticcheck // Nothing is done under the lock.
	d.running.Wait()
}

// applier returns that of a member; nil if this replica does not write to it.
func (d *dispatcher) applier(name string) *applier {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.appliers[name].applier
}

// dispatch has the members look at a key that what was decided about it concerns, with the priority of
// the decision: to write a copy is at least as important as that something else has changed.
func (d *dispatcher) dispatch(key Key, p *desiredState, clusters []string, u priority) {
	u = priorityOf(key, max(u, priorityDependency))
	concerned := map[string]bool{}
	for _, name := range clusters {
		concerned[name] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, r := range d.appliers {
		a := r.applier
		if concerned[name] {
			a.queue.add(key, u)
			continue
		}
		if p.targets[name] != nil {
			continue
		}
		if _, found := a.member.Copies.Get(key); found == member.Present {
			a.queue.add(key, u)
		}
	}
	for name := range concerned {
		switch {
		case d.appliers[name].applier != nil:
		case d.shards.Owns(name):
			d.reporter.later(key)
		default:
			d.reporter.after(key, 0) // Another replica waits for it.
		}
	}
	if p.blocked != "" || len(concerned) == 0 {
		d.reporter.after(key, settledDelay)
	}
}

// waiting returns how many copies wait to be looked at by a worker.
func (d *dispatcher) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, r := range d.appliers {
		n += r.applier.queue.depth()
	}
	return n
}

// anywhere reports whether a member holds a copy.
func (d *dispatcher) anywhere(key Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.appliers {
		if _, found := r.applier.member.Copies.Get(key); found == member.Present {
			return true
		}
	}
	return false
}

func (d *dispatcher) decide(key Key, p priority) { d.decider.add(key, p) }

func (d *dispatcher) reportAfter(key Key, t time.Duration) { d.reporter.after(key, t) }

func (d *dispatcher) reportLater(key Key) { d.reporter.later(key) }

func (d *dispatcher) pend(cluster string) { d.pending.addAfter(cluster, pendingDelay) }

// record records what came of a key on the member of an applier, unless the member has left,
// or has another applier by now.
func (d *dispatcher) record(a *applier, key Key, s clusterStatus) (settled, due, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.appliers[a.member.Name].applier != a {
		return false, false, false
	}
	settled, due = d.state.report(key, a.member.Name, s)
	return settled, due, true
}

// copyChanged has a member look at a copy that came, changed or went.
func (d *dispatcher) copyChanged(m *member.Member, key Key) {
	if d.state.desired(key) == nil {
		d.decider.add(key, priorityResync)
		return
	}
	if a := d.applier(m.Name); a != nil && a.member == m {
		a.queue.add(key, priorityDependency)
	}
}

// listed has a member look at the copies of a type of which it was not known whether they are there.
func (d *dispatcher) listed(m *member.Member, of schema.GroupResource, known bool) {
	if a := d.applier(m.Name); a != nil && a.member == m {
		a.listed(of, known)
	}
}

// defined has a member try again soon to write copies of a type whose definition it has now.
func (d *dispatcher) defined(m *member.Member, key Key) {
	if a := d.applier(m.Name); key.GroupResource == crdResource.GroupResource() && a != nil && a.member == m {
		a.gates.hurry(func(id *gateID) bool {
			return id.reason == reasonTypeNotServed && id.resource.GroupResource().String() == key.Name
		})
	}
}

// namespaceChanged has all members look at a namespace that has other labels on the hub.
func (d *dispatcher) namespaceChanged(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.appliers {
		r.applier.namespaces.queue.add(name, priorityDependency)
	}
}

// ownAll begins to write to the members that this replica has now, and stops writing to those that it has no
// more. The others are left alone: with a thousand of them, to look at each takes longer than
// what the one that has just joined waits for.
func (d *dispatcher) ownAll(ctx context.Context, _ struct{}) (reconcile.Result, error) {
	for _, name := range d.members.Names() {
		if d.inLine(name) {
			continue
		}
		d.members.Recheck(name)
		d.clusterChanged(name) //nolint:contextcheck // What it begins lives as long as the controller.
	}
	return d.decider.decideEverything(ctx, struct{}{}) // What came before this replica led waits for it.
}

// inLine reports whether a member that this replica has is connected to and has an applier, and one that it has not
// is not and has none.
func (d *dispatcher) inLine(name string) bool {
	m, a := d.members.Get(name), d.applier(name)
	if !d.shards.Owns(name) {
		return m == nil && a == nil
	}
	return m != nil && a != nil && a.member == m
}

// clusterChanged keeps the appliers in line with the members, and has
// everything decided anew, soon.
func (d *dispatcher) clusterChanged(name string) {
	d.decider.ahead.forget(name)
	d.state.epoch.Add(1)
	d.mu.Lock()
	if d.ctx == nil || d.ctx.Err() != nil {
		d.mu.Unlock()
		return // The controller does not run yet, or not any more.
	}
	m := d.members.Get(name)
	owned := d.shards.Owns(name)
	r, exists := d.appliers[name]
	switch {
	case exists && !owned:
		d.stop(name)
		d.running.Go(func() {
			<-r.ended
			d.members.Disown(name)
		})
	case m != nil && !owned:
		d.running.Go(func() { d.members.Disown(name) })
	case exists && r.applier.member != m:
		d.stop(name)
	case exists:
		d.lookAgain(r.applier)
	}
	if _, exists := d.appliers[name]; m != nil && owned && !exists {
		if err := d.begin(m); err != nil {
			d.log.Error(err, "Cannot begin to write to cluster", "cluster", name)
		}
	}
	if !d.members.Known(name) || d.members.Hidden(name) {
		for _, key := range d.state.leave(name) {
			d.reporter.later(key)
		}
		forgetMetrics(name)
	}
	d.mu.Unlock()
	d.shards.SetMembers(d.members.Names())
	d.decider.clustersChanged()
}

// lookAgain has an applier look at all that its member has, or is to have: what is held may
// have been approved, and copies may have been lost, or can be reached again.
func (d *dispatcher) lookAgain(a *applier) {
	for _, key := range a.guard.keys() {
		a.queue.add(key, priorityDependency)
	}
	for _, key := range d.state.on(a.member.Name) {
		a.queue.add(key, priorityResync)
	}
}

// begin makes the applier of a member. The lock must be held.
func (d *dispatcher) begin(m *member.Member) error {
	a, err := d.newApplier(m)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(d.ctx) //nolint:gosec // It is called when the member leaves, see stop; or d.ctx ends.
	r := runningApplier{applier: a, stop: stop, ended: make(chan struct{})}
	d.appliers[m.Name] = r
	d.running.Go(func() {
		defer close(r.ended)
		a.run(ctx)
	})
	return nil
}

// stop tells the applier of a member to end. The lock must be held.
func (d *dispatcher) stop(name string) {
	d.appliers[name].stop()
	delete(d.appliers, name)
}

// pendingDeletions returns what the guard of a cluster holds back, nil if nothing, and whether that is known.
func (d *dispatcher) pendingDeletions(name string) (held *corev1alpha1.DeletionsHeld, known bool) {
	a := d.applier(name)
	if a == nil {
		return nil, false
	}
	copiesHeld.WithLabelValues(name).Set(float64(a.member.Copies.Count()))
	held, keys, known := a.guard.show()
	deletionsPending.WithLabelValues(name).Set(float64(len(keys)))
	return held, known
}

// usedApproval returns the token of the deletions on a cluster that were approved last.
func (d *dispatcher) usedApproval(name string) string {
	if a := d.applier(name); a != nil {
		return a.guard.usedToken()
	}
	return ""
}

// emptied reports whether nothing is left on a cluster that is leaving.
func (d *dispatcher) emptied(name string) bool {
	return d.state.complete.Load() && d.applier(name) != nil && len(d.state.on(name)) == 0
}
