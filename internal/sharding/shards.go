// Package sharding lets several replicas of the controllers work side by side:
// one of them leads, and each member cluster is worked on by one of them.
//
// # Who leads
//
// The holder of the Lease refract-leader, as client-go elects it. A replica that
// loses it unexpectedly ends.
//
// # Who has which member
//
// Every replica keeps a Lease refract-replica-<id>, and the leader keeps one
// record, the [assignment], in an annotation of the Lease refract-members. All
// are in one namespace and are read by one consistent list. An id is the
// identity followed by a random part: it names one process, and is never used
// again, not even by the next process of the same pod.
//
//  1. The record is only written on the condition that it is still the version
//     that was read, so that its versions form a chain, whoever writes, and the
//     late write of a deposed leader has no effect.
//  2. A replica goes by the versions in the order of the chain: its reads are
//     consistent, and one ends before the next begins. Having read a version it
//     begins no work on what that does not give to it, and then says so on its own
//     Lease: the version, and the members on which work begun earlier is still
//     in flight (a [report]).
//  3. A member is taken from a replica before it is given to another: one version
//     says that it is leaving, and a later one that it is owned. Between them lies
//     either a report of the replica that names the version to be replaced, and does
//     not name the member as held, or the replica's Lease is gone.
//  4. A Lease goes in three ways. Its replica deletes it when it has stopped all
//     work. Or the next process in its pod does. Or the leader deletes it after it saw
//     it unchanged for as long as the Lease says that it lasts, by the leader's own
//     clock, and on the condition that it is unchanged still.
//  5. A replica works only while its Lease is certain to be there: until two thirds
//     of that time have passed since the beginning of its last renewal that
//     succeeded, by its own clock. A renewal names the UID of the Lease, so it fails
//     once the Lease is gone, and the replica ends.
//
// # Why no two replicas work on one member
//
// Say that the version after V gives member m to B, and that A had it last. So V
// said that m was leaving A (3). If A reported so going by V, it has nothing of m in
// flight and begins nothing unless a later version gives m to A; by (1) and (2) such
// a version comes after the one that gives m to B, and so after B was made to
// stop. If A's Lease was gone because A deleted it, A had stopped for good. If the
// leader deleted it, no renewal had arrived since the leader first saw it as it
// was, so A's last renewal that succeeded began before that. A had stopped a third
// of the duration before the leader could delete the Lease, and no later renewal can
// succeed (5). The argument needs no single leader, only that the clocks of two
// machines run at the same rate within that third; what time they show is never
// compared.
//
// Two things are outside of it. A process that is frozen between the check and
// the write sends the write when it is thawed, and a write can be under way in the
// network: work is therefore bounded by a context that ends with the Lease, which
// leaves such a write the last third to arrive. One that comes later is corrected
// as drift. And a member that two replicas know under two names is two members here: that
// one of the names is served only is seen to by package member.
//
// # What happens when
//
// Reports and the record are watched, so that a member changes hands in a few
// round trips. A replica that ends gives back all that it has at once; a leader
// that ends first gives it to the others itself. After a crash its members rest
// for the duration of the Lease, and if it led, until the next leader has
// waited as long, which it does at the same time. This is so for the next process
// of the same identity too: that one name was not given to two processes
// is more than can be known here. The UID of a pod is ([Options.PodUID]): a kubelet starts a
// container again only when its process has ended, so that the next one takes the Leases of
// that away, and works at once. A write that it had sent can be under way for a
// moment then, as under "outside" above.
//
// If the record is deleted or damaged, the next one begins with a fence: every
// replica stops all, and says so, before anyone is given anything.
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

// Options say who takes part, and where.
type Options struct {
	// Leases is the hub, with requests that are not held back by a rate limit.
	Leases coordinationclient.LeasesGetter
	// Namespace is where the Leases are. It must exist, and be the same for all replicas.
	Namespace string
	// Identity names the replica for people: its pod or host. It need not be unique.
	Identity string
	// LeaseDuration is how long the work of a replica that crashed rests. It is in
	// whole seconds, at least 2; 0 is 15 s. Replicas may differ in it.
	LeaseDuration time.Duration
	// PodUID is the UID of the pod whose container this process is, and has to itself; empty outside of pods. A container is started
	// again only when its process before has ended: what that held is taken over at once.
	PodUID string
	// Log is told of changes of hands, and of what goes wrong.
	Log logr.Logger
	// OnChange, if set, is called when this replica was given a member, or has one no
	// more, or its leadership changed. It must not block, and may be called
	// when nothing has changed.
	OnChange func()
}

// period is the time between two renewals, and the most that a request may take.
func (o *Options) period() time.Duration { return o.LeaseDuration / 5 }

// Shards is the part of one replica. It is safe for many goroutines.
type Shards struct {
	options Options
	id      string
	alone   bool
	poke    chan struct{} // Has something to do.

	buried     bool // Nothing is left of the processes before in this pod.
	owned      *ownership
	leadership *leadership
	client     *leaseClient
	lease      *replicaLease
	assigner   *assigner
}

// New returns the part of a replica that is not begun; Run begins it.
func New(o Options) (*Shards, error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = 15 * time.Second
	}
	if o.LeaseDuration < 2*time.Second || o.LeaseDuration%time.Second != 0 {
		return nil, fmt.Errorf("the duration of a lease: want whole seconds, at least 2, got %s", o.LeaseDuration)
	}
	id, err := newID(o.Identity)
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

// Alone returns the part of a replica that is the only one, and knows it: it
// leads and owns everything, from the beginning, whether it runs or not.
func Alone() *Shards { return &Shards{alone: true} }

// newID returns a name for this process that no other has, fit for the name of
// an object.
func newID(identity string) (string, error) {
	clean := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(identity)), "-")
	if clean == "" {
		return "", fmt.Errorf("the identity of a replica: want letters or digits, got %q", identity)
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // It never fails.
	return strings.TrimRight(clean[:min(len(clean), 200)], "-") + "-" + hex.EncodeToString(random), nil
}

// ID names this replica in the Leases. It is "" if it is alone.
func (s *Shards) ID() string { return s.id }

// SetMembers says which members there are. It must be called on every replica,
// and not before all of them are known; the leader's word counts. A member
// that is being removed is one until there is no work left to do on it. It
// keeps a copy.
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
	return s.alone || s.leadership.holds() && !s.owned.ended() // In this order: what has ended stays so.
}

// Owns reports whether this replica has the member now. To write to it use
// [Shards.Begin].
func (s *Shards) Owns(member string) bool {
	return s.alone || s.owned.owns(member)
}

// Owned returns how many members this replica has now. It is 0 if it is alone.
func (s *Shards) Owned() int {
	if s.alone {
		return 0
	}
	return s.owned.count()
}

// Begin reports whether work on a member may begin now: a write, or whatever must
// not be done by two replicas at once. If so, no other replica is given the member
// before end was called, which must be once the work is done or given up; the
// context is one for the work, and ends before another replica may take over because
// this one lost touch with the hub. That the member is taken away does not end it:
// the work should be short, or bounded otherwise.
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

// wake has Run look at how things are.
func (s *Shards) wake() {
	select {
	case s.poke <- struct{}{}:
	default: // It will look anyway.
	}
}
