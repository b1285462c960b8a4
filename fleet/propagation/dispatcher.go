package propagation

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
)

// dispatcher passes keys with a new desired state to the appliers of the members concerned. While this replica
// leads, each member has one applier.
type dispatcher struct {
	log     logr.Logger
	lead    *lead
	members *member.Set
	state   *state
	records *records
	// newApplier creates the applier of a member.
	newApplier func(*member.Member) (*applier, error)

	decider  *decider
	reporter *reporter

	leadership *workQueue[struct{}] // Has an entry when this replica starts or stops leading.
	pending    *workQueue[string]   // Clusters whose FederatedCluster must be updated, because their waiting deletions have changed.

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // Ends all appliers; each starts when its member joins.
	appliers map[string]runningApplier
	running  sync.WaitGroup
}

// runningApplier is an applier that runs until stop is called.
type runningApplier struct {
	applier *applier
	stop    context.CancelFunc
	ended   chan struct{} // Closed when the applier has ended.
}

func newDispatcher(d *dispatcher) (*dispatcher, error) {
	d.appliers = map[string]runningApplier{}
	var err error
	if d.pending, err = newWorkQueue("held", 1, d.log, func(_ context.Context, name string) (reconcile.Result, error) {
		// A ready member that did not answer becomes unready at its next failure, so it gets no additional check. Its next
		// regular check shows the waiting deletions.
		if m := d.members.Get(name); m == nil || m.Answers() || !m.Ready() {
			d.members.Recheck(name)
		}
		return reconcile.Result{}, nil
	}); err != nil {
		return nil, err
	}
	if d.leadership, err = newWorkQueue("leadership", 1, d.log, d.takeOver); err != nil {
		return nil, err
	}
	return d, nil
}

// start starts the appliers of all present members. They end with ctx.
func (d *dispatcher) start(ctx context.Context) {
	d.mu.Lock()
	d.ctx = ctx
	d.mu.Unlock()
	for _, name := range d.members.Names() {
		d.clusterChanged(name) //nolint:contextcheck // The member may have joined before start; its applier gets the ctx of the dispatcher.
	}
}

// wait waits for the appliers to end, after their context has ended.
func (d *dispatcher) wait() {
	d.mu.Lock()   // Every applier that started before the end of the context is known now.
	d.mu.Unlock() //nolint:staticcheck // Nothing is done under the lock.
	d.running.Wait()
}

// applier returns the applier of a member; nil if this replica does not write to the member.
func (d *dispatcher) applier(name string) *applier {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.appliers[name].applier
}

// dispatch enqueues a key for the members that a decision concerns, with the priority of the decision, and at least
// priorityDependency: the write of a copy is at least as important as the change of a dependency.
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
		if copied, found := a.member.Copies.Get(key); found == member.Present && a.ours(key, copied) {
			if p.gone {
				d.state.stray(key, name)
			}
			a.queue.add(key, u)
		}
	}
	for name := range concerned {
		if d.appliers[name].applier == nil {
			d.reporter.later(key)
		}
	}
	if p.blocked != "" || len(concerned) == 0 {
		d.reporter.after(key, settledDelay)
	}
}

// waiting returns how many copies wait for a worker.
func (d *dispatcher) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, r := range d.appliers {
		n += r.applier.queue.depth()
	}
	return n
}

// anywhere reports whether any member that this replica is connected to has a copy.
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

// record records the status of the copy of a key on the member of an applier. ok is false if the member has left or has
// another applier by now.
func (d *dispatcher) record(a *applier, key Key, s clusterStatus) (settled, due, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.appliers[a.member.Name].applier != a {
		return false, false, false
	}
	settled, due = d.state.report(key, a.member.Name, s)
	return settled, due, true
}

// copyChanged enqueues a copy that appeared, changed or disappeared on a member.
func (d *dispatcher) copyChanged(m *member.Member, key Key) {
	if d.state.desired(key) == nil {
		d.decider.add(key, priorityResync)
		return
	}
	if a := d.applier(m.Name); a != nil && a.member == m {
		a.queue.add(key, priorityDependency)
	}
}

// listed enqueues the copies of a type that waited for its list on a member.
func (d *dispatcher) listed(m *member.Member, of schema.GroupResource, known bool) {
	if a := d.applier(m.Name); a != nil && a.member == m {
		a.listed(of, known)
	}
}

// defined retries the copies of a type soon after a member got the CustomResourceDefinition of the type.
func (d *dispatcher) defined(m *member.Member, key Key) {
	if a := d.applier(m.Name); key.GroupResource == crdResource.GroupResource() && a != nil && a.member == m {
		a.gates.hurry(func(id *gateID) bool {
			return id.reason == reasonTypeNotServed && id.resource.GroupResource().String() == key.Name
		})
	}
}

// namespaceChanged enqueues a namespace whose labels on the hub have changed, on all members.
func (d *dispatcher) namespaceChanged(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.appliers {
		r.applier.namespaces.queue.add(name, priorityDependency)
	}
}

// takeOver starts to write to all members when this replica begins to lead, and stops when it no longer leads. It skips
// members whose connection and applier already match, because a check of a thousand members would delay a member that
// has just joined.
func (d *dispatcher) takeOver(ctx context.Context, _ struct{}) (reconcile.Result, error) {
	for _, name := range d.members.Names() {
		if d.inLine(name) {
			continue
		}
		d.members.Recheck(name)
		d.clusterChanged(name) //nolint:contextcheck // The new applier lives as long as the controller.
	}
	if d.lead.Leads() {
		d.decider.reviewEverything()
	}
	return d.decider.decideEverything(ctx, struct{}{}) // Objects that appeared while this replica stood by have no decision yet.
}

// inLine reports whether the connection and the applier of a member match the leadership. Both exist if this replica
// writes to the member; otherwise, neither exists.
func (d *dispatcher) inLine(name string) bool {
	m, a := d.members.Get(name), d.applier(name)
	if !d.lead.writes(name) {
		return m == nil && a == nil
	}
	return m != nil && a != nil && a.member == m
}

// clusterChanged starts or stops the applier of a member as needed, and enqueues all objects for a new decision soon.
func (d *dispatcher) clusterChanged(name string) {
	d.decider.ahead.forget(name)
	d.state.epoch.Add(1)
	d.mu.Lock()
	if d.ctx == nil || d.ctx.Err() != nil {
		d.mu.Unlock()
		return // The controller does not run yet, or has ended.
	}
	m := d.members.Get(name)
	owned := d.lead.writes(name)
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
	d.decider.clustersChanged()
}

// lookAgain enqueues all copies that a member has or should have. Waiting deletions may have been approved, and copies
// may have been lost, or may be reachable again.
func (d *dispatcher) lookAgain(a *applier) {
	for _, key := range a.guard.keys() {
		a.queue.add(key, priorityDependency)
	}
	for _, key := range d.state.on(a.member.Name) {
		a.queue.add(key, priorityResync)
	}
}

// begin starts the applier of a member. The lock must be held.
func (d *dispatcher) begin(m *member.Member) error {
	a, err := d.newApplier(m)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(d.ctx) //nolint:gosec // The function stop is called when the member leaves; otherwise, d.ctx ends.
	r := runningApplier{applier: a, stop: stop, ended: make(chan struct{})}
	d.appliers[m.Name] = r
	d.running.Go(func() {
		defer close(r.ended)
		a.run(ctx)
	})
	return nil
}

// stop ends the applier of a member. The lock must be held.
func (d *dispatcher) stop(name string) {
	d.appliers[name].stop()
	delete(d.appliers, name)
}

// pendingDeletions returns the deletions that wait in the guard of a cluster, nil if none does, and whether they are
// known.
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

// usedApproval returns the token of the last approved deletions on a cluster.
func (d *dispatcher) usedApproval(name string) string {
	if a := d.applier(name); a != nil {
		return a.guard.usedToken()
	}
	return ""
}

// emptied reports whether a leaving cluster has no copies left.
func (d *dispatcher) emptied(name string) bool {
	return d.state.complete.Load() && d.applier(name) != nil && len(d.state.on(name)) == 0
}
