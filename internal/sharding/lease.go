package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A sighting is since when a Lease is known to be as it is.
type observation struct {
	version string
	since   time.Time
}

// observe takes note of Leases as they were no later than now.
func (s *Shards) observe(leases []coordinationv1.Lease, now time.Time) {
	seen := map[string]observation{}
	for i := range leases {
		lease := &leases[i]
		if !strings.HasPrefix(lease.Name, replicaPrefix) {
			continue
		}
		was, known := s.seen[lease.Name]
		if !known || was.version != lease.ResourceVersion {
			was = observation{version: lease.ResourceVersion, since: now}
		}
		seen[lease.Name] = was
	}
	s.seen = seen
}

// renew makes or renews the Lease of this replica, and says on it how things are.
func (s *Shards) renew(ctx context.Context) error {
	began, said := time.Now(), s.report()
	ctx, cancel := context.WithTimeout(ctx, s.period())
	defer cancel()
	lease, err := s.write(ctx, s.lease, began, said)
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) && s.lease != nil {
		// A request that seemed to fail had arrived, or somebody edited the Lease.
		now, getErr := s.leases.Get(ctx, replicaPrefix+s.id, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(getErr), getErr == nil && s.lease != nil && s.lease.UID != now.UID:
			return errLost
		case getErr != nil:
			return fmt.Errorf("reading the Lease of this replica: %w", getErr)
		}
		s.lease = now
		lease, err = s.write(ctx, now, began, said)
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease of this replica: %w", err)
	}
	s.lease, s.said, s.renewed = lease, said, began
	s.extend(began)
	return nil
}

// write makes the Lease if there is none yet, and updates it on the condition
// that it is as it was otherwise. Its UID is part of that: an update of a Lease that
// is gone would make it anew without.
func (s *Shards) write(ctx context.Context, old *coordinationv1.Lease, now time.Time, said string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: replicaPrefix + s.id, Namespace: s.options.Namespace}}
	if old != nil {
		lease = old.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, reportAnnotation, said)
	lasts := int32(s.options.LeaseDuration / time.Second)
	lease.Spec.HolderIdentity = &s.id
	lease.Spec.LeaseDurationSeconds = &lasts
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if old == nil {
		lease.Spec.AcquireTime = lease.Spec.RenewTime
		return s.leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	return s.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// remove deletes a Lease on a condition. That it is gone is no error.
func (s *Shards) remove(ctx context.Context, name string, on metav1.Preconditions) error {
	ctx, cancel := context.WithTimeout(ctx, s.period())
	defer cancel()
	err := s.leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &on})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing Lease %s: %w", name, err)
	}
	return nil
}

// lead removes the Leases that have run out, and takes the assignment one step
// towards what it should be. The Leases are all that there are.
func (s *Shards) lead(ctx context.Context, leases []coordinationv1.Lease) error {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	if members == nil {
		return nil // Not known yet.
	}
	replicas := map[string]report{}
	for i := range leases {
		lease := &leases[i]
		id, is := strings.CutPrefix(lease.Name, replicaPrefix)
		if !is {
			continue
		}
		if s.ranOut(lease) {
			err := s.remove(ctx, lease.Name, metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
			if err == nil {
				s.options.Log.Info("A replica has not renewed its Lease: its members go to others", "replica", id)
				continue
			}
			if !apierrors.IsConflict(err) { // It has renewed it.
				return err
			}
		}
		var r report
		if err := json.Unmarshal([]byte(lease.Annotations[reportAnnotation]), &r); err != nil {
			r = report{} // It says nothing that can be gone by.
		}
		replicas[id] = r
	}
	return s.record(ctx, leases, members, replicas)
}

// ranOut reports whether the Lease is unchanged for as long as it lasts.
func (s *Shards) ranOut(lease *coordinationv1.Lease) bool {
	seen := s.seen[lease.Name]
	lasts := s.options.LeaseDuration
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		lasts = time.Duration(*d) * time.Second
	}
	return seen.version == lease.ResourceVersion && time.Since(seen.since) >= lasts
}

// record writes the assignment that follows the one in the Leases, if it is
// another.
func (s *Shards) record(ctx context.Context, leases []coordinationv1.Lease, members []string, replicas map[string]report) error {
	old, have := recordIn(leases)
	version := ""
	if old != nil {
		version = old.ResourceVersion
	}
	next := encode(plan(have, version, members, replicas))
	if have != nil && encode(have) == next {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.period())
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: membersName, Namespace: s.options.Namespace}}
	write := func() (*coordinationv1.Lease, error) { return s.leases.Create(ctx, lease, metav1.CreateOptions{}) }
	if old != nil {
		lease = old.DeepCopy()
		write = func() (*coordinationv1.Lease, error) { return s.leases.Update(ctx, lease, metav1.UpdateOptions{}) }
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, assignmentAnnotation, next)
	lease.Spec.HolderIdentity = &s.id // For people: who wrote it last.
	_, err := write()
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing Lease %s: %w", membersName, err)
	}
	s.wake() // Another look shows what it says now, whoever wrote it.
	return nil
}
