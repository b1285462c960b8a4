package bench

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
)

// recordedFile has the recorded ratios, by benchmark.
const recordedFile = "testdata/recorded.json"

// tolerance is the factor by which a ratio may be worse than recorded.
const tolerance = 1.5

// BenchmarkSmoke fails if one of the ratios in docs/performance.md is more than 1.5 times the recorded ratio, or if a
// restart writes copies. It is small enough to run for every change. It repeats a measurement with a ratio that is too
// high, since other programs may have disturbed the first one.
func BenchmarkSmoke(b *testing.B) {
	text, err := os.ReadFile(recordedFile)
	if err != nil {
		b.Fatal(err)
	}
	var recorded map[string]float64
	if err := json.Unmarshal(text, &recorded); err != nil {
		b.Fatalf("%s: %v", recordedFile, err)
	}
	e := up(b, members)
	var kubeconfigs []string
	for _, m := range e.Members {
		kubeconfigs = append(kubeconfigs, e.Kubeconfig(m))
	}
	s := newSystem(b, e.Kubeconfig("hub"), kubeconfigs...)
	s.run, _ = startControllers(b, program(b, e), e.Kubeconfig("hub"), samePod)
	b.Cleanup(func() { s.run.kill() })
	s.policies(b, e, "testdata/policies.yaml")
	for b.Loop() {
		b.ReportMetric(0, "ns/op")
		s.write(b, "warm-up", 50, append([]dynamic.Interface{s.hub}, s.members...), "")
		s.within(b, "fan", recorded, func() (float64, float64) { return s.fan(b, 100, 3) })
		s.within(b, "change", recorded, func() (float64, float64) { return s.change(b, 100, rounds, false) })
		s.carry(b, "kept", 100, map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "hello": "world"})
		s.restart(b, e, kubeconfigs)
		if s.rewrote > 0 {
			b.Errorf("a restart in the middle of reports wrote %.0f copies, want 0", s.rewrote)
		}
	}
}

// within fails the benchmark if the ratio of the two measured times is too high.
func (s *system) within(b *testing.B, what string, recorded map[string]float64, measure func() (floor, system float64)) {
	b.Helper()
	began := time.Now()
	most := recorded[what] * tolerance
	if most == 0 {
		b.Fatalf("%s has no record of %s", recordedFile, what)
	}
	floor, system := measure()
	if system/floor > most {
		floor, system = measure()
	}
	b.Logf("%s: %.2f of the floor, recorded %.2f, at most %.2f (%s)", what, system/floor, recorded[what], most, time.Since(began).Round(time.Second))
	if system/floor > most {
		b.Errorf("%s takes %.2f times as long as the floor: %.2f are recorded in %s", what, system/floor, recorded[what], recordedFile)
	}
}
