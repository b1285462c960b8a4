package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// stage has replicas that the test controls.
type stage struct {
	*testing.T

	server *server
}

// player is a replica on the stage.
type player struct {
	*Shards

	link    *link
	stop    context.CancelFunc
	ended   chan error
	changes atomic.Int64
}

// enter starts a replica, with the members m1 to m4.
func (s *stage) enter(identity string) *player {
	s.Helper()
	return s.enterWith(identity, "")
}

// enterWith starts a replica in a pod.
func (s *stage) enterWith(identity, pod string) *player {
	s.Helper()
	p := &player{
		link:  &link{server: s.server, random: rand.New(rand.NewPCG(1, 1)), delay: 5 * time.Millisecond},
		ended: make(chan error, 1),
	}
	var err error
	p.Shards, err = New(Options{Leases: p.link, Identity: identity, PodUID: pod, Log: logr.Discard(), OnChange: func() { p.changes.Add(1) }})
	if err != nil {
		s.Fatal(err)
	}
	p.SetMembers([]string{"m3", "m1", "m4", "m2"})
	ctx, stop := context.WithCancel(s.Context())
	p.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- p.Run(ctx)
	}()
	s.Cleanup(func() { // No goroutine may outlive the test.
		stop()
		<-done
		s.server.arriving.Wait()
	})
	return p
}

// owned returns the members that a replica owns, as "m1 m2".
func owned(p *player) string {
	var names []string
	for i := range 6 {
		if m := fmt.Sprintf("m%d", i); p.Owns(m) {
			names = append(names, m)
		}
	}
	return strings.Join(names, " ")
}

// within waits for a condition, and fails if that takes longer than d. It returns the time it took.
func (s *stage) within(d time.Duration, what string, is func() bool) time.Duration {
	s.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > d {
			s.Fatalf("after %s: not true that %s", d, what)
		}
		<-time.After(time.Millisecond)
	}
	return time.Since(began)
}

func count(p *player) int { return len(strings.Fields(owned(p))) }

// leave ends a replica regularly.
func (s *stage) leave(p *player) {
	s.Helper()
	p.stop()
	if err := <-p.ended; err != nil {
		s.Errorf("Run(): %v", err)
	}
}

// perform runs a test with a clock that advances when all goroutines wait.
func perform(t *testing.T, play func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { play(&stage{T: t, server: newServer()}) })
}

func TestStart(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("Node_1.example")
		s.within(time.Second, "the only replica owns all", func() bool { return owned(a) == "m1 m2 m3 m4" && a.Leads() })
		if diff := cmp.Diff(4, a.Owned()); diff != "" {
			s.Errorf("Owned(): -want, +got:\n%s", diff)
		}
		if !strings.HasPrefix(a.ID(), "node-1-example-") {
			s.Errorf("ID(): want a name for an object made of the identity, got %q", a.ID())
		}
		if a.changes.Load() == 0 {
			s.Error("OnChange was not called")
		}
		a.SetMembers([]string{"m1", "m5"})
		s.within(time.Second, "it owns the members that there are now", func() bool { return owned(a) == "m1 m5" })
		s.leave(a)
		if owned(a) != "" || a.Leads() || a.Owned() != 0 {
			s.Error("Having ended it owns something, or leads")
		}

		b := s.enter("node-1")
		s.within(time.Second, "the next process begins at once", func() bool { return count(b) == 4 && b.Leads() })
		s.leave(b)
		var left []string
		for name := range s.server.leases {
			if strings.HasPrefix(name, replicaPrefix) {
				left = append(left, name)
			}
		}
		if diff := cmp.Diff([]string(nil), left); diff != "" {
			s.Errorf("Leases are left behind: -want, +got:\n%s", diff)
		}
	})
}

func TestMembersUnknown(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		b, err := New(Options{Leases: a.link, Identity: "b"})
		if err != nil {
			s.Fatal(err)
		}
		ctx, stop := context.WithCancel(s.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		s.within(time.Second, "b is given a share by the leader", func() bool { return b.Owned() == 2 })
		s.leave(a)
		s.within(10*time.Second, "b leads", b.Leads)
		<-time.After(time.Minute)
		if got := b.Owned(); got < 2 {
			s.Errorf("A leader that does not know the members yet took them away: it owns %d", got)
		}
		stop()
		if err := <-ended; err != nil {
			s.Errorf("Run(): %v", err)
		}
	})
}

func TestHandOver(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		ends := map[string]func(){}
		for m := range strings.FieldsSeq(owned(a)) {
			_, end, ok := a.Begin(s.Context(), m)
			if !ok {
				s.Fatalf("Begin(%s): want that it may, as it owns it", m)
			}
			ends[m] = end
		}
		b := s.enter("b")
		s.within(time.Second, "a gives up a half", func() bool { return count(a) == 2 })
		<-time.After(time.Minute)
		if got := owned(b); got != "" {
			s.Fatalf("b owns %s, while a has not ended its work on anything", got)
		}
		for m, end := range ends {
			_, endSecond, ok := a.Begin(s.Context(), m)
			if ok != a.Owns(m) {
				s.Errorf("Begin(%s): want %t, as that is whether a owns it", m, !ok)
			}
			endSecond()
			end()
			end() // A second call does nothing.
		}
		s.within(time.Second, "b owns the other half", func() bool { return count(b) == 2 && !strings.Contains(owned(a), owned(b)) })
		if a.Leads() == b.Leads() {
			s.Error("want one leader")
		}

		// The leader ends: the other replica gets all members before it leads.
		a.stop()
		if took := s.within(time.Second, "b owns all", func() bool { return count(b) == 4 }); took > 300*time.Millisecond {
			s.Errorf("The hand-over at the end of a took %s", took)
		}
		s.within(5*time.Second, "b leads", b.Leads)
		s.leave(a)
		s.leave(b)
	})
}

// TestEndOfWork: the end of work on a member that was taken away is reported at once, as another replica waits for it.
func TestEndOfWork(t *testing.T) {
	cases := map[string]struct {
		reason string
		taken  bool
		ending bool
		others int // Other works on the member under way.
		want   bool
	}{
		"Owned":  {reason: "Nobody waits for it."},
		"Taken":  {reason: "The leader gives the member to another replica when it is told.", taken: true, want: true},
		"Going":  {reason: "Other work on the member is still under way.", taken: true, others: 1},
		"Ending": {reason: "This replica waits for all of its work.", ending: true, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				p, err := New(Options{Leases: &link{server: s.server}, Identity: "a"})
				if err != nil {
					s.Fatal(err)
				}
				p.owned.adopt("1", []string{"m1"})
				p.owned.extend(time.Now().Add(time.Minute))
				defer p.owned.timer.Stop()
				for range tc.others {
					if _, _, ok := p.Begin(s.Context(), "m1"); !ok {
						s.Fatal("Begin(): want that it may")
					}
				}
				_, end, ok := p.Begin(s.Context(), "m1")
				if !ok {
					s.Fatal("Begin(): want that it may")
				}
				if tc.ending {
					p.owned.end()
				}
				if tc.taken {
					p.adopt("2", nil)
				}
				end()
				if got := len(p.poke) > 0; got != tc.want {
					s.Errorf("%s\nend(): want Run to look %t, got %t", tc.reason, tc.want, got)
				}
			})
		})
	}
}

func TestCrash(t *testing.T) {
	perform(t, func(s *stage) {
		a, b := s.enter("a"), s.enter("b")
		s.within(10*time.Second, "both have a half", func() bool { return count(a) == 2 && count(b) == 2 })
		follower, leader := a, b
		if a.Leads() {
			follower, leader = b, a
		}
		var ended atomic.Int64 // When the last work ended.
		for m := range strings.FieldsSeq(owned(follower)) {
			ctx, _, _ := follower.Begin(s.Context(), m)
			context.AfterFunc(ctx, func() { ended.Store(time.Now().UnixNano()) })
		}
		follower.link.set(func(l *link) { l.loss = 1 })
		took := s.within(20*time.Second, "the other has all", func() bool { return count(leader) == 4 })
		if took < 10*time.Second {
			s.Errorf("It took over after %s: the replica that is cut off may work for 10 s", took)
		}
		before := time.Unix(0, ended.Load())
		if ended.Load() == 0 || time.Since(before) < 2*time.Second {
			s.Errorf("The work of the replica that was cut off ended at %s, now it is %s: want a margin", before, time.Now())
		}
		follower.link.set(func(l *link) { l.loss = 0 })
		if err := <-follower.ended; !errors.Is(err, errLost) {
			s.Errorf("Run() of the one that was cut off: want %v, got %v", errLost, err)
		}
		s.leave(leader)
	})
}

// TestCrashedBefore: the next process in a pod does not wait for the previous one. A process in another pod does,
// whatever its name is.
func TestCrashedBefore(t *testing.T) {
	cases := map[string]struct {
		reason      string
		pod         string
		others      bool // Whether another replica leads.
		least, most time.Duration
	}{
		"SamePod":       {reason: "It has all at once.", pod: "1", most: 2 * time.Second},
		"SamePodOthers": {reason: "It has its half of them at once.", pod: "1", others: true, most: 2 * time.Second},
		"OtherPod":      {reason: "One that cannot be heard may be at work.", pod: "2", least: 10 * time.Second, most: 40 * time.Second},
		"NoPod":         {reason: "So it may outside of pods.", least: 10 * time.Second, most: 40 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				want, all := 4, []*player{}
				if tc.others {
					other := s.enter("other")
					s.within(20*time.Second, "the other has all", func() bool { return count(other) == 4 })
					want, all = 2, append(all, other)
				}
				before := s.enterWith("a", "1")
				s.within(20*time.Second, "it has its part", func() bool { return count(before) == want })
				before.link.set(func(l *link) { l.loss = 1 }) // No request from its end arrives.
				before.stop()
				<-before.ended
				after := s.enterWith("a", tc.pod)
				took := s.within(tc.most, tc.reason, func() bool { return count(after) == want })
				if took < tc.least {
					s.Errorf("%s\nwant it to take %s at least, got %s", tc.reason, tc.least, took)
				}
				for _, p := range append(all, after) {
					s.leave(p)
				}
			})
		})
	}
}

func TestOutage(t *testing.T) {
	perform(t, func(s *stage) {
		a, b := s.enter("a"), s.enter("b")
		s.within(10*time.Second, "both have a half", func() bool { return count(a) == 2 && count(b) == 2 })
		follower, leader := a, b
		if a.Leads() {
			follower, leader = b, a
		}
		for _, p := range []*player{a, b} {
			p.link.set(func(l *link) { l.loss = 1 })
		}
		s.within(11*time.Second, "nobody owns anything", func() bool { return count(a)+count(b) == 0 })
		if err := <-leader.ended; err == nil || !strings.Contains(err.Error(), "leadership was lost") {
			s.Errorf("Run() of the leader: want that leadership was lost, got %v", err)
		}
		follower.link.set(func(l *link) { l.loss = 0 })
		s.within(5*time.Second, "the other goes on as if nothing had been", func() bool { return count(follower) == 2 })
		s.within(30*time.Second, "it takes over", func() bool { return count(follower) == 4 && follower.Leads() })
		s.leave(follower)
	})
}

func TestFrozenLeader(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 && a.Leads() })
		b := s.enter("b")
		s.within(time.Second, "both have a half", func() bool { return count(a) == 2 && count(b) == 2 })
		a.link.set(func(l *link) { l.frozen = time.Now().Add(time.Minute) })
		<-time.After(11 * time.Second)
		if a.Leads() || count(a) > 0 {
			s.Error("Without a sign from the hub for 11 s it leads, or owns something")
		}
		s.within(15*time.Second, "b leads and owns all", func() bool { return b.Leads() && count(b) == 4 })
		if err := <-a.ended; err == nil {
			s.Error("Run() of the one that stood still: want an error")
		}
		s.leave(b)
	})
}

func TestDeposedLeaderWritesInVain(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		b := s.enter("b")
		s.within(time.Second, "both have a half", func() bool { return count(a) == 2 && count(b) == 2 })
		old := s.server.list().Items
		c := s.enter("c")
		s.within(time.Second, "c has a share", func() bool { return count(c) == 1 })
		want, _ := s.server.get(membersName)

		if err := b.assigner.record(s.Context(), old, []string{"m1"}, map[string]report{"b": {}}); err != nil {
			s.Errorf("record(): %v", err)
		}
		got, _ := s.server.get(membersName)
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("What was decided by an old view was written: -want, +got:\n%s", diff)
		}
		for _, p := range []*player{a, b, c} {
			s.leave(p)
		}
	})
}

func TestRenewalBeatsRemoval(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		b, err := New(Options{Leases: a.link, Identity: "b"})
		if err != nil {
			s.Fatal(err)
		}
		b.SetMembers([]string{"m1", "m2", "m3", "m4"})
		old := s.server.list().Items
		b.assigner.observe(old, time.Now())
		<-time.After(time.Minute)
		if err := b.assigner.assign(s.Context(), old); err != nil {
			s.Errorf("assign(): %v", err)
		}
		if _, err := s.server.get(replicaPrefix + a.ID()); err != nil {
			s.Errorf("A Lease was removed that was renewed after it was looked at last: %v", err)
		}
		if diff := cmp.Diff("m1 m2 m3 m4", owned(a)); diff != "" {
			s.Errorf("a owns: -want, +got:\n%s", diff)
		}
	})
}

func TestLeaseOfTheSameName(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		lease, err := s.server.get(replicaPrefix + a.ID())
		if err != nil {
			s.Fatal(err)
		}
		if err := s.server.remove(lease.Name, nil); err != nil {
			s.Fatal(err)
		}
		lease.UID = ""
		if _, err := s.server.create(lease); err != nil {
			s.Fatal(err)
		}
		if err := <-a.ended; !errors.Is(err, errLost) {
			s.Errorf("A late request made another Lease of the same name, when the first was gone already: want %v, got %v", errLost, err)
		}
	})
}

func TestHungWorkAtTheEnd(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		ctx, end, _ := a.Begin(s.Context(), "m1")
		began := time.Now()
		a.stop()
		if err := <-a.ended; err != nil {
			s.Errorf("Run(): %v", err)
		}
		if took := time.Since(began); ctx.Err() == nil || took > 10*time.Second {
			s.Errorf("Run() ended after %s, the work: %v; want both by the end of the Lease", took, ctx.Err())
		}
		if _, err := s.server.get(replicaPrefix + a.ID()); err != nil {
			s.Errorf("The Lease of a replica with work in flight must be left to run out: %v", err)
		}
		end()
	})
}

func TestLeaseWasEdited(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a")
		s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
		for _, name := range []string{replicaPrefix + a.ID(), membersName} {
			lease, err := s.server.get(name)
			if err != nil {
				s.Fatal(err)
			}
			lease.Labels = map[string]string{"touched": "true"}
			if _, err := s.server.update(lease); err != nil {
				s.Fatal(err)
			}
		}
		<-time.After(time.Minute)
		if diff := cmp.Diff("m1 m2 m3 m4", owned(a)); diff != "" {
			s.Errorf("Somebody put labels on Leases: -want, +got:\n%s", diff)
		}
		s.leave(a)
	})
}

func TestRecordIsLost(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(*server, *coordinationv1.Lease)
	}{
		"Deleted": {
			reason: "The owners are not known any more: all have to stop first.",
			do:     func(s *server, l *coordinationv1.Lease) { _ = s.remove(l.Name, nil) },
		},
		"Damaged": {
			reason: "The same for a record that cannot be read.",
			do: func(s *server, l *coordinationv1.Lease) {
				l.Annotations = nil
				_, _ = s.update(l)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				a := s.enter("a")
				s.within(time.Second, "a owns all", func() bool { return count(a) == 4 })
				_, end, _ := a.Begin(s.Context(), "m1")
				lease, err := s.server.get(membersName)
				if err != nil {
					s.Fatal(err)
				}
				tc.do(s.server, lease)
				s.within(time.Second, tc.reason, func() bool { return owned(a) == "m2 m3 m4" })
				end()
				s.within(time.Second, "all is owned again", func() bool { return count(a) == 4 })
				s.leave(a)
			})
		})
	}
}

func TestAlone(t *testing.T) {
	s := Alone()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	s.SetMembers([]string{"m1"})
	work, end, ok := s.Begin(t.Context(), "m1")
	if !ok || work.Err() != nil || !s.Owns("m1") || !s.Leads() || s.ID() != "" {
		t.Error("A replica that is alone owns and leads all")
	}
	end()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run(): %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		reason  string
		options Options
		want    string
	}{
		"Short": {
			reason:  "Leases last whole seconds.",
			options: Options{Identity: "a", LeaseDuration: 1500 * time.Millisecond},
			want:    "the duration of a lease: want whole seconds, at least 2, got 1.5s",
		},
		"Nobody": {
			reason:  "People want to see who it is.",
			options: Options{Identity: "--"},
			want:    `the identity of a replica: want letters or digits, got "--"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.options)
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("%s\nNew(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
