package propagation

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestPace checks the limit that pace settles on for members at different distances and with different capacities.
func TestPace(t *testing.T) {
	type member struct {
		away   time.Duration // The time of a round trip.
		each   time.Duration // The time of a write on the member,
		atOnce int           // and the number of writes that it processes concurrently.
	}
	took := func(m member, underWay int) time.Duration {
		return m.away + max(m.each, m.each*time.Duration(underWay)/time.Duration(m.atOnce))
	}
	cases := map[string]struct {
		reason      string
		members     []member // One after the other, each for 60,000 writes.
		idle        bool
		least, most int
	}{
		"Near":     {"A few writes use all of its capacity.", []member{{time.Millisecond, 3 * time.Millisecond, 2}}, false, appliersByMember, appliersByMember},
		"Far":      {"With few writes, the round trip takes most of the time.", []member{{100 * time.Millisecond, 3 * time.Millisecond, 2}}, false, 32, mostAtOnce},
		"Further":  {"The limit has a maximum.", []member{{300 * time.Millisecond, time.Millisecond, 2}}, false, mostAtOnce, mostAtOnce},
		"Slow":     {"A slow member gets no more writes than a near one.", []member{{time.Millisecond, 300 * time.Millisecond, 1}}, false, appliersByMember, appliersByMember},
		"Idle":     {"No copy waits, so more writes are useless.", []member{{300 * time.Millisecond, time.Millisecond, 8}}, true, appliersByMember, appliersByMember},
		"Suddenly": {"A member that becomes slow gets fewer writes.", []member{{300 * time.Millisecond, time.Millisecond, 8}, {time.Millisecond, 300 * time.Millisecond, 2}}, false, appliersByMember, appliersByMember},
		"Nearer":   {"After a while, a member that becomes near gets fewer writes.", []member{{300 * time.Millisecond, 3 * time.Millisecond, 2}, {time.Millisecond, 3 * time.Millisecond, 2}}, false, appliersByMember, 2 * appliersByMember},
		"Away":     {"After a while, a distant member gets more writes.", []member{{time.Millisecond, time.Millisecond, 1}, {300 * time.Millisecond, time.Millisecond, 8}}, false, mostAtOnce, mostAtOnce},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var p pace
			limit, now := appliersByMember, time.Duration(0)
			for _, m := range tc.members {
				tried := 0
				for i := range 60_000 {
					now += took(m, limit) / time.Duration(limit)
					if limit = p.note(false, !tc.idle, now); i > 50_000 && p.from != 0 {
						tried++
					}
				}
				if tried > 5000 {
					t.Errorf("a trial runs at %d of 10,000 writes", tried)
				}
			}
			if limit = cmp.Or(p.from, limit); limit < tc.least || limit > tc.most {
				t.Errorf("%s\nwant from %d to %d writes under way, got %d", tc.reason, tc.least, tc.most, limit)
			}
			for range 10 * mostAtOnce {
				limit = p.note(true, true, now)
			}
			if limit != appliersByMember {
				t.Errorf("an overloaded member gets no more writes than any other: want %d, got %d", appliersByMember, limit)
			}
		})
	}
}

// TestPaceStrained: concurrent writes that fail together count once.
func TestPaceStrained(t *testing.T) {
	p := pace{limit: mostAtOnce}
	for range mostAtOnce {
		p.note(true, true, time.Second)
	}
	if p.limit != mostAtOnce/2 {
		t.Errorf("want %d writes under way after a connection broke with %d, got %d", mostAtOnce/2, mostAtOnce, p.limit)
	}
	for range mostAtOnce { // After other writes have succeeded, a later failure counts again.
		p.note(false, false, time.Second)
	}
	for range mostAtOnce / 2 {
		p.note(true, true, time.Second)
	}
	if p.limit != mostAtOnce/4 {
		t.Errorf("want %d when the connection breaks again, got %d", mostAtOnce/4, p.limit)
	}
}

// TestQueueAdapts: when the limit rises, more keys are processed concurrently, up to the share for all queues. When the
// limit falls, fewer keys are processed, but never fewer than the queue's own number.
func TestQueueAdapts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		var w *workQueue[int]
		w, err := newWorkQueue("test", 2, discard, func(context.Context, int) (reconcile.Result, error) {
			w.mu.Lock()
			running++
			most = max(most, running)
			w.mu.Unlock()
			<-time.After(time.Second)
			w.mu.Lock()
			running--
			w.mu.Unlock()
			return reconcile.Result{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.workers.shared = newSpare()
		w.workers.shared.taken.Store(mostSpare - 3)
		end := begin(t, w)
		next := 0
		at := func(reason string, limit, want int) {
			t.Helper()
			w.adapt(func(bool, time.Duration) int { return limit })
			for range 40 {
				w.add(next, priorityChanged)
				next++
			}
			<-time.After(1500 * time.Millisecond) // The surplus workers have ended.
			w.mu.Lock()
			most = 0
			w.mu.Unlock()
			<-time.After(time.Second)
			w.mu.Lock()
			got := most
			w.mu.Unlock()
			if got != want {
				t.Errorf("%s\nwant %d at a time, got %d", reason, want, got)
			}
			<-time.After(time.Hour)
		}
		at("The limit has not changed.", 2, 2)
		at("The limit has risen.", 4, 4)
		at("Other queues have the rest of the shared workers.", 10, 5)
		at("The limit has fallen.", 3, 3)
		at("The queue keeps its own workers in any case.", 1, 2)
		end()
		if taken := w.workers.shared.taken.Load(); taken != mostSpare-3 {
			t.Errorf("want the shared workers returned, got %d taken of %d", taken, mostSpare-3)
		}
	})
}
