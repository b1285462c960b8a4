package propagation

import (
	"context"
	"sync"
)

// A replica that stands by watches the hub and decides nothing. When it begins to lead, it starts like a restarted
// replica, but with current caches.

// working reports whether this replica leads, or has led since its start.
func (c *Controller) working() bool {
	select {
	case <-c.leading:
		return true
	default:
		return false
	}
}

// LeadershipChanged tells the controller that the leadership of this replica has changed. It does not block.
func (c *Controller) LeadershipChanged() {
	if c.dispatcher.lead.Leads() {
		c.begin()
	}
	c.dispatcher.leadership.add(struct{}{}, priorityRequired)
}

// listen directs the events of the hub to the stations, or to standBy until this replica leads. Keys that change
// before are enqueued by work.
func (c *Controller) listen(sources *sources, records *records) {
	records.standsBy = func() bool { return !c.working() }
	sources.notify = func(key Key, initial bool) {
		if c.standsBy(key) {
			return
		}
		c.decider.sourceChanged(key, initial)
	}
	records.found = func(key Key) {
		if !c.standsBy(key) {
			c.decider.add(key, priorityResync)
		}
	}
	records.changed = func(key Key, steers bool) {
		if !c.standsBy(key) {
			c.reporter.recordChanged(key, steers)
		}
	}
	records.deleted = func(key Key) {
		if !c.standsBy(key) {
			c.reporter.queue.add(key, priorityResync) // It is written again if the object still exists.
		}
	}
	c.namespaces.floorChanged = func(namespace string) {
		if c.working() {
			c.decider.floorChanged(namespace)
		}
	}
}

// standsBy reports whether this replica has not led yet. Such a replica prepares for the time when it leads: it watches
// objects without a label that travel with others, according to their Propagations, and keeps the observed deletion of
// an object while the object's Propagation exists.
func (c *Controller) standsBy(key Key) bool {
	if c.working() {
		return false
	}
	c.state.epoch.Add(1)
	sources := c.decider.sources
	k, recorded := c.decider.records.get(key)
	switch {
	case !recorded:
		sources.unwant(key)
	case len(k.follows) > 0:
		sources.want(key)
	}
	if told := sources.deletion(key); told != nil {
		// The leading replica has settled the deletion, or an object of this name exists again.
		if src, known := sources.get(key); !recorded || known && src.object != nil {
			sources.noted(key, told)
		}
	}
	return true
}

// work runs the stations from the time when this replica leads until ctx ends.
func (c *Controller) work(ctx context.Context) error {
	select {
	case <-c.leading:
	case <-ctx.Done():
		return nil
	}
	c.dispatcher.start(ctx)
	for _, key := range c.decider.records.keys() {
		c.decider.add(key, priorityResync)
	}
	c.dispatcher.leadership.add(struct{}{}, priorityRequired)
	err := together(ctx,
		c.decider.queue.start, c.decider.everything.start, c.reporter.queue.start, c.reviewer.queue.start, c.dispatcher.leadership.start,
		c.dispatcher.pending.start, c.revisions.queue.start, c.revisions.reread.start, c.spare.run)
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
