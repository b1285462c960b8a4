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

const (
	// replicasVariable lists the numbers of replicas that BenchmarkReplicas compares, separated by commas.
	replicasVariable = "REFRACT_BENCH_REPLICAS"
	defaultReplicas  = "1,2"
	// replicasLease is the failover delay after a replica is killed. It is long enough for replicas that share two
	// processors with hub and members.
	replicasLease = 30 * time.Second
)

// BenchmarkReplicas reports the effect of several replicas on a simulated fleet: the durations of the creation and the
// change of all objects, and the costs for the replicas and the hub. Then it kills the leading replica in the middle of
// a change, and starts another one. No copy may be written twice or lost. The crash may delay the change by at most the
// lease duration.
//
// Run it with -benchtime 1x. $REFRACT_BENCH_FLEETS is the fleet, and $REFRACT_BENCH_REPLICAS lists the numbers of
// replicas.
func BenchmarkReplicas(b *testing.B) {
	size, _, _ := strings.Cut(os.Getenv(sizesVariable), ",")
	if size == "" {
		size = defaultSizes
	}
	numbers := os.Getenv(replicasVariable)
	if numbers == "" {
		numbers = defaultReplicas
	}
	for number := range strings.SplitSeq(numbers, ",") {
		n, err := strconv.Atoi(number)
		if err != nil {
			b.Fatalf("%s: %v", replicasVariable, err)
		}
		b.Run(number, func(b *testing.B) {
			s := &simulated{}
			if _, err := fmt.Sscanf(size, "%dx%d", &s.members, &s.objects); err != nil {
				b.Fatalf("%s: want MEMBERSxOBJECTS, got %q", sizesVariable, size)
			}
			s.scaleOut(b, n)
		})
	}
}

func (s *simulated) scaleOut(b *testing.B, n int) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover all phases.
	s.start(b)
	for b.Loop() {
		var replicas [][]string
		for i := range n {
			replicas = append(replicas, replicaArguments(i))
		}
		s.join(b, replicas...)
		for _, r := range s.replicas {
			r.yield(b)
		}
		hub := s.hubLoad(b)
		s.report(b, hub.watches, "hub-watches")
		s.phase(b, "first", func() { s.create(b) }, ours+",hello=world", s.copies())
		hub = s.loadSince(b, "first", hub)
		s.phase(b, "policy", func() { s.changePolicy(b) }, ours+",hello=earth", s.copies())
		s.loadSince(b, "policy", hub)
		for i, r := range s.replicas {
			now, most := r.resident()
			b.Logf("replica %d: %.1f s of processor time, %.0f MB, most %.0f MB", i, r.cpu(), now, most)
		}
		if n > 1 {
			s.interrupted(b, n)
		}
	}
}

// replicaArguments returns the arguments of the i-th replica, which opens no ports.
func replicaArguments(i int) []string {
	return []string{
		fmt.Sprintf("--identity=replica-%d", i), "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--lease-duration=" + replicasLease.String(),
	}
}

// interrupted reverts the change of the policy. When a third of the copies are written, it kills the leading replica,
// and starts another one.
func (s *simulated) interrupted(b *testing.B, n int) {
	b.Helper()
	before, began := s.requests(b), time.Now()
	apply(b, s.client, "testdata/policies.yaml")
	changed := func() int { return s.count(b, ours+",hello=world") }
	s.until(b, func() bool { return changed() >= s.copies()/3 })
	s.kill(0) // The first replica leads.
	at, killed := changed(), time.Since(began)
	s.replica(b, replicaArguments(n)...)
	s.replicas[len(s.replicas)-1].yield(b)
	s.until(b, func() bool { return changed() == s.copies() })
	took := time.Since(began)
	settled := s.settle(b).Sub(began)
	after := s.requests(b)
	wrote := after.writes() - before.writes()
	s.report(b, took.Seconds(), "killed-s")
	s.report(b, took.Seconds()-s.figures["policy-s"], "killed-later-s")
	s.report(b, float64(wrote-int64(s.copies())), "killed-doubled")
	have := s.count(b, ours)
	s.report(b, float64(s.copies()-have), "killed-lost")
	b.Logf("killed with %d of %d copies changed, after %.1f s; all after %.1f s, at rest after %.1f s; %d writes", at, s.copies(), killed.Seconds(), took.Seconds(),
		settled.Seconds(), wrote)
	if have != s.copies() || wrote != int64(s.copies()) {
		b.Errorf("%d of %d copies exist, and they were written %d times", have, s.copies(), wrote)
	}
}

// load are metrics of the hub's API server.
type load struct{ cpu, megabytes, watches, eventBytes, requests float64 }

func (s *simulated) hubLoad(b *testing.B) load {
	b.Helper()
	text, err := s.meter.client.Get().AbsPath("/metrics").Do(b.Context()).Raw()
	if err != nil {
		b.Fatal(err)
	}
	sums := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		metric, labels, _ := strings.Cut(name, "{")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || metric == "apiserver_longrunning_requests" && !strings.Contains(labels, `verb="WATCH"`) {
			continue
		}
		sums[metric] += n
	}
	if err := lines.Err(); err != nil {
		b.Fatal(err)
	}
	return load{
		cpu: sums["process_cpu_seconds_total"], megabytes: sums["process_resident_memory_bytes"] / 1e6, watches: sums["apiserver_longrunning_requests"],
		eventBytes: sums["apiserver_watch_events_sizes_sum"], requests: sums["apiserver_request_total"],
	}
}

// loadSince reports the load of the hub's API server since the metrics in before.
func (s *simulated) loadSince(b *testing.B, phase string, before load) load {
	b.Helper()
	now := s.hubLoad(b)
	s.report(b, now.cpu-before.cpu, phase+"-hub-cpu-s")
	s.report(b, (now.eventBytes-before.eventBytes)/1e6, phase+"-hub-events-MB")
	s.report(b, now.requests-before.requests, phase+"-hub-requests")
	s.report(b, now.megabytes, phase+"-hub-MB")
	return now
}
