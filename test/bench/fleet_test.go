package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// sizesVariable lists the fleets of BenchmarkFleet: MEMBERSxOBJECTS, separated by commas.
	sizesVariable = "REFRACT_BENCH_FLEETS"
	defaultSizes  = "100x100"
	// simulateVariable makes this program simulate this number of members.
	simulateVariable = "REFRACT_BENCH_SIMULATE"
	// steadyVariable is the duration of the measurement without changes.
	steadyVariable = "REFRACT_BENCH_STEADY"
	defaultSteady  = time.Minute
	// recordVariable makes BenchmarkFleet store the figures, if it is not empty.
	recordVariable = "REFRACT_BENCH_RECORD"
)

// Goals for the memory of the controllers, in bytes.
const (
	goalByObject = 20_000
	goalByCopy   = 500
)

// fleetLimit is the maximum duration of one phase of BenchmarkFleet.
const fleetLimit = 30 * time.Minute

// BenchmarkFleet reports the costs of simulated fleets. It measures the time until every copy is correct after each of
// these changes: the creation of all objects, a change of an OverridePolicy of all objects, a change of one cluster's
// labels, and the join of a cluster. It restarts the controllers after a crash and counts their writes. It reports
// memory, processor time and requests: per object, per copy, and while nothing changes. The floor is the processor time
// of a client that only applies objects to the same members.
//
// Run it with -benchtime 1x. $REFRACT_BENCH_FLEETS lists the fleets (members x objects), for example 100x100,1000x1000.
// $REFRACT_BENCH_STEADY is the duration of the measurement without changes. With $REFRACT_BENCH_RECORD, the benchmark
// writes the figures to testdata/fleets.json, and the table and plots of all recorded fleets to docs.
func BenchmarkFleet(b *testing.B) {
	sizes := os.Getenv(sizesVariable)
	if sizes == "" {
		sizes = defaultSizes
	}
	for size := range strings.SplitSeq(sizes, ",") {
		b.Run(size, func(b *testing.B) {
			s := &simulated{}
			if _, err := fmt.Sscanf(size, "%dx%d", &s.members, &s.objects); err != nil {
				b.Fatalf("%s: want MEMBERSxOBJECTS, got %q", sizesVariable, size)
			}
			s.run(b)
			if os.Getenv(recordVariable) != "" {
				s.record(b, size)
			}
		})
	}
}

func (s *simulated) run(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover all phases.
	s.start(b)
	for b.Loop() {
		s.floor(b)
		s.join(b, []string{samePod, patientLease})
		base := s.memory(b, "joined")
		s.phase(b, "first", func() { s.create(b) }, fmt.Sprintf("%s,hello=world", ours), s.copies())
		most := s.memory(b, "settled")
		copies, objects := float64(s.copies()), float64(s.objects)
		s.report(b, (most-base)*1e6/copies, "B/copy")
		s.report(b, (most-base)*1e6/(goalByObject*objects+goalByCopy*copies), "of-goal")
		s.phase(b, "policy", func() { s.changePolicy(b) }, fmt.Sprintf("%s,hello=earth", ours), s.copies())
		s.phase(b, "label", func() { s.changeLabel(b) }, fmt.Sprintf("%s,tier=gold", ours), s.objects+1)
		s.phase(b, "newcomer", func() { s.admit(b) }, ours, s.copies()+1+s.objects)
		s.steady(b)
		s.restart(b)
	}
}

// phase calls the function do. It reports the time until the wanted number of copies match the selector, and the costs
// until the controllers are idle.
func (s *simulated) phase(b *testing.B, name string, do func(), selector string, want int) {
	b.Helper()
	cpu, before, reports := s.cpu(), s.requests(b), s.reports(b)
	began := time.Now()
	do()
	s.until(b, func() bool {
		return s.count(b, selector) == want
	})
	took := time.Since(began)
	settled := s.settle(b) // settle ignores reads: the controllers still search the members for copies without an object.
	s.report(b, took.Seconds(), name+"-s")
	s.report(b, settled.Sub(began).Seconds(), name+"-settled-s")
	s.report(b, s.cpu()-cpu, name+"-cpu-s")
	after := s.requests(b)
	wrote := after.writes() - before.writes()
	s.report(b, float64(wrote)/float64(want), name+"-writes/copy")
	s.report(b, (s.reports(b)-reports)/float64(s.objects), name+"-hub-writes/object")
	b.Logf("%s: %.1f s until the last copy, %.1f s until at rest, %d writes to members", name, took.Seconds(), settled.Sub(began).Seconds(), wrote)
}

// create creates the objects, and one more object for clusters with the label tier=gold.
func (s *simulated) create(b *testing.B) {
	b.Helper()
	if err := s.system.each(s.objects+1, func(i int) error {
		labels := map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "kubeadmiral.io/override-policy-name": "op"}
		if i == s.objects {
			labels["kubeadmiral.io/propagation-policy-name"] = "gold"
		}
		_, err := s.system.hub.Resource(deployments).Namespace("default").
			Create(b.Context(), s.system.object("fleet", i, labels), metav1.CreateOptions{})
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// changePolicy changes a value in all copies.
func (s *simulated) changePolicy(b *testing.B) {
	b.Helper()
	apply(b, s.client, "testdata/policies-changed.yaml")
}

// changeLabel gives a cluster the label tier=gold. The cluster gets one more object, and other variants of the existing
// copies.
func (s *simulated) changeLabel(b *testing.B) {
	b.Helper()
	fc := &corev1alpha1.FederatedCluster{}
	if err := s.client.Get(b.Context(), types.NamespacedName{Name: "m-0001"}, fc); err != nil {
		b.Fatal(err)
	}
	before := fc.DeepCopy()
	fc.Labels["tier"] = "gold"
	if err := s.client.Patch(b.Context(), fc, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}

// restart kills the controllers and starts them again.
func (s *simulated) restart(b *testing.B) {
	b.Helper()
	s.killAll()
	before, cpu, had := s.requests(b), s.cpu(), s.count(b, ours)
	began := time.Now()
	ready := s.replica(b, samePod, patientLease)
	s.until(b, func() bool { return s.requests(b)["watch"]-before["watch"] > int64(s.members) }) // More than members: one more has joined.
	watched := time.Since(began)
	settled := s.rest(b)
	s.report(b, ready.Seconds(), "restart-s")
	s.report(b, watched.Seconds(), "restart-watched-s")
	s.report(b, settled.Sub(began).Seconds(), "restart-settled-s")
	s.report(b, s.cpu()-cpu, "restart-cpu-s")
	after := s.requests(b)
	s.report(b, float64(after.writes()-before.writes()), "restart-writes")
	if n := s.count(b, ours); n != had {
		b.Errorf("%d copies exist after the restart, want %d", n, had)
	}
	b.Logf("restart: ready after %.1f s, copies watched after %.1f s, at rest after %.1f s, requests %v → %v", ready.Seconds(), watched.Seconds(), settled.Sub(began).Seconds(), before, after)
	s.memory(b, "restarted")
}

// memory reports the memory of the controllers, in MB.
func (s *simulated) memory(b *testing.B, when string) float64 {
	b.Helper()
	now, most := s.replicas[0].resident()
	s.report(b, now, when+"-MB")
	s.report(b, most, when+"-peak-MB")
	b.Logf("%s: %.0f MB, most %.0f MB, cpu %.1f s", when, now, most, s.cpu())
	return now
}

// admit joins one more cluster.
func (s *simulated) admit(b *testing.B) {
	b.Helper()
	if err := s.register(b, s.access[s.members]); err != nil {
		b.Fatal(err)
	}
}

// steady reports the work of the controllers while nothing changes.
func (s *simulated) steady(b *testing.B) {
	b.Helper()
	during := defaultSteady
	if text := os.Getenv(steadyVariable); text != "" {
		var err error
		if during, err = time.ParseDuration(text); err != nil {
			b.Fatalf("%s: %v", steadyVariable, err)
		}
	}
	before, cpu, reports, began := s.requests(b), s.cpu(), s.reports(b), time.Now()
	s.until(b, func() bool { return time.Since(began) >= during })
	after, took := s.requests(b), time.Since(began).Seconds()
	s.report(b, 100*(s.cpu()-cpu)/took, "steady-%cpu")
	s.report(b, float64(after.all()-before.all())/took, "steady-requests/s")
	s.report(b, float64(after.writes()-before.writes()), "steady-writes")
	s.report(b, s.reports(b)-reports, "steady-hub-writes")
	s.memory(b, "steady")
	b.Logf("steady: %.0f s, requests to members %v → %v", took, before, after)
}
