package propagation

import (
	"context"
	"math"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// spare counts the workers that members use beyond their own. There are at most mostSpare of them, and fewer while this
// process is overloaded. Requests of an overloaded process wait for a processor, exceed their time limit, fail, and are
// repeated.
type spare struct{ taken, most atomic.Int64 }

func newSpare() *spare {
	s := &spare{}
	s.most.Store(mostSpare)
	return s
}

// take takes a worker, and reports whether there was one.
func (s *spare) take() bool {
	if s.taken.Add(1) <= s.most.Load() {
		return true
	}
	s.taken.Add(-1)
	return false
}

func (s *spare) give() { s.taken.Add(-1) }

// excess reports whether more workers are taken than permitted now.
func (s *spare) excess() bool { return s.taken.Load() > s.most.Load() }

const (
	// lagLooked is the interval between measurements of how long goroutines wait for a processor.
	lagLooked = 250 * time.Millisecond
	// The number of spare workers halves above mostLag, and grows below leastLag. A request waits for a processor about
	// ten times.
	mostLag  = 50 * time.Millisecond
	leastLag = 20 * time.Millisecond
	// moreSpare is the increase of the number at each measurement.
	moreSpare = mostSpare / 16
)

// adjust sets the number of workers from the average time that goroutines waited for a processor lately.
func (s *spare) adjust(lag time.Duration) {
	switch most := s.most.Load(); {
	case lag > mostLag:
		s.most.Store(most / 2)
	case lag < leastLag:
		s.most.Store(min(most+moreSpare, mostSpare))
	}
}

// run adjusts the number of workers until ctx ends.
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

// latency has the number of waits for a processor, and their total time in seconds.
type latency struct{ count, seconds float64 }

// average returns the average wait between two measurements.
func (l latency) average(now latency) time.Duration {
	if now.count <= l.count {
		return 0
	}
	return time.Duration((now.seconds - l.seconds) / (now.count - l.count) * float64(time.Second))
}

// latencies reads the waits since the start from the runtime. The runtime has a histogram, so each wait counts with
// the lower bound of its bucket.
func latencies() (all latency) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return latency{} // A runtime without this metric.
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
