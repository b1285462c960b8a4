package propagation

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestCostlyWait: a user changes 300 costly objects again and again. Other keys still get their turn.
func TestCostlyWait(t *testing.T) {
	now := time.Hour
	q := queue[string]{costs: func(key string) bool { return strings.HasPrefix(key, "costly") }}
	for i := range 300 {
		q.add(fmt.Sprint("costly-", i), priorityChanged, now, now)
	}
	q.add("namespace", priorityRequired, now, now)
	waited := 0
	for i := range 100 {
		now += time.Second
		q.add(fmt.Sprint("lone-", i), priorityResync, now, now) // The lowest priority.
		q.add(fmt.Sprint("costly-", i), priorityChanged, now, now)
		for {
			key, u, _, ok := q.get()
			if !ok {
				t.Fatal("a key was lost")
			}
			q.finish(key, u, outcome{}, now)
			if strings.HasPrefix(key, "lone") {
				break
			}
			if u != priorityChanged && key != "namespace" {
				t.Fatalf("%s was taken with priority %d, not with its own", key, u)
			}
			waited++
		}
	}
	if waited > 100 { // One key in eight is the one that waits longest.
		t.Errorf("100 keys waited for %d costly keys, which should wait for them", waited)
	}
	for left := 0; ; left++ {
		key, u, _, ok := q.get()
		if !ok {
			if left < 200 {
				t.Errorf("want the costly keys done in the end, got %d", left)
			}
			return
		}
		q.finish(key, u, outcome{}, now)
	}
}

// TestWanted: a costly key counts as wanted only until its first turn.
func TestWanted(t *testing.T) {
	w, err := newWorkQueue("decide", 1, discard, func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	w.queue.costs = func(key string) bool { return strings.HasPrefix(key, "costly") }
	for i := range 100 { // Enough keys for the queue to free memory after they are done.
		w.add(fmt.Sprint("costly-", i), priorityChanged)
	}
	w.add("lone-1", priorityChanged)
	w.add("lone-2", priorityChanged)
	if depth, wanted := w.depth(), w.wanted(); depth != 102 || wanted != 102 {
		t.Errorf("before the first turn: want 102 due, and all wanted, got %d, %d", depth, wanted)
	}
	for range 20 {
		key, u, _, _ := w.queue.get()
		w.queue.finish(key, u, outcome{}, time.Hour)
	}
	if depth, wanted := w.depth(), w.wanted(); depth != 82 || wanted != 0 {
		t.Errorf("after 20 turns: want 82 due, and none of them wanted, got %d, %d", depth, wanted)
	}
	for {
		key, u, _, ok := w.queue.get()
		if !ok {
			break
		}
		w.queue.finish(key, u, outcome{}, time.Hour)
	}
	w.addAfter("later", -time.Second)
	key, u, _, _ := w.queue.get()
	w.queue.finish(key, u, outcome{after: time.Nanosecond}, time.Hour)
	w.queue.promote(2 * time.Hour)
	if depth, wanted := w.depth(), w.wanted(); depth != 1 || wanted != 0 {
		t.Errorf("after a retry: want the key due, and not wanted, got %d, %d", depth, wanted)
	}
	key, u, _, _ = w.queue.get()
	w.add(key, priorityChanged)
	w.queue.finish(key, u, outcome{after: time.Nanosecond}, time.Hour)
	if depth, wanted := w.depth(), w.wanted(); depth != 1 || wanted != 1 {
		t.Errorf("after another add: want the key due and wanted, got %d, %d", depth, wanted)
	}
	key, u, _, _ = w.queue.get()
	w.queue.finish(key, u, outcome{}, time.Hour)
	w.add("costly-again", priorityChanged)
	if depth, wanted := w.depth(), w.wanted(); depth != 1 || wanted != 1 {
		t.Errorf("after all keys are done, and one was added again: want it due and wanted, got %d, %d", depth, wanted)
	}
}
