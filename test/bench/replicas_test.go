package bench

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkReplicas has one, two and four replicas of the controllers carry the same objects to the same simulated members: how
// long that takes, what each replica costs, and what they cost the hub, each of which watches all. Then the OverridePolicy changes, and
// when half of the copies have the change one replica is killed and another one begins: no copy is written twice but what was under
// way, and none is lost. All share the processors with the members, so that more replicas are not faster on one machine. It is for
// -benchtime 1x; $REFRACT_BENCH_FLEETS says which fleets (members, objects).
func BenchmarkReplicas(b *testing.B) {
	sizes := os.Getenv(sizesVariable)
	if sizes == "" {
		sizes = defaultSizes
	}
	for size := range strings.SplitSeq(sizes, ",") {
		for _, n := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/replicas=%d", size, n), func(b *testing.B) {
				s := &simulated{}
				if _, err := fmt.Sscanf(size, "%dx%d", &s.members, &s.objects); err != nil {
					b.Fatalf("%s: want MEMBERSxOBJECTS, got %q", sizesVariable, size)
				}
				s.replicas(b, n)
			})
		}
	}
}

func (s *simulated) replicas(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // It would hold all phases.
	s.start(b)
	for b.Loop() {
		s.join(b)
		all := []*controllers{s.refract}
		for i := 1; i < n; i++ {
			all = append(all, s.another(b, i))
		}
		s.settle(b)

		load := s.loads(b, all)
		began := time.Now()
		s.create(b)
		s.until(b, func() bool { return s.count(b, ours+",hello=world") == s.copies() })
		took := time.Since(began)
		s.settle(b)
		load = s.loads(b, all).minus(load)
		copies, objects := float64(s.copies()), float64(s.objects)
		b.ReportMetric(copies/took.Seconds(), "copies/s")
		b.ReportMetric(load.controllers*1000/copies, "cpu-ms/copy")
		b.ReportMetric(load.hub*1000/objects, "hub-cpu-ms/object")
		b.ReportMetric(load.events/objects, "hub-events/object")
		b.ReportMetric(load.writes/copies, "writes/copy")
		for i, c := range all {
			_, most := c.resident()
			b.ReportMetric(most, fmt.Sprintf("replica-%d-peak-MB", i))
		}

		before := s.requests(b).writes()
		began = time.Now()
		s.changePolicy(b)
		s.until(b, func() bool { return s.count(b, ours+",hello=earth") >= s.copies()/2 })
		all[n-1].kill()
		s.another(b, n)
		s.until(b, func() bool { return s.count(b, ours+",hello=earth") == s.copies() })
		took = time.Since(began)
		s.settle(b)
		b.ReportMetric(took.Seconds(), "killed-s")
		b.ReportMetric(float64(s.requests(b).writes()-before)/copies, "killed-writes/copy")
		if got := s.count(b, ours); got != s.copies()+1 {
			b.Errorf("%d copies are there, want %d", got, s.copies()+1)
		}
		b.Logf("%d replicas: %d copies, %.1f s for a change in the middle of which one was killed", n, s.copies(), took.Seconds())
	}
}

// another starts one more replica, which is ended with the benchmark.
func (s *simulated) another(b *testing.B, i int) *controllers {
	b.Helper()
	c, _ := startControllers(b, s.program, s.hub, fmt.Sprintf("--identity=other-%d", i), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	b.Cleanup(c.kill)
	return c
}

// loads are what has been asked of machines so far.
type loads struct {
	controllers, hub float64 // Seconds of processor of all replicas, and of the hub's API server.
	events           float64 // That the hub has sent to those who watch.
	writes           float64 // To members.
}

func (l loads) minus(o loads) loads {
	return loads{l.controllers - o.controllers, l.hub - o.hub, l.events - o.events, l.writes - o.writes}
}

func (s *simulated) loads(b *testing.B, all []*controllers) loads {
	b.Helper()
	l := loads{hub: s.meter.sum(b, "process_cpu_seconds_total"), events: s.meter.sum(b, "apiserver_watch_events_total"), writes: float64(s.requests(b).writes())}
	for _, c := range all {
		l.controllers += c.cpu()
	}
	return l
}

// sum returns the sum of all series of a metric.
func (m meter) sum(b *testing.B, name string) (sum float64) {
	b.Helper()
	text, err := m.client.Get().AbsPath("/metrics").Do(b.Context()).Raw()
	if err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		n, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		sum += n
	}
	return sum
}
