package policy

import (
	"fmt"
	"strings"
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// BenchmarkCompileLists compiles policies for schemas with up to 2,000 fields in up to 250 lists. In each list, one
// field has different names in the two versions. The time is some milliseconds and grows linearly.
func BenchmarkCompileLists(b *testing.B) {
	for _, lists := range []int{25, 250} {
		b.Run(fmt.Sprint(lists), func(b *testing.B) {
			var schemas [2]strings.Builder
			var fields []refractv1alpha1.FieldConversion
			for i := range lists {
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
				b.Fatal(err)
			}
			spec := &refractv1alpha1.ConversionPolicySpec{CRD: "things.example.com", Hub: "v2", Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1", Fields: fields}}}
			b.ReportAllocs()
			for b.Loop() {
				if p, findings := Compile(spec, def); p == nil {
					b.Fatal(findings)
				}
			}
		})
	}
}
