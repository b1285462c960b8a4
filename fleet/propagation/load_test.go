package propagation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestLimits compares the adaptive limit of concurrent writes to a member with fixed limits, in simulated time. A
// distant member needs many concurrent writes. On a near member, more than a few of them delay edits.
func TestLimits(t *testing.T) {
	type result struct {
		far  time.Duration // The time for 400 copies on a member with a round trip of 300 ms.
		edit time.Duration // The p99 of edits beside 4,000 copies, on a member with at most 500 writes a second.
	}
	results := map[int]result{}
	for _, limit := range []int{0, appliersByMember, 16, 32, mostAtOnce} {
		var r result
		synctest.Test(t, func(t *testing.T) {
			w, wrote := limited(t, limit, func() { <-time.After(300 * time.Millisecond) })
			for i := range 400 {
				w.add(i, priorityDependency)
			}
			for i := range 400 {
				r.far = max(r.far, wrote(i))
			}
		})
		synctest.Test(t, func(t *testing.T) {
			turn := make(chan struct{}, 1)
			w, wrote := limited(t, limit, func() {
				turn <- struct{}{}
				<-time.After(2 * time.Millisecond)
				<-turn
			})
			for i := range 4000 {
				w.add(i, priorityDependency)
			}
			var edits []time.Duration
			for i := range 200 {
				<-time.After(29 * time.Millisecond)
				began := w.now()
				w.add(10_000+i, priorityChanged)
				edits = append(edits, wrote(10_000+i)-began)
			}
			slices.Sort(edits)
			r.edit = edits[len(edits)*99/100]
		})
		results[limit] = r
		name := fmt.Sprint("fixed ", limit)
		if limit == 0 {
			name = "adaptive"
		}
		t.Logf("%s: far %s, edit p99 %s", name, r.far.Round(10*time.Millisecond), r.edit.Round(time.Millisecond))
	}
	switch few, many := results[appliersByMember], results[mostAtOnce]; {
	case results[0].far > few.far/2:
		t.Errorf("want a distant member to have its copies in half of the time of %d writes, %s, got %s", appliersByMember, few.far, results[0].far)
	case results[0].edit > many.edit/2:
		t.Errorf("want an edit on a near member to take half of the time beside %d writes, %s, got %s", mostAtOnce, many.edit, results[0].edit)
	}
}

// limited returns the queue of a member with a fixed limit of concurrent writes, or with an adaptive limit if limit is
// zero. wrote waits for the end of the write of a key, and returns its time.
func limited(t *testing.T, limit int, write func()) (_ *workQueue[int], wrote func(key int) time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var p pace
	ended := map[int]time.Duration{}
	var w *workQueue[int]
	w, err := newWorkQueue("test", appliersByMember, discard, func(_ context.Context, key int) (reconcile.Result, error) {
		write()
		w.adapt(func(waiting bool, now time.Duration) int {
			mu.Lock()
			defer mu.Unlock()
			ended[key] = now
			if limit > 0 {
				return limit
			}
			return p.note(false, waiting, now)
		})
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.workers.own, w.workers.shared, w.workers.limit = ownAtOnce, newSpare(), max(limit, appliersByMember)
	end := begin(t, w)
	t.Cleanup(end)
	return w, func(key int) time.Duration {
		for {
			mu.Lock()
			at, ok := ended[key]
			mu.Unlock()
			if ok {
				return at
			}
			<-time.After(time.Millisecond)
		}
	}
}
