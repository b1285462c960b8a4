package propagation

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCostlyWait: somebody changes 300 objects that each take long, again and again. Others
// get their turn all the same.
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
		q.add(fmt.Sprint("lone-", i), priorityResync, now, now) // Of as low a priority as may be.
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
				t.Fatalf("%s was taken with priority %d, and not with that which it came with", key, u)
			}
			waited++
		}
	}
	if waited > 100 { // One of eight is what waits longest.
		t.Errorf("100 keys waited for %d that are to wait for them", waited)
	}
	for left := 0; ; left++ {
		key, u, _, ok := q.get()
		if !ok {
			if left < 200 {
				t.Errorf("want the rest to be worked on at last, got %d", left)
			}
			return
		}
		q.finish(key, u, outcome{}, now)
	}
}
