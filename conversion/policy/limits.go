package policy

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Limits of a policy. The validation of the API has the same limits, except for the size of expressions. They are
// checked here, too, because a policy may come from a file or be older than the validation. A policy that exceeds a
// limit does not compile.
const (
	mostSpokes     = 32
	mostFields     = 256 // Per spoke.
	mostPairs      = 256 // Per field.
	mostPlaceBytes = 1024
	// mostExpressions limits the number of expressions in all spokes of a policy, and mostExpressionBytes their total
	// size. A compiled expression takes some 100 KB while the policy serves, and a long one takes more.
	mostExpressions     = 2000
	mostExpressionBytes = 256 << 10
)

// excessive reports the limits that a policy exceeds.
func (r *report) excessive(spec *refractv1alpha1.ConversionPolicySpec) {
	if n := len(spec.Spokes); n > mostSpokes {
		r.errorf("spec.spokes", ruleExcess, "has %d versions, want at most %d: remove the versions that are neither served nor stored", n, mostSpokes)
	}
	count, size := 0, 0
	for i := range spec.Spokes {
		path := fmt.Sprintf("spec.spokes[%d].fields", i)
		fields := spec.Spokes[i].Fields
		if n := len(fields); n > mostFields {
			r.errorf(path, ruleExcess, "has %d entries, want at most %d: convert parents of several of the fields in one entry", n, mostFields)
		}
		for j := range fields {
			if n := len(fields[j].Map); n > mostPairs {
				r.errorf(fmt.Sprintf("%s[%d].map", path, j), ruleExcess, "has %d pairs, want at most %d: use a pair toHub and toSpoke", n, mostPairs)
			}
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
