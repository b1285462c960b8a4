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
//  4. A Lease goes in two ways. Its replica deletes it when it has stopped all
//     work. Or the leader deletes it after it saw it unchanged for as long as the
//     Lease says that it lasts, by the leader's own clock, and on the condition that
//     it is unchanged still.
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
// as drift. And a member that two replicas know under two names is two members.
//
// # What happens when
//
// Reports and the record are watched, so that a member changes hands in a few
// round trips. A replica that ends gives back all that it has at once; a leader
// that ends first gives it to the others itself. After a crash its members rest
// for the duration of the Lease, and if it led, until the next leader has
// waited as long, which it does at the same time. This is so for the next process
// of the same identity too: that one name was not given to two processes
// is more than can be known here.
//
// If the record is deleted or damaged, the next one begins with a fence: every
// replica stops all, and says so, before anyone is given anything.
package sharding

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
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
	// Log is told of changes of hands, and of what goes wrong.
	Log logr.Logger
	// OnChange, if set, is called when this replica was given a member, or has one no
	// more, or its leadership changed. It must not block, and may be called
	// when nothing has changed.
	OnChange func()
}

// Shards is the part of one replica. It is safe for many goroutines.
type Shards struct {
	options Options
	id      string
	alone   bool
	leases  coordinationclient.LeaseInterface
	poke    chan struct{} // Has something to do.

	// Of the goroutine of Run.
	lease   *coordinationv1.Lease // Its own, as it was written last.
	said    string                // The report on it.
	renewed time.Time             // When the last renewal that succeeded began.
	seen    map[string]observation

	mu        sync.Mutex
	members   []string // Sorted; nil before they are known.
	version   string   // Of the assignment that it goes by.
	owned     map[string]bool
	busy      map[string]int  // Work in flight on each member.
	until     time.Time       // Its Lease is there until then.
	term      context.Context //nolint:containedctx // The life of the Lease; work ends with it.
	lapse     context.CancelFunc
	timer     *time.Timer
	elected   bool
	leadUntil time.Time
	ending    bool
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
	s := &Shards{
		options: o,
		id:      id,
		leases:  o.Leases.Leases(o.Namespace),
		poke:    make(chan struct{}, 1),
		seen:    map[string]observation{},
		busy:    map[string]int{},
	}
	s.term, s.lapse = context.WithCancel(context.Background())
	s.lapse() // It has no Lease yet.
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
	s.mu.Lock()
	same := s.members != nil && slices.Equal(s.members, members)
	s.members = members
	s.mu.Unlock()
	if !same {
		s.wake()
	}
}

// Leads reports whether this replica leads now.
func (s *Shards) Leads() bool {
	if s.alone {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ending && s.leadsNow()
}

func (s *Shards) leadsNow() bool { return s.elected && before(time.Now(), s.leadUntil) }

// Owns reports whether this replica has the member now. To write to it use
// [Shards.Begin].
func (s *Shards) Owns(member string) bool {
	if s.alone {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownsNow(member)
}

func (s *Shards) ownsNow(member string) bool {
	return !s.ending && s.owned[member] && before(time.Now(), s.until)
}

// Owned returns how many members this replica has now. It is 0 if it is alone.
func (s *Shards) Owned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending || !before(time.Now(), s.until) {
		return 0
	}
	return len(s.owned)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ownsNow(member) {
		return ctx, func() {}, false
	}
	s.busy[member]++
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(s.term, cancel)
	return ctx, sync.OnceFunc(func() {
		unbind()
		cancel()
		s.finish(member)
	}), true
}

func (s *Shards) finish(member string) {
	s.mu.Lock()
	s.busy[member]--
	done := s.busy[member] == 0
	if done {
		delete(s.busy, member)
	}
	awaited := done && (s.ending || !s.owned[member])
	s.mu.Unlock()
	if awaited {
		s.wake()
	}
}

// report returns what this replica may say of itself now.
func (s *Shards) report() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := report{Version: s.version}
	for m := range s.busy {
		if !s.owned[m] {
			r.Holding = append(r.Holding, m)
		}
	}
	slices.Sort(r.Holding)
	return encode(r)
}

// adopt goes by a version of the assignment from here on.
func (s *Shards) adopt(version string, a *assignment) {
	s.mu.Lock()
	owned := map[string]bool{}
	for _, m := range a.Owned[s.id] {
		owned[m] = true
	}
	var gained, lost int
	for m := range owned {
		if !s.owned[m] {
			gained++
		}
	}
	for m := range s.owned {
		if !owned[m] {
			lost++
		}
	}
	s.version, s.owned = version, owned
	s.mu.Unlock()
	if gained+lost > 0 {
		s.options.Log.Info("Members changed hands", "gained", gained, "lost", lost, "owned", len(owned))
		s.changed()
	}
}

// extend is called after a renewal that began then.
func (s *Shards) extend(began time.Time) {
	s.mu.Lock()
	was := before(time.Now(), s.until)
	s.until = began.Add(s.options.LeaseDuration * 2 / 3)
	is := before(time.Now(), s.until)
	if is && s.term.Err() != nil {
		s.term, s.lapse = context.WithCancel(context.Background())
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Until(s.until), s.expire)
	} else {
		s.timer.Reset(time.Until(s.until))
	}
	s.mu.Unlock()
	if is && !was {
		s.changed()
	}
}

// expire ends the work when the Lease was not renewed in time.
func (s *Shards) expire() {
	s.mu.Lock()
	late := !before(time.Now(), s.until)
	if late {
		s.lapse()
	}
	s.mu.Unlock()
	if late {
		s.changed()
	}
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

// before compares by the clock on the wall as well: the other one stands still
// while a virtual machine does.
func before(now, then time.Time) bool {
	return now.Before(then) && now.Round(0).Before(then.Round(0))
}

// errLost says that others may have taken over.
var errLost = errors.New("its Lease was removed, as it was not renewed in time")
