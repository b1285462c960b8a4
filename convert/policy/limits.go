package policy

import (
	"fmt"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// What a policy may have. API servers say the same (see the API's validation), but for the
// bytes of expressions; a policy may be in a file, or have been stored before they did. One
// with more is not compiled.
const (
	mostSpokes     = 32
	mostFields     = 256 // Of a spoke.
	mostPairs      = 256 // Of a field.
	mostPlaceBytes = 1024
	// mostExpressions is how many expressions a policy may have in all of its spokes, and
	// mostExpressionBytes how many bytes they may have together: compiled, each takes some
	// 100 KB for as long as the policy serves, and a long one more.
	mostExpressions     = 2000
	mostExpressionBytes = 256 << 10
)

// excessive finds what a policy has more of than it may.
func (r *report) excessive(spec *refractv1alpha1.ConversionPolicySpec) {
	if n := len(spec.Spokes); n > mostSpokes {
		r.errorf("spec.spokes", ruleExcess, "has %d versions, want at most %d: take those out that are neither served nor stored", n, mostSpokes)
	}
	count, size := 0, 0
	for i := range spec.Spokes {
		path := fmt.Sprintf("spec.spokes[%d].fields", i)
		fields := spec.Spokes[i].Fields
		if n := len(fields); n > mostFields {
			r.errorf(path, ruleExcess, "has %d entries, want at most %d: convert what contains several of the fields in one", n, mostFields)
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

// expressionsOf returns all that a field may have; those that it does not have are empty.
func expressionsOf(f *refractv1alpha1.FieldConversion) [4]string {
	out := [4]string{f.ToHub, f.ToSpoke}
	if q := f.Equivalence; q != nil {
		out[2], out[3] = q.Hub, q.Spoke
	}
	return out
}
