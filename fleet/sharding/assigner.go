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

// assigner maintains the assignment while this replica leads. Except for its members, only the goroutine of Run uses
// it.
type assigner struct {
	client *leaseClient
	id     string
	lasts  time.Duration // Of a Lease without a duration.
	log    logr.Logger
	wake   func() // Called when there is work for Run.

	observed map[string]observation // By the name of the Lease.

	mu      sync.Mutex
	members []string // Sorted; nil before they are known.
}

// setMembers sets the current members. It keeps the list.
func (a *assigner) setMembers(members []string) {
	a.mu.Lock()
	same := a.members != nil && slices.Equal(a.members, members)
	a.members = members
	a.mu.Unlock()
	if !same {
		a.wake()
	}
}

// observation is the version of a Lease, and the time since which it is known.
type observation struct {
	version string
	since   time.Time
}

// observe records Leases in a state from now or earlier.
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

// assign removes the Leases that have expired, and moves the assignment one step toward its target. Leases are all
// existing ones.
func (a *assigner) assign(ctx context.Context, leases []coordinationv1.Lease) error {
	a.mu.Lock()
	members := a.members
	a.mu.Unlock()
	if members == nil {
		return nil // The members are not known yet.
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
				a.log.Info("A replica has not renewed its Lease: its members move to other replicas", "replica", id)
				continue
			}
			if !apierrors.IsConflict(err) { // The replica has renewed it.
				return err
			}
		}
		var r report
		if err := json.Unmarshal([]byte(lease.Annotations[reportAnnotation]), &r); err != nil {
			r = report{} // An unreadable report counts as empty.
		}
		replicas[id] = r
	}
	return a.record(ctx, leases, members, replicas)
}

// ranOut reports whether the Lease was unchanged for its whole duration.
func (a *assigner) ranOut(lease *coordinationv1.Lease) bool {
	was := a.observed[lease.Name]
	lasts := a.lasts
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		lasts = time.Duration(*d) * time.Second
	}
	return was.version == lease.ResourceVersion && time.Since(was.since) >= lasts
}

// record writes the assignment that follows the one in the Leases, if it differs.
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
	lease.Spec.HolderIdentity = &a.id // For users: the last writer.
	_, err := a.client.write(ctx, lease)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing Lease %s: %w", membersName, err)
	}
	a.wake() // Another step reads the record again, whichever replica has written it.
	return nil
}

// recordIn returns the Lease with the assignment, or nil if it does not exist, and the assignment, or nil if it does
// not exist or is damaged.
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
