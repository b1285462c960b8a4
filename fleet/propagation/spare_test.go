package propagation

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestSpare: while this process is overloaded, the number of workers falls, down to the own workers of each member.
// Afterwards it grows step by step.
func TestSpare(t *testing.T) {
	s := newSpare()
	steps := []struct {
		reason string
		lag    time.Duration
		want   int64
	}{
		{"There is no overload.", time.Millisecond, mostSpare},
		{"The process is overloaded.", mostLag + 1, mostSpare / 2},
		{"Nor now.", time.Second, mostSpare / 4},
		{"The load is just acceptable.", leastLag, mostSpare / 4},
		{"There is spare capacity again.", leastLag - 1, mostSpare/4 + moreSpare},
	}
	for _, step := range steps {
		s.adjust(step.lag)
		if got := s.most.Load(); got != step.want {
			t.Errorf("%s\nwant %d, got %d", step.reason, step.want, got)
		}
	}
	for range 20 {
		s.adjust(time.Second)
	}
	if s.take() {
		t.Error("want no shared worker under lasting overload")
	}
	for range 20 {
		s.adjust(0)
	}
	if !s.take() || s.most.Load() != mostSpare {
		t.Errorf("want all workers back, got %d", s.most.Load())
	}
	s.adjust(time.Second)
	s.taken.Store(mostSpare)
	if !s.excess() {
		t.Error("want the excess workers ended")
	}
}

// TestLatencies: the measurement shows goroutines that wait for a processor.
func TestLatencies(t *testing.T) {
	before := latencies()
	var all sync.WaitGroup
	for range 20 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			turns := 0
			for began := time.Now(); time.Since(began) < 20*time.Millisecond; { // The loop uses a processor, as decoding does.
				turns++
			}
		})
	}
	all.Wait()
	now := latencies()
	if got := before.average(now); got < time.Millisecond || now.average(before) != 0 {
		t.Errorf("want the average time that goroutines have waited, some of the 20 ms of work of the others, got %s", got)
	}
}
