// Package sharding lets several replicas of the controllers work side by side: one of them leads, and each member
// cluster has one replica that works on it.
//
// # Leader
//
// The leader is the holder of the Lease refract-leader, which client-go elects. A replica that loses this Lease
// unexpectedly ends.
//
// # Assignment of members
//
// Every replica keeps a Lease refract-replica-<id>, and the leader keeps one record, the [assignment], in an annotation of
// the Lease refract-members. All Leases are in one namespace and are read by one consistent list. An id is the identity
// followed by a random part: it names one process, and is never used again, not even by the next process of the same pod.
//
//  1. The record is only written on the condition that it still has the version that was read. So its versions form a
//     chain, whichever replica writes, and a late write of a deposed leader has no effect.
//  2. A replica follows the versions in the order of the chain: its reads are consistent, and one ends before the next
//     begins. Once it has read a version, it begins no work on members that this version does not give to it. Then it
//     reports on its own Lease the version, and the members on which earlier work is still in flight (a [report]).
//  3. A member is taken from one replica before it is given to another: one version says that the member is leaving, and a
//     later one that it is owned. In between, either the replica reports the version that is to be replaced, and does not
//     report the member as held, or the replica's Lease is gone.
//  4. A Lease goes in three ways. Its replica deletes it after the end of all work. Or the next process in its pod deletes
//     it. Or the leader deletes it after it has seen the Lease unchanged for the duration of the Lease, by the leader's own
//     clock, and on the condition that the Lease is still unchanged.
//  5. A replica works only while its Lease certainly exists: until two thirds of the duration have passed since the
//     beginning of its last successful renewal, by its own clock. A renewal names the UID of the Lease, so it fails once the
//     Lease is gone, and the replica ends.
//
// # Why no two replicas work on one member
//
// Suppose that the version after V gives member m to B, and that A had m last. Then V said that m was leaving A (3). If A
// reported V without m, it has no work on m in flight, and begins none unless a later version gives m to A. By (1) and (2),
// such a version comes after the one that gives m to B, and so after B has stopped. If A's Lease was gone because A had
// deleted it, A had stopped for good. If the leader had deleted it, no renewal had arrived since the leader first saw the
// Lease in that version, so A's last successful renewal began before that. A had stopped a third of the duration before
// the leader could delete the Lease, and no later renewal can succeed (5). The argument needs no single leader. It only
// needs that the clocks of two machines run at the same rate within that third; their times are never compared.
//
// The argument does not cover two cases. First, a process that is frozen between the check and the write sends the write
// when it is thawed, and a write can be under way in the network. Work is therefore bounded by a context that ends with
// the Lease, which leaves such a write the last third to arrive. A later write is corrected as drift. Second, a member with
// two names is two members here: package member ensures that only one of the names is served.
//
// # Handover
//
// Reports and the record are watched, so that a member changes hands in a few round trips. A replica that ends gives all
// of its members back at once; a leader that ends gives them to the others itself. After a crash, the members of a replica
// rest for the duration of the Lease. If the replica led, they also rest until the next leader has waited as long, which
// happens at the same time. This also holds for the next process of the same identity, as it cannot be known here whether
// two processes have the same name. The UID of a pod is reliable ([Options.PodUID]): a kubelet starts a container again
// only after its process has ended, so the next process removes the Leases of the former one, and works at once. A write
// of the former process can then be under way for a moment, as in the first case above.
//
// If the record is deleted or damaged, the next one begins with a fence: every replica stops all work, and reports this,
// before any replica gets a member.
package sharding

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Options are the settings of a replica.
type Options struct {
	// Leases accesses the hub, without a rate limit on the requests.
	Leases coordinationclient.LeasesGetter
	// Namespace is the namespace of the Leases. It must exist, and be the same for all replicas.
	Namespace string
	// Identity names the replica for users: its pod or host. It need not be unique.
	Identity string
	// Unique tells this process from all others, including earlier ones: letters and digits. If it is empty, it is
	// random. A simulation sets it, as the assignment of members depends on it.
	Unique string
	// LeaseDuration is how long the members of a replica rest after a crash. It is in whole seconds, at least 2; 0
	// means 15 s. Replicas may have different durations.
	LeaseDuration time.Duration
	// PodUID is the UID of the pod of this process, which must be the only process of its container; empty outside of
	// pods. A container is started again only after its previous process has ended, so the Leases of that process are
	// taken over at once.
	PodUID string
	// Log reports members that change hands, changes of the leadership, and errors.
	Log logr.Logger
	// OnChange, if set, is called when this replica has got or lost a member, or its leadership has changed. It must
	// not block, and may be called without a change.
	OnChange func()
}

// period is the time between two renewals, and the timeout of a request.
func (o *Options) period() time.Duration { return o.LeaseDuration / 5 }

// Shards is one replica's part in the sharding. It is safe for concurrent use.
type Shards struct {
	options Options
	id      string
	alone   bool
	poke    chan struct{} // Has a value when there is work for Run.

	buried     bool // Whether the Leases of earlier processes in this pod are removed.
	owned      *ownership
	leadership *leadership
	client     *leaseClient
	lease      *replicaLease
	assigner   *assigner
}

// New returns the Shards of a replica. [Shards.Run] starts them.
func New(o Options) (*Shards, error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 15 * time.Second
	}
	if o.LeaseDuration < 2*time.Second || o.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("the duration of a lease: want whole seconds, at least 2, got %s", o.LeaseDuration)
	}
	id, err := newID(o.Identity, o.Unique)
	if err != nil {
		return nil, err
	}
	s := &Shards{options: o, id: id, poke: make(chan struct{}, 1)}
	s.owned = newOwnership(s.changed, s.wake)
	s.leadership = &leadership{changed: s.elected}
	s.client = &leaseClient{leases: o.Leases.Leases(o.Namespace), namespace: o.Namespace, period: o.period()}
	s.lease = &replicaLease{client: s.client, id: id, pod: o.PodUID, lasts: o.LeaseDuration}
	s.assigner = &assigner{client: s.client, id: id, lasts: o.LeaseDuration, log: o.Log, wake: s.wake}
	return s, nil
}

// Alone returns the Shards of a replica that is known to be the only one: it leads and owns everything from the
// beginning, whether Run is called or not.
func Alone() *Shards { return &Shards{alone: true} }

// newID returns a name for this process that no other process has, and that can be part of the name of an object.
func newID(identity, unique string) (string, error) {
	clean := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(identity)), "-")
	if clean == "" {
		return "", fmt.Errorf("the identity of a replica: want letters or digits, got %q", identity)
	}
	if unique == "" {
		random := make([]byte, 5)
		_, _ = rand.Read(random) // It never fails.
		unique = hex.EncodeToString(random)
	}
	return strings.TrimRight(clean[:min(len(clean), 200)], "-") + "-" + unique, nil
}

// ID returns the name of this replica in the Leases; "" for [Alone].
func (s *Shards) ID() string { return s.id }

// SetMembers sets the current members. It must be called on every replica, and not before all members are known; only
// the list of the leader has an effect. A member that is being removed stays in the list until no work is left on it.
// SetMembers keeps a copy.
func (s *Shards) SetMembers(names []string) {
	members := slices.Sorted(slices.Values(names))
	members = slices.Compact(members)
	if members == nil {
		members = []string{}
	}
	if !s.alone {
		s.assigner.setMembers(members)
	}
}

// Leads reports whether this replica leads now.
func (s *Shards) Leads() bool {
	return s.alone || s.leadership.holds() && !s.owned.ended() // In this order, as an end is final.
}

// Owns reports whether this replica has the member now. A write to the member needs [Shards.Begin].
func (s *Shards) Owns(member string) bool {
	return s.alone || s.owned.owns(member)
}

// Owned returns how many members this replica has now; 0 for [Alone].
func (s *Shards) Owned() int {
	if s.alone {
		return 0
	}
	return s.owned.count()
}

// Begin reports whether work on a member may begin now: a write, or other work that two replicas must not do at the
// same time. If so, no other replica gets the member before end is called. The caller must call end once the work is
// done or given up. The returned context is for the work. It ends before another replica may take over because this one
// has lost the hub. It does not end when the member is taken away: the work should be short, or bounded in another way.
func (s *Shards) Begin(ctx context.Context, member string) (_ context.Context, end func(), ok bool) {
	if s.alone {
		return ctx, func() {}, true
	}
	return s.owned.begin(ctx, member)
}

func (s *Shards) elected(elected bool) {
	s.options.Log.Info("Leadership changed", "leads", elected, "replica", s.id)
	s.wake()
	s.changed()
}

func (s *Shards) changed() {
	if s.options.OnChange != nil {
		s.options.OnChange()
	}
}

// wake has Run take another step.
func (s *Shards) wake() {
	select {
	case s.poke <- struct{}{}:
	default: // Run takes a step anyway.
	}
}
