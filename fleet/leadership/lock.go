package leadership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// timedLock limits the time of each request. It reports the start time of the last request that made or kept this
// replica the leader, so that a process that was frozen does not count as the leader.
type timedLock struct {
	resourcelock.Interface

	leadership *Leadership
	kept       atomic.Bool
	// lasts is the duration of the Lease that was last seen; 0 if no Lease was seen. gone is the time of the first
	// request afterwards that found no Lease. Only the goroutine of the elector uses the two fields.
	lasts time.Duration
	gone  time.Time
}

// errKept prevents the release of a Lease.
var errKept = errors.New("the Lease is kept until it expires")

// keep prevents the release of the Lease.
func (t *timedLock) keep() { t.kept.Store(true) }

// Get reads the Lease. It returns a Lease of an earlier process in the same pod as free, because that process has
// ended.
func (t *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.leadership.options.requestTimeout())
	defer cancel()
	record, raw, err := t.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err) && t.lasts > 0 && t.gone.IsZero():
		t.gone = time.Now()
	case err == nil:
		t.lasts, t.gone = time.Duration(record.LeaseDurationSeconds)*time.Second, time.Time{}
		t.leadership.heldBy(record.HolderIdentity)
	}
	if err != nil || !t.leadership.isFormer(record.HolderIdentity) {
		return record, raw, err
	}
	free := *record
	free.HolderIdentity = ""
	if raw, err = json.Marshal(&free); err != nil {
		return nil, nil, fmt.Errorf("encoding the record of the leader: %w", err)
	}
	return &free, raw, nil
}

// isFormer reports whether an id belongs to an earlier process in the pod of this process.
func (l *Leadership) isFormer(id string) bool {
	return l.options.PodUID != "" && id != l.id && strings.HasPrefix(id, pod(&l.options))
}

// Create creates the Lease. If a user has deleted the Lease, its holder may not know that yet. So another replica
// creates it only after the duration of the Lease.
func (t *timedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if left := t.lasts - time.Since(t.gone); !t.leadership.Leads() && !t.gone.IsZero() && left > 0 {
		return fmt.Errorf("lease %s was deleted, and its former holder may still lead: it is created again after %s", LeaseName, left.Round(time.Second))
	}
	return t.write(ctx, r, t.Interface.Create)
}

// Update writes the Lease.
func (t *timedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, r, t.Interface.Update)
}

func (t *timedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if t.kept.Load() {
		return errKept
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, t.leadership.options.requestTimeout())
	defer cancel()
	if err := do(ctx, r); err != nil {
		return err
	}
	if r.HolderIdentity == t.Identity() {
		t.leadership.renew(began)
	}
	return nil
}

// ReleaseOwn returns a lock that releases the Lease only if this process holds it. A plain lock reads the Lease before
// the release and does not compare the holder, so a leader that was frozen would release the Lease of the next leader.
func ReleaseOwn(lock resourcelock.Interface) resourcelock.Interface { return &ownLock{Interface: lock} }

// ownLock is used by the goroutine of one elector.
type ownLock struct {
	resourcelock.Interface

	holder string // The last known holder.
}

// Get reads the Lease.
func (o *ownLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := o.Interface.Get(ctx)
	if err == nil {
		o.holder = record.HolderIdentity
	}
	return record, raw, err
}

// Create creates the Lease.
func (o *ownLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := o.Interface.Create(ctx, r)
	if err == nil {
		o.holder = r.HolderIdentity
	}
	return err
}

// Update writes the Lease.
func (o *ownLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" && o.holder != o.Identity() {
		return fmt.Errorf("%s is not released: %q holds it", o.Describe(), o.holder)
	}
	err := o.Interface.Update(ctx, r)
	if err == nil {
		o.holder = r.HolderIdentity
	}
	return err
}
