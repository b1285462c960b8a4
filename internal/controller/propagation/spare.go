package propagation

import (
	"context"
	"math"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// spare are the workers that members may have beyond those that each has for itself: mostSpare together, and fewer while this process
// cannot keep up. What is under way then waits for the processor and not for a member, and takes longer than requests may: it would
// fail, and be done once more.
type spare struct{ taken, most atomic.Int64 }

func newSpare() *spare {
	s := &spare{}
	s.most.Store(mostSpare)
	return s
}

// take takes one, if there is one.
func (s *spare) take() bool {
	if s.taken.Add(1) <= s.most.Load() {
		return true
	}
	s.taken.Add(-1)
	return false
}

func (s *spare) give() { s.taken.Add(-1) }

// excess reports whether more are taken than there may be by now.
func (s *spare) excess() bool { return s.taken.Load() > s.most.Load() }

const (
	// lagLooked is how often it is looked at how long goroutines wait for a processor.
	lagLooked = 250 * time.Millisecond
	// Above mostLag there are half as many workers, and below leastLag some more. A request waits for a processor some ten times.
	mostLag  = 50 * time.Millisecond
	leastLag = 20 * time.Millisecond
	// moreSpare is how many more.
	moreSpare = mostSpare / 16
)

// adjust takes how long goroutines have waited for a processor lately, on average.
func (s *spare) adjust(lag time.Duration) {
	switch most := s.most.Load(); {
	case lag > mostLag:
		s.most.Store(most / 2)
	case lag < leastLag:
		s.most.Store(min(most+moreSpare, mostSpare))
	}
}

// run adjusts until ctx ends.
func (s *spare) run(ctx context.Context) error {
	tick := time.NewTicker(lagLooked)
	defer tick.Stop()
	for since := latencies(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := latencies()
		s.adjust(since.average(now))
		since = now
	}
}

// latency is how often goroutines have waited for a processor, and how long together, in seconds.
type latency struct{ count, seconds float64 }

// average is that of those who waited between the two.
func (l latency) average(now latency) time.Duration {
	if now.count <= l.count {
		return 0
	}
	return time.Duration((now.seconds - l.seconds) / (now.count - l.count) * float64(time.Second))
}

// latencies reads what the runtime says of all that was since the start. Of each time it knows between which two it is: the lesser is
// taken.
func latencies() (all latency) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return latency{} // A runtime that does not know it any more.
	}
	h := sample[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		all.count += float64(n)
		if from := h.Buckets[i]; !math.IsInf(from, 0) {
			all.seconds += from * float64(n)
		}
	}
	return all
}
