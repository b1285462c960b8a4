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

// replicaLease is the Lease of this replica. Only the goroutine of Run uses it.
type replicaLease struct {
	client *leaseClient
	id     string
	pod    string // The UID of its pod; empty outside of pods.
	lasts  time.Duration

	lease   *coordinationv1.Lease // As last written; nil before that.
	said    string                // The report in it.
	renewed time.Time             // When the last successful renewal began.
}

// errLost says that other replicas may have taken over.
var errLost = errors.New("its Lease was removed, as it was not renewed in time")

// renew creates or renews the Lease with this report.
func (r *replicaLease) renew(ctx context.Context, said string) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.client.period)
	defer cancel()
	lease, err := r.write(ctx, began, said)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && r.lease != nil {
		// A request that seemed to fail has arrived, or a user has edited the Lease.
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

// write creates the Lease if this process has not created it yet. Otherwise write updates it on the condition that it
// is unchanged. The UID is a part of this condition: without it, an update would create a Lease that is gone again.
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
