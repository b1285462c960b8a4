package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// replicaLease is the Lease of this replica. It is of the goroutine of Run.
type replicaLease struct {
	client *leaseClient
	id     string
	pod    string // Its UID; empty outside of pods.
	lasts  time.Duration

	lease   *coordinationv1.Lease // As it was written last; nil before that.
	said    string                // The report on it.
	renewed time.Time             // When the last renewal that succeeded began.
}

// errLost says that others may have taken over.
var errLost = errors.New("its Lease was removed, as it was not renewed in time")

// renew makes or renews the Lease, and says on it how things are.
func (r *replicaLease) renew(ctx context.Context, said string) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.client.period)
	defer cancel()
	lease, err := r.write(ctx, began, said)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && r.lease != nil {
		// A request that seemed to fail had arrived, or somebody edited the Lease.
		now, getErr := r.client.leases.Get(ctx, replicaPrefix+r.id, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && r.lease != nil && r.lease.UID != now.UID:
			return errLost
		case getErr != nil:
			return fmt.Errorf("reading the Lease of this replica: %w", getErr)
		}
		r.lease = now
		lease, err = r.write(ctx, began, said)
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease of this replica: %w", err)
	}
	r.lease, r.said, r.renewed = lease, said, began
	return nil
}

// write makes the Lease if there is none yet, and updates it on the condition
// that it is as it was otherwise. Its UID is part of that: an update of a Lease that
// is gone would make it anew without.
func (r *replicaLease) write(ctx context.Context, now time.Time, said string) (*coordinationv1.Lease, error) {
	lease := r.client.named(replicaPrefix + r.id)
	if r.lease != nil {
		lease = r.lease.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, reportAnnotation, said)
	if r.pod != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, podAnnotation, r.pod)
	}
	lasts := int32(r.lasts / time.Second)
	lease.Spec.HolderIdentity = &r.id
	lease.Spec.LeaseDurationSeconds = &lasts
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if r.lease == nil {
		lease.Spec.AcquireTime = lease.Spec.RenewTime
	}
	return r.client.write(ctx, lease)
}
