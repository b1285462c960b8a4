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

// Times of updates. settles is the delay between an event of the hub and the update of the page, so it also bounds the
// rate of updates. readAgain is the shortest interval between two reads of policies and objects, after a change;
// readLate is the longest one, without a change.
const (
	settles   = 100 * time.Millisecond
	readAgain = 3 * time.Second
	readLate  = time.Minute
	// readTimeout bounds the time for reading the whole hub.
	readTimeout = 2 * time.Minute
)

// follower keeps a server up to date with a hub.
type follower struct {
	server *Server
	read   func(context.Context) (*Input, error)

	mu       sync.Mutex
	statuses map[types.UID]*status.Object
	members  map[types.UID]*corev1alpha1.FederatedCluster
	snapshot *Snapshot
	wake     chan struct{}
	stale    bool // Whether policies or objects may have changed since they were read.
	heard    bool // Whether the hub has sent any status yet.
	ready    func()
}

// Follow shows the state of a hub until ctx ends. It shows reports from clusters as they arrive, and policies and
// objects, which the function read returns, soon after a change. It calls ready when the first state is available. It
// returns an error if the first read or the first watch fails, and when ctx ends. Later errors are logged and retried,
// because an unreachable hub comes back.
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

// forget discards the reported statuses, which the next watch sends again. It reports whether any were ever received.
func (f *follower) forget() (heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.statuses)
	clear(f.members)
	return f.heard
}

// see stores the statuses that have changed on the hub.
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

// decided returns the inputs of a report as text. If the text changes, objects or policies have changed.
func decided(o *status.Object) string {
	return fmt.Sprint(o.Status.ObservedGeneration, o.Status.PlacementHash, o.Status.OverridePolicies, o.Status.Variants)
}

// again schedules an update of the page with the present state.
func (f *follower) again() {
	select {
	case f.wake <- struct{}{}:
	default: // An update is already scheduled.
	}
}

// show publishes new states, and reads policies and objects again when they may have changed.
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
			rest(ctx, settles) // Wait for further events of the same change.
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

// publish shows the present state.
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
