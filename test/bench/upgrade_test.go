package bench

import (
	"os"
	"testing"
)

// beforeVariable is the path of the refract program with which BenchmarkUpgrade begins.
const beforeVariable = "REFRACT_BENCH_BEFORE"

// BenchmarkUpgrade starts an older refract program, whose path is in $REFRACT_BENCH_BEFORE. The program writes 3,600
// copies to three members without controllers. The benchmark kills it and starts the current program, and reports the
// duration of the start and the writes to members. There must be no writes.
func BenchmarkUpgrade(b *testing.B) {
	before := os.Getenv(beforeVariable)
	if before == "" {
		b.Skipf("%s is empty", beforeVariable)
	}
	e := up(b, members)
	var kubeconfigs []string
	for _, m := range e.Members {
		kubeconfigs = append(kubeconfigs, e.Kubeconfig(m))
	}
	s := newSystem(b, e.Kubeconfig("hub"), kubeconfigs...)
	s.run, _ = startControllers(b, before, e.Kubeconfig("hub"))
	b.Cleanup(func() { s.run.kill() })
	s.policies(b, e, "testdata/policies.yaml")
	for b.Loop() {
		b.ReportMetric(0, "ns/op") // The metric ns/op would cover the whole benchmark.
		s.carry(b, "kept", kept, map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "hello": "world"})
		s.propagate(b, "overridden", 200)
		s.idle(b)
		s.restart(b, e, kubeconfigs)
		if s.rewrote > 0 {
			b.Errorf("an upgrade wrote %.0f copies, want 0", s.rewrote)
		}
	}
}
