package propagation

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/tree"
)

// A replica that stands by watches the hub and decides nothing. When it begins to lead, it starts like a restarted
// replica, but with current caches.

// LeadershipChanged tells the controller that the leadership of this replica has changed. It does not block.
func (c *Controller) LeadershipChanged() {
	if c.dispatcher.lead.Leads() {
		c.begin()
	}
	c.dispatcher.leadership.add(struct{}{}, priorityRequired)
}

// standby prepares a replica that has not led yet for the time when it leads.
type standby struct {
	sources *sources
	records *records
	state   *state
	leading <-chan struct{} // Closed when the replica leads.
	queue   *workQueue[Key] // Objects to be read from the hub.
}

// over reports whether this replica leads, or has led since its start.
func (b *standby) over() bool {
	select {
	case <-b.leading:
		return true
	default:
		return false
	}
}

// handles processes a change of an object or its Propagation while this replica has not led yet, and returns false
// after that. It watches objects without a label whose Propagations say that they travel with others. It keeps the
// observed deletion of an object while its Propagation exists.
func (b *standby) handles(key Key) bool {
	if b.over() {
		return false
	}
	b.state.epoch.Add(1)
	k, recorded := b.records.get(key)
	switch {
	case !recorded:
		b.sources.unwant(key)
	case len(k.follows) > 0:
		b.sources.want(key)
	}
	src, known := b.sources.get(key)
	told := b.sources.deletion(key)
	switch {
	case told != nil && (!recorded || known && src.object != nil):
		b.sources.noted(key, told) // The leader has settled the deletion, or an object of this name exists again.
	case told != nil, recorded && len(k.follows) > 0 && known && src.object == nil:
		b.queue.add(key, priorityChanged)
	}
	return true
}

// read reads an object from the hub, for two reasons. First, the watch of objects without a label may have shown the
// object before it was wanted, and does not show it again. Second, a watch by label reports a removed label like a
// deletion, but a removed label is no proof of intent for a later loss of the object.
func (b *standby) read(ctx context.Context, key Key) (reconcile.Result, error) {
	told := b.sources.deletion(key)
	src, known := b.sources.get(key)
	if b.over() || !known {
		return reconcile.Result{}, nil
	}
	_, found, err := b.sources.look(ctx, key, src)
	if err == nil && told != nil && found != causeMissing && found != causeDeleted && found != causeType {
		b.sources.noted(key, told)
	}
	return reconcile.Result{}, err
}

// listenToHub directs the events of the hub to the stations, or to the standby until this replica leads. work enqueues
// the keys that changed before.
func (c *Controller) listenToHub(sources *sources, records *records, policies *policies) {
	b := c.standby
	records.standsBy = func() bool { return !b.over() }
	sources.notify = func(key Key, initial bool) {
		if !b.handles(key) {
			c.decider.sourceChanged(key, initial)
		}
	}
	records.found = func(key Key) {
		if !b.handles(key) {
			c.decider.add(key, priorityResync)
		}
	}
	records.changed = func(key Key, steers bool) {
		if !b.handles(key) {
			c.reporter.recordChanged(key, steers)
		}
	}
	records.deleted = func(key Key) {
		if !b.handles(key) {
			c.reporter.queue.add(key, priorityResync) // The Propagation is written again if the object still exists.
		}
	}
	policies.changed = func(ref tree.Policy) {
		if b.over() {
			c.decider.policyChanged(ref)
			return
		}
		c.state.epoch.Add(1)
	}
	policies.restated = func(ref tree.Policy) {
		if b.over() {
			c.reviewer.later(ref)
		}
	}
	policies.deleted = c.reporter.policyDeleted
	c.namespaces.floorChanged = func(namespace string) {
		if b.over() {
			c.decider.floorChanged(namespace)
		}
	}
}

// work runs the stations from the time when this replica leads until ctx ends.
func (c *Controller) work(ctx context.Context) error {
	select {
	case <-c.standby.leading:
	case <-ctx.Done():
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.dispatcher.start(ctx)
	for _, key := range c.decider.records.keys() {
		c.decider.add(key, priorityResync)
	}
	c.dispatcher.leadership.add(struct{}{}, priorityRequired)
	err := together(ctx,
		c.decider.queue.start, c.decider.everything.start, c.reporter.queue.start, c.reviewer.queue.start, c.dispatcher.leadership.start,
		c.dispatcher.pending.start, c.revisions.queue.start, c.revisions.reread.start, c.spare.run)
	cancel()
	c.dispatcher.wait()
	return err
}

// together runs functions until ctx ends, or until the first of them ends. It returns the error of that one.
func together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	errs := make(chan error, len(all))
	for _, run := range all {
		running.Go(func() { errs <- run(ctx) })
	}
	err := <-errs
	cancel()
	running.Wait()
	return err
}
