package policy

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Limits of a policy. A policy that exceeds a limit does not compile. The schema of ConversionPolicies has these
// limits, except the one for the size of expressions, and further ones. The further ones are not necessary for a policy
// in a file: the versions of the definition limit its spokes, and the time for pairs grows only linearly.
const (
	mostFields     = 256 // In each spoke. The time to compile grows with the square of this number.
	mostPlaceBytes = 1024
	// mostExpressions is the maximum number of expressions in all spokes of a policy, and mostExpressionBytes the
	// maximum total size. A compiled expression takes some 100 KB of memory while the policy is in use, and a long
	// expression takes more.
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

// expressionsOf returns the expressions of a field. Missing ones are empty.
func expressionsOf(f *refractv1alpha1.FieldConversion) [4]string {
	out := [4]string{f.ToHub, f.ToSpoke}
	if q := f.Equivalence; q != nil {
		out[2], out[3] = q.Hub, q.Spoke
	}
	return out
}
