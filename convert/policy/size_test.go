package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestCompileLarge compiles a policy with as many fields as one may have, for a schema of
// 2,000: that takes some milliseconds, and no power of their number.
func TestCompileLarge(t *testing.T) {
	t.Parallel()
	var schemas [2]strings.Builder
	var fields []refractv1alpha1.FieldConversion
	for i := range 250 {
		for sd, name := range []string{onSpoke: "old", onHub: "new"} {
			fmt.Fprintf(&schemas[sd], "  l%d: {type: array, items: {type: object, properties: {%s: {type: string}", i, name)
			for j := range 7 {
				fmt.Fprintf(&schemas[sd], ", f%d: {type: string}", j)
			}
			schemas[sd].WriteString("}}}\n")
		}
		fields = append(fields, refractv1alpha1.FieldConversion{Hub: fmt.Sprintf("spec.l%d[*].new", i), Spoke: fmt.Sprintf("spec.l%d[*].old", i)})
	}
	def, err := define("v1:\n" + schemas[onSpoke].String() + "v2:\n" + schemas[onHub].String())
	if err != nil {
		t.Fatal(err)
	}
	spec := &refractv1alpha1.ConversionPolicySpec{CRD: "things.example.com", Hub: "v2", Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1", Fields: fields}}}
	best := time.Hour
	for range 5 {
		start := time.Now()
		if p, findings := Compile(spec, def); p == nil {
			t.Fatal(findings)
		}
		best = min(best, time.Since(start))
	}
	if most := 250 * time.Millisecond; best > most { // With room for the race detector, and for others.
		t.Errorf("Compile() took %s, want less than %s", best, most)
	}
	t.Logf("Compile() took %s", best)
}
