package sharding

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bury removes the Leases of earlier processes in the pod of this process. A kubelet starts a container again only
// after its process has ended, so no replica has to wait for those processes.
func (s *Shards) bury(ctx context.Context) error {
	if s.options.PodUID == "" || s.buried {
		return nil
	}
	leases, err := s.client.list(ctx)
	if err != nil {
		return err
	}
	var ended []string
	for i := range leases {
		lease := &leases[i]
		id, is := strings.CutPrefix(lease.Name, replicaPrefix)
		if !is || id == s.id || lease.Annotations[podAnnotation] != s.options.PodUID {
			continue
		}
		s.options.Log.Info("The previous replica in this pod has ended: this replica does not wait for it", "before", id, "replica", s.id)
		ended = append(ended, id)
	}
	// The leadership comes first: without the Lease of the replica, its end is not known any more.
	for i := range leases {
		if err := s.succeed(ctx, &leases[i], ended); err != nil {
			return err
		}
	}
	for i := range leases {
		lease := &leases[i]
		if id, is := strings.CutPrefix(lease.Name, replicaPrefix); !is || !slices.Contains(ended, id) {
			continue
		}
		if err := s.client.remove(ctx, lease.Name, metav1.Preconditions{UID: &lease.UID}); err != nil {
			return err
		}
	}
	s.buried = true
	return nil
}

// succeed frees the Lease of the leader if a replica that has ended holds it.
func (s *Shards) succeed(ctx context.Context, lease *coordinationv1.Lease, ended []string) error {
	if lease.Name != leaderName || lease.Spec.HolderIdentity == nil || !slices.Contains(ended, *lease.Spec.HolderIdentity) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.period)
	defer cancel()
	free := lease.DeepCopy()
	free.Spec.HolderIdentity = new("")
	if _, err := s.client.write(ctx, free); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking Lease %s from a replica that has ended: %w", leaderName, err)
	}
	return nil
}
