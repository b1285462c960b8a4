package sharding

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leadership is whether this replica leads: it was elected, and still holds the Lease of the leader by its own clock.
// It is safe for concurrent use.
type leadership struct {
	changed func(elected bool)

	mu      sync.Mutex
	elected bool
	until   time.Time
}

// holds reports whether this replica leads now.
func (l *leadership) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elected && before(time.Now(), l.until)
}

// elector returns an elector that takes part in the election of a leader with this id.
func (l *leadership) elector(o *Options, id string) (*leaderelection.LeaderElector, error) {
	lasts := o.LeaseDuration * 2 / 3
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaderName,
		Lock: &timedLock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: leaderName},
				Client:     o.Leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: id},
			},
			within: o.period(),
			held:   func(began time.Time) { l.renew(began.Add(lasts)) },
		},
		LeaseDuration:   o.LeaseDuration,
		RenewDeadline:   lasts,
		RetryPeriod:     o.LeaseDuration / 10,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { l.elect(true) },
			OnStoppedLeading: func() { l.elect(false) },
		},
	})
}

func (l *leadership) elect(elected bool) {
	l.mu.Lock()
	same := l.elected == elected
	l.elected = elected
	l.mu.Unlock()
	if !same {
		l.changed(elected)
	}
}

// renew extends the leadership of an elected replica. After a late renewal it reports a change: between the end of its
// Lease and the renewal, the replica did not lead and skipped work, although no other replica was elected.
func (l *leadership) renew(until time.Time) {
	l.mu.Lock()
	lapsed := l.elected && !before(time.Now(), l.until)
	l.until = until
	l.mu.Unlock()
	if lapsed {
		l.changed(true)
	}
}

// timedLock bounds each request, as one without an answer would never end. It reports when the last request began that
// made this replica the leader, or kept it the leader: a process that was frozen must not take itself for the leader.
type timedLock struct {
	resourcelock.Interface

	within time.Duration
	held   func(began time.Time)
}

// Get calls the lock with a timeout.
func (l *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	return l.Interface.Get(ctx)
}

// Create calls the lock with a timeout.
func (l *timedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Create)
}

// Update calls the lock with a timeout.
func (l *timedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Update)
}

func (l *timedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	if err := do(ctx, r); err != nil {
		return err
	}
	if r.HolderIdentity == l.Identity() {
		l.held(began)
	}
	return nil
}
