package policy

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Limits of a policy. A policy that exceeds a limit does not compile. The schema has these limits and more, except for
// the size of expressions. A policy in a file has only the limits below: its spokes are limited by the versions of the
// definition, and the time for pairs grows only with their number.
const (
	mostFields     = 256 // Per spoke. The time to compile grows with the square of this number.
	mostPlaceBytes = 1024
	// mostExpressions limits the number of expressions in all spokes of a policy, and mostExpressionBytes their total
	// size. A compiled expression takes some 100 KB while the policy serves, and a long one takes more.
	mostExpressions     = 2000
	mostExpressionBytes = 256 << 10
)

// excessive reports the limits that a policy exceeds.
func (r *report) excessive(spec *refractv1alpha1.ConversionPolicySpec) {
	count, size := 0, 0
	for i := range spec.Spokes {
		path := fmt.Sprintf("spec.spokes[%d].fields", i)
		fields := spec.Spokes[i].Fields
		if n := len(fields); n > mostFields {
			r.errorf(path, ruleExcess, "has %d entries, want at most %d: convert parents of several of the fields in one entry", n, mostFields)
		}
		for j := range fields {
			for _, text := range expressionsOf(&fields[j]) {
				if text != "" {
					count++
					size += len(text)
				}
			}
		}
	}
	const less = "convert what contains several of the fields in one, or use the other ways, such as map and scale, which take no expression"
	if count > mostExpressions {
		r.errorf("spec.spokes", ruleExcess, "have %d expressions together, want at most %d: %s", count, mostExpressions, less)
	}
	if size > mostExpressionBytes {
		r.errorf("spec.spokes", ruleExcess, "have expressions of %d bytes together, want at most %d: %s", size, mostExpressionBytes, less)
	}
}

// expressionsOf returns the expressions that a field may have. Missing ones are empty.
func expressionsOf(f *refractv1alpha1.FieldConversion) [4]string {
	out := [4]string{f.ToHub, f.ToSpoke}
	if q := f.Equivalence; q != nil {
		out[2], out[3] = q.Hub, q.Spoke
	}
	return out
}
