package suggest

import (
	"math/rand/v2"
	"testing"

	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
)

// TestRandom suggests policies for random definitions whose versions have nothing in common. Nothing may panic, and
// nearly all policies must compile.
func TestRandom(t *testing.T) {
	tried, compiled := 0, 0
	for seed := range uint64(400) {
		crd := generate.CRD(rand.NewPCG(seed, 1), "things.example.com", generate.SchemaOptions{})
		def, err := structural.New(crd)
		if err != nil {
			t.Fatal(err)
		}
		if len(def.Versions()) < 2 {
			continue
		}
		for _, hub := range def.Versions() {
			p, _, err := Policy(def, hub.Name())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			tried++
			if got, findings := policy.Compile(&p.Spec, def); got != nil {
				compiled++
			} else {
				t.Logf("seed %d, hub %s: %s", seed, hub.Name(), findings[0])
			}
		}
	}
	if tried == 0 || compiled*100 < tried*85 {
		t.Errorf("%d of %d compile, want 85 percent: what does not is a root that takes any field in one version", compiled, tried)
	}
}
