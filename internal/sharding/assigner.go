package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// assigner keeps the assignment, while this replica leads. But for its members it is of the
// goroutine of Run.
type assigner struct {
	client *leaseClient
	id     string
	lasts  time.Duration // Of a Lease that does not say how long it lasts.
	log    logr.Logger
	wake   func() // Is called when there is something to look at.

	observed map[string]observation // By the name of the Lease.

	mu      sync.Mutex
	members []string // Sorted; nil before they are known.
}

// setMembers says which members there are. It keeps the list.
func (a *assigner) setMembers(members []string) {
	a.mu.Lock()
	same := a.members != nil && slices.Equal(a.members, members)
	a.members = members
	a.mu.Unlock()
	if !same {
		a.wake()
	}
}

// observation is since when a Lease is known to be as it is.
type observation struct {
	version string
	since   time.Time
}

// observe takes note of Leases as they were no later than now.
func (a *assigner) observe(leases []coordinationv1.Lease, now time.Time) {
	observed := map[string]observation{}
	for i := range leases {
		lease := &leases[i]
		if !strings.HasPrefix(lease.Name, replicaPrefix) {
			continue
		}
		was, known := a.observed[lease.Name]
		if !known || was.version != lease.ResourceVersion {
			was = observation{version: lease.ResourceVersion, since: now}
		}
		observed[lease.Name] = was
	}
	a.observed = observed
}

// assign removes the Leases that have run out, and takes the assignment one step
// towards what it should be. The Leases are all that there are.
func (a *assigner) assign(ctx context.Context, leases []coordinationv1.Lease) error {
	a.mu.Lock()
	members := a.members
	a.mu.Unlock()
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
		if a.ranOut(lease) {
			unchanged := metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}
			err := a.client.remove(ctx, lease.Name, unchanged)
			if err == nil {
				a.log.Info("A replica has not renewed its Lease: its members go to others", "replica", id)
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
	return a.record(ctx, leases, members, replicas)
}

// ranOut reports whether the Lease is unchanged for as long as it lasts.
func (a *assigner) ranOut(lease *coordinationv1.Lease) bool {
	was := a.observed[lease.Name]
	lasts := a.lasts
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		lasts = time.Duration(*d) * time.Second
	}
	return was.version == lease.ResourceVersion && time.Since(was.since) >= lasts
}

// record writes the assignment that follows the one in the Leases, if it is
// another.
func (a *assigner) record(
	ctx context.Context, leases []coordinationv1.Lease, members []string, replicas map[string]report,
) error {
	old, have := recordIn(leases)
	version := ""
	if old != nil {
		version = old.ResourceVersion
	}
	next := encode(plan(have, version, members, replicas))
	if have != nil && encode(have) == next {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.client.period)
	defer cancel()
	lease := a.client.named(membersName)
	if old != nil {
		lease = old.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, assignmentAnnotation, next)
	lease.Spec.HolderIdentity = &a.id // For people: who wrote it last.
	_, err := a.client.write(ctx, lease)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing Lease %s: %w", membersName, err)
	}
	a.wake() // Another look shows what it says now, whoever wrote it.
	return nil
}

// recordIn returns the Lease with the assignment, and that, or nil if it is not
// there, or damaged.
func recordIn(leases []coordinationv1.Lease) (*coordinationv1.Lease, *assignment) {
	for i := range leases {
		if leases[i].Name != membersName {
			continue
		}
		a, err := parse(leases[i].Annotations[assignmentAnnotation])
		if err != nil {
			return &leases[i], nil
		}
		return &leases[i], a
	}
	return nil, nil
}
