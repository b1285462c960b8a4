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
	"refract.dev/internal/status"
)

// How soon what a hub says is shown, and how often at most; and how often policies and objects are read again.
const (
	settles   = 100 * time.Millisecond
	readAgain = 3 * time.Second
	readLate  = time.Minute
	// readTimeout is how long reading all of a hub may take.
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
	stale    bool // Whether policies or objects may be others by now.
	heard    bool // Whether it was ever said what is on clusters.
	ready    func()
}

// Follow shows what a hub says until ctx ends: what is on clusters as it happens, and policies and objects, which read
// reads, soon after they have changed. It calls ready when there is something to show. Its error is that of the first
// time that something cannot be read; later ones are those of a hub that is away, which comes back.
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
		f.server.log.Info("Cannot follow the hub; what is shown may be old", "error", err.Error())
		rest(ctx, readAgain)
	}
}

// forget forgets what was said of copies, which is about to be said anew. It reports whether anything ever was.
func (f *follower) forget() (heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.statuses)
	clear(f.members)
	return f.heard
}

// see takes up what has changed on the hub.
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

// decided tells what a report was made of: objects and policies are others if it is.
func decided(o *status.Object) string {
	return fmt.Sprint(o.Status.ObservedGeneration, o.Status.PlacementHash, o.Status.OverridePolicies, o.Status.Variants)
}

// again has the server show what is known now, soon.
func (f *follower) again() {
	select {
	case f.wake <- struct{}{}:
	default: // It is about to.
	}
}

// show shows what is new, and reads policies and objects again when they may be others.
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
			rest(ctx, settles) // What comes with it.
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
				f.server.log.Info("Cannot read the hub; what is shown is what was there before", "error", err.Error())
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

// readAll reads policies and objects, and shows them.
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

// publish shows what is known now.
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
