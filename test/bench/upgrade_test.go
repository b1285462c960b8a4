package bench

import (
	"os"
	"testing"
)

// beforeVariable has the path of the refract that BenchmarkUpgrade begins with.
const beforeVariable = "REFRACT_BENCH_BEFORE"

// BenchmarkUpgrade has another version of refract, which $REFRACT_BENCH_BEFORE names, put 3,600 copies on three bare members,
// kills it, and starts this one: it reports what that writes to members, which is to be nothing, and how long it takes.
func BenchmarkUpgrade(b *testing.B) {
	before := os.Getenv(beforeVariable)
	if before == "" {
		b.Skipf("%s names no other refract", beforeVariable)
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
		b.ReportMetric(0, "ns/op") // It would hold all of it.
		s.carry(b, "kept", kept, map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "hello": "world"})
		s.propagate(b, "overridden", 200)
		s.idle(b)
		s.restart(b, e, kubeconfigs)
		if s.rewrote > 0 {
			b.Errorf("an upgrade wrote %.0f copies, want 0", s.rewrote)
		}
	}
}
