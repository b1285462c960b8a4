package leadership

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// stage has replicas that the test controls.
type stage struct {
	*testing.T

	server  *server
	players []*player
}

// player is a replica on the stage.
type player struct {
	*Leadership

	link    *link
	stop    context.CancelFunc
	done    chan struct{} // Closed after Run has returned.
	ended   chan error
	changes atomic.Int64
}

// perform runs a test with a fake clock that advances when all goroutines wait.
func perform(t *testing.T, play func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, server: &server{}}
		t.Cleanup(func() { // No goroutine may outlive the test.
			for _, p := range s.players {
				p.link.set(func(l *link) { l.frozen = time.Time{} })
				p.stop()
			}
			for _, p := range s.players {
				<-p.done
			}
			s.server.arriving.Wait()
		})
		play(s)
	})
}

// enter starts a replica in a pod; its UID may be empty.
func (s *stage) enter(identity, pod string) *player {
	s.Helper()
	p := &player{
		link:  &link{server: s.server, random: rand.New(rand.NewPCG(1, 1)), delay: 5 * time.Millisecond},
		done:  make(chan struct{}),
		ended: make(chan error, 1),
	}
	var err error
	p.Leadership, err = New(Options{Leases: p.link, Identity: identity, PodUID: pod, Log: logr.Discard(), OnChange: func() { p.changes.Add(1) }})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.Context())
	p.stop = stop
	s.players = append(s.players, p)
	go func() {
		defer close(p.done)
		p.ended <- p.Run(ctx)
	}()
	return p
}

// knows reports whether a replica has seen the Lease.
func (p *player) knows() bool {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	return p.link.read
}

// within waits for a condition, and fails if that takes longer than d. It returns the time that it took.
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

// never fails if a condition becomes true within d.
func (s *stage) never(d time.Duration, what string, is func() bool) {
	s.Helper()
	for began := time.Now(); time.Since(began) < d; <-time.After(time.Millisecond) {
		if is() {
			s.Fatalf("after %s: %s", time.Since(began), what)
		}
	}
}

func TestStart(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("node_1", "")
		s.within(time.Second, "the only replica leads", a.Leads)
		if !strings.HasPrefix(a.ID(), "node-1__") {
			s.Errorf("ID(): want the identity, the pod and a unique part, got %q", a.ID())
		}
		b := s.enter("b", "")
		s.never(time.Minute, "two replicas lead", b.Leads)
		if _, _, ok := b.Begin(s.Context()); ok {
			s.Error("Begin(): want no work on a replica that stands by")
		}
		if a.changes.Load() != 1 || b.changes.Load() != 0 {
			s.Errorf("want one change of the first replica and none of the second, got %d and %d", a.changes.Load(), b.changes.Load())
		}
	})
}

// TestHandOver: a leader that shuts down waits for its work, and then releases the Lease at once.
func TestHandOver(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a", "")
		s.within(time.Second, "a leads", a.Leads)
		b := s.enter("b", "")
		_, end, ok := a.Begin(s.Context())
		if !ok {
			s.Fatal("want the leader to work")
		}
		a.stop()
		s.within(time.Second, "a begins no new work", func() bool {
			_, end, ok := a.Begin(s.Context())
			end()
			return !ok
		})
		s.never(3*time.Second, "b leads during the work of a", b.Leads)
		end()
		end() // The second call has no effect.
		if err := <-a.ended; err != nil {
			s.Errorf("Run(): %v", err)
		}
		s.within(5*time.Second, "b leads", b.Leads)
	})
}

// TestHungWork: work that does not end while the Lease exists keeps the Lease until it expires.
func TestHungWork(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a", "")
		s.within(time.Second, "a leads", a.Leads)
		b := s.enter("b", "")
		ctx, end, _ := a.Begin(s.Context())
		defer end()
		a.stop()
		if err := <-a.ended; err != nil {
			s.Errorf("Run(): %v", err)
		}
		if b.Leads() {
			s.Error("want the Lease kept while work is in flight")
		}
		s.within(15*time.Second, "the context of the work ends", func() bool { return ctx.Err() != nil })
		if b.Leads() {
			s.Error("want the context of the work to end before another replica leads")
		}
		s.within(20*time.Second, "b leads", b.Leads)
	})
}

// TestCrash: after a crash, another replica leads when the Lease has expired. The next process in the same pod leads at
// once.
func TestCrash(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		identity, pod string
		least, most   time.Duration
	}{
		"Another":      {"Another replica cannot know whether the process has ended.", "b", "2", 10 * time.Second, 20 * time.Second},
		"SameIdentity": {"Two processes may have the same identity.", "a", "2", 10 * time.Second, 20 * time.Second},
		"NoPod":        {"A process outside of pods may have the same identity.", "a", "", 10 * time.Second, 20 * time.Second},
		"SamePod":      {"A kubelet starts a container again only after its process has ended.", "a", "1", 0, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				a := s.enter("a", "1")
				s.within(time.Second, "a leads", a.Leads)
				a.link.set(func(l *link) { l.dead = true })
				b := s.enter(tc.identity, tc.pod)
				if took := s.within(tc.most, "the next process leads", b.Leads); took < tc.least {
					s.Errorf("%s\nwant the process to lead after %s at the earliest, it led after %s", tc.reason, tc.least, took)
				}
			})
		})
	}
}

// TestOutage: the leader cannot reach the hub. It stops in time, and its process ends. After a short outage it
// continues.
func TestOutage(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a", "")
		s.within(time.Second, "a leads", a.Leads)
		a.link.set(func(l *link) { l.loss = 1 })
		<-time.After(5 * time.Second)
		a.link.set(func(l *link) { l.loss = 0 })
		s.never(time.Minute, "a stops after a short outage", func() bool { return !a.Leads() })
		ctx, end, _ := a.Begin(s.Context())
		defer end()
		a.link.set(func(l *link) { l.loss = 1 })
		s.within(11*time.Second, "a stops", func() bool { return !a.Leads() })
		s.within(time.Second, "the context of its work ends", func() bool { return ctx.Err() != nil })
		if err := <-a.ended; err == nil || !strings.Contains(err.Error(), "leadership was lost") {
			s.Errorf("Run(): want the process to end, got %v", err)
		}
	})
}

// TestFrozen: a frozen leader does not lead when it is thawed, and another leads meanwhile.
func TestFrozen(t *testing.T) {
	perform(t, func(s *stage) {
		a := s.enter("a", "")
		s.within(time.Second, "a leads", a.Leads)
		b := s.enter("b", "")
		a.link.set(func(l *link) { l.frozen = time.Now().Add(time.Minute) })
		// The limit is the duration of the Lease and two retries after at most 3.3 s each: b sees the last renewal late, and
		// then the end of the Lease.
		s.within(22*time.Second, "b leads", b.Leads)
		s.never(2*time.Minute, "a leads again, or b does not lead", func() bool {
			lease, err := s.server.get()
			return a.Leads() || !b.Leads() || err != nil || *lease.Spec.HolderIdentity != b.ID()
		})
		if err := <-a.ended; err == nil {
			s.Error("Run(): want the process to end")
		}
	})
}

// TestReleaseOwn: a process releases its own Lease. It does not release the Lease of the next leader.
func TestReleaseOwn(t *testing.T) {
	for holder, want := range map[string]bool{"me": true, "other": false, "": false} {
		s := &server{}
		lease := &coordinationv1.Lease{}
		lease.Spec.HolderIdentity = new(holder)
		if _, err := s.create(lease); err != nil {
			t.Fatal(err)
		}
		lock := ReleaseOwn(&resourcelock.LeaseLock{
			Client: &link{server: s, random: rand.New(rand.NewPCG(1, 1)), delay: time.Millisecond}, LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		})
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); (err == nil) != want {
			t.Errorf("%q holds the Lease: want it released: %t, got %v", holder, want, err)
		}
	}
}

// TestLeaseOfTheUser: a user deletes the Lease, or writes another holder into it. No two replicas lead at the same
// time.
func TestLeaseOfTheUser(t *testing.T) {
	for name, edit := range map[string]func(*coordinationv1.Lease) *coordinationv1.Lease{
		"Deleted": func(*coordinationv1.Lease) *coordinationv1.Lease { return nil },
		"Edited": func(l *coordinationv1.Lease) *coordinationv1.Lease {
			l.Spec.HolderIdentity = new("user")
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				a := s.enter("a", "")
				s.within(time.Second, "a leads", a.Leads)
				b := s.enter("b", "")
				<-time.After(3 * time.Second) // The new replica has seen the Lease.
				a.link.set(func(l *link) { l.frozen = time.Now().Add(4 * time.Second) })
				s.server.change(edit)
				s.never(time.Minute, "two lead", func() bool { return a.Leads() && b.Leads() })
				if !a.Leads() && !b.Leads() {
					s.Error("want one of the replicas to lead in the end")
				}
			})
		})
	}
}

// TestLeadsAgain: a leader renews its Lease too late, so it does not lead for a while. It is notified when it leads
// again, because it must do the work that it has skipped.
func TestLeadsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		after  time.Duration
		want   int64
	}{
		"InTime":  {"It led all the time.", 9 * time.Second, 0},
		"TooLate": {"Its Lease ended by its own clock: one notification is for the end, one for the renewal.", 11 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var changes atomic.Int64
				l, err := New(Options{Identity: "a", OnChange: func() { changes.Add(1) }})
				if err != nil {
					t.Fatal(err)
				}
				l.renew(time.Now())
				l.elect(true)
				changes.Store(0)
				<-time.After(tc.after)
				synctest.Wait()
				l.renew(time.Now())
				if got := changes.Load(); got != tc.want || !l.Leads() {
					t.Errorf("%s\nwant %d notifications, and the replica to lead; got %d, %t", tc.reason, tc.want, got, l.Leads())
				}
				l.timer.Stop()
			})
		})
	}
}

func TestAlone(t *testing.T) {
	l := Alone()
	if _, end, ok := l.Begin(t.Context()); !ok || !l.Leads() || l.ID() != "" {
		t.Error("want a replica that always leads")
	} else {
		end()
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := l.Run(ctx); err != nil {
		t.Errorf("Run(): %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"Short":    {Identity: "a", LeaseDuration: time.Second},
		"Fraction": {Identity: "a", LeaseDuration: 2500 * time.Millisecond},
		"Nameless": {},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(o); err == nil {
				t.Error("want an error")
			}
		})
	}
}

// TestRandomHistories: replicas come, end, crash and are frozen, requests are late and lost, and users delete the Lease.
// Two processes never work at the same time. In the end one leads. client-go chooses the times of retries at random, so a
// seed does not repeat a history exactly.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			perform(t, func(s *stage) { history(s, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func history(s *stage, r *rand.Rand) {
	var players []*player
	for i := range 3 {
		players = append(players, s.enter(fmt.Sprint("r", i), fmt.Sprint("pod-", i)))
	}
	led := 0
	check := func() {
		s.Helper()
		var leads []string
		for _, p := range players {
			p.link.mu.Lock()
			frozen := p.link.dead || time.Now().Before(p.link.frozen)
			p.link.mu.Unlock()
			if ctx, end, ok := p.Begin(s.Context()); ok && ctx.Err() == nil && !frozen {
				leads = append(leads, p.ID())
				end()
			}
		}
		if len(leads) > 1 {
			s.Fatalf("%v work at the same time", leads)
		}
		led += len(leads)
	}
	deleted := time.Time{}
	for range 40 {
		i := r.IntN(len(players))
		p := players[i]
		switch what := r.IntN(8); {
		case (what == 3 || what == 4) && time.Since(deleted) < 10*time.Second: // A new process does not know of a deleted Lease.
		case what == 0:
			p.link.set(func(l *link) { l.loss = float64(r.IntN(5)) / 8 })
		case what == 1:
			p.link.set(func(l *link) { l.delay = time.Millisecond * time.Duration(1+r.IntN(4000)) })
		case what == 2:
			p.link.set(func(l *link) { l.frozen = time.Now().Add(time.Duration(r.IntN(40)) * time.Second) })
		case what == 3: // A crash: the kubelet starts the container again.
			p.link.set(func(l *link) { l.dead = true })
			p.stop()
			<-p.ended
			players[i] = s.enter(fmt.Sprint("r", i), fmt.Sprint("pod-", i))
		case what == 4:
			p.stop()
			<-p.ended
			players[i] = s.enter(fmt.Sprint("r", i), fmt.Sprint("pod-", i))
		case what == 5 && time.Since(deleted) > time.Minute && !slices.ContainsFunc(players, func(p *player) bool { return !p.knows() }):
			s.server.change(func(*coordinationv1.Lease) *coordinationv1.Lease { return nil })
			deleted = time.Now()
		}
		for range r.IntN(60) {
			<-time.After(100 * time.Millisecond)
			check()
		}
	}
	for _, p := range players {
		p.link.set(func(l *link) { l.loss, l.delay, l.frozen = 0, time.Millisecond, time.Time{} })
	}
	for i, p := range players { // The kubelet restarts the processes that ended.
		select {
		case <-p.ended:
			players[i] = s.enter(fmt.Sprint("r", i), fmt.Sprint("pod-", i))
		case <-time.After(time.Minute):
		}
	}
	led = 0
	for range 600 {
		<-time.After(100 * time.Millisecond)
		check()
	}
	if led < 300 {
		s.Errorf("want one of the replicas to lead in the end: one led at %d of 600 moments", led)
	}
}
