package ui

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/status"
)

// settles is the delay between an event from the hub and the update of the page, and so the shortest interval between
// updates. readAgain is the shortest interval between two reads of all policies and objects. readLate is the longest
// one: after this time they are read even without an event.
const (
	settles   = 100 * time.Millisecond
	readAgain = 3 * time.Second
	readLate  = time.Minute
	// readTimeout is the time limit for a read of the whole hub.
	readTimeout = 2 * time.Minute
)

// follower updates a server whenever its hub changes.
type follower struct {
	server *Server
	read   func(context.Context) (*Input, error)

	mu       sync.Mutex
	statuses map[types.UID]*status.Object
	members  map[types.UID]*corev1alpha1.FederatedCluster
	snapshot *Snapshot
	wake     chan struct{}
	stale    bool // Whether policies or objects may have changed since the last read.
	heard    bool // Whether the hub has sent any reports.
	ready    func()
}

// Follow shows the state of a hub until ctx ends. It shows reports about clusters as soon as they arrive. After a
// change it also calls read, which returns the policies and objects. It calls ready as soon as the first state is
// shown. It returns an error if the first read or watch fails, or when ctx ends. After later errors it logs them and
// continues, because a hub may be unreachable for a while.
func Follow(ctx context.Context, server *Server, hub client.WithWatch, read func(context.Context) (*Input, error), ready func()) error {
	f := &follower{
		server: server, read: read, wake: make(chan struct{}, 1),
		statuses: map[types.UID]*status.Object{}, members: map[types.UID]*corev1alpha1.FederatedCluster{},
	}
	if err := f.readAll(ctx); err != nil {
		return err
	}
	f.ready = sync.OnceFunc(ready)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var showing sync.WaitGroup
	defer showing.Wait()
	showing.Go(func() { f.show(ctx) })
	for {
		err := status.Follow(ctx, hub, f.see, status.Propagations(""), status.ClusterPropagations(), status.Members())
		if ctx.Err() != nil || !f.forget() {
			stop()
			return err
		}
		f.server.log.Info("Cannot follow the hub; the pages may be out of date", "error", err.Error())
		rest(ctx, readAgain)
	}
}

// forget discards all reports, because the next watch sends them again. It reports whether there were any since the
// start.
func (f *follower) forget() (heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.statuses)
	clear(f.members)
	return f.heard
}

// see stores the changed reports.
func (f *follower) see(events []status.Event) (done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		if m, ok := e.Object.(*corev1alpha1.FederatedCluster); ok {
			before := f.members[m.UID]
			f.stale = f.stale || before == nil || e.Gone || before.Generation != m.Generation || !maps.Equal(before.Labels, m.Labels)
			if f.members[m.UID] = m; e.Gone {
				delete(f.members, m.UID)
			}
			continue
		}
		o, ok := status.ObjectOf(e.Object)
		if !ok {
			continue
		}
		uid := e.Object.GetUID()
		before := f.statuses[uid]
		f.stale = f.stale || before == nil || e.Gone || decided(before) != decided(o)
		if f.statuses[uid] = o; e.Gone {
			delete(f.statuses, uid)
		}
	}
	if !f.heard {
		f.heard = true
		go func() {
			f.publish()
			f.ready()
		}()
	}
	f.again()
	return false, nil
}

// decided returns those parts of a report that change when the object or its policies change.
func decided(o *status.Object) string {
	return fmt.Sprint(o.Status.ObservedGeneration, o.Status.PlacementHash, o.Status.OverridePolicies, o.Status.Variants)
}

// again requests an update of the page.
func (f *follower) again() {
	select {
	case f.wake <- struct{}{}:
	default: // An update is already requested.
	}
}

// show publishes every new state. It reads policies and objects again if they may have changed.
func (f *follower) show(ctx context.Context) {
	late := time.NewTicker(readLate)
	defer late.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			f.mu.Lock()
			f.stale = true
			f.mu.Unlock()
		case <-f.wake:
			rest(ctx, settles) // One change of the hub often causes several events.
		}
		f.mu.Lock()
		stale := f.stale
		f.mu.Unlock()
		f.publish()
		if left := readAgain - time.Since(last); stale && left > 0 {
			time.AfterFunc(left, f.again)
			continue
		}
		if stale {
			last = time.Now()
			if err := f.readAll(ctx); err != nil && ctx.Err() == nil {
				f.server.log.Info("Cannot read the hub; the pages show earlier data", "error", err.Error())
				time.AfterFunc(readAgain, f.again)
			}
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// readAll reads policies and objects, and publishes them.
func (f *follower) readAll(ctx context.Context) error {
	f.mu.Lock()
	f.stale = false
	f.mu.Unlock()
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	in, err := f.read(reading)
	if err == nil {
		var is *Snapshot
		if is, err = NewSnapshot(in); err == nil {
			f.mu.Lock()
			f.snapshot = is
			f.mu.Unlock()
			f.publish()
			return nil
		}
	}
	f.mu.Lock()
	f.stale = true
	f.mu.Unlock()
	return err
}

// publish publishes the present state.
func (f *follower) publish() {
	f.mu.Lock()
	statuses, members, is := slices.Collect(maps.Values(f.statuses)), []corev1alpha1.FederatedCluster{}, f.snapshot
	for _, m := range f.members {
		members = append(members, *m)
	}
	f.mu.Unlock()
	if is != nil {
		f.server.Show(is.With(statuses, members, time.Now()))
	}
}
