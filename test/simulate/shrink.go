package simulate

import "slices"

// mostShrinks is the maximum number of runs of a search.
const mostShrinks = 300

// Shrink returns a plan with fewer steps that still breaks the same promise. fails runs a plan and returns the
// violation. It is called at most a few hundred times, and may return nil to end the search early. The given plan must
// fail.
func Shrink(p Plan, fails func(Plan) *Broken) Plan {
	found, left := fails(p), mostShrinks-1
	if found == nil {
		return p
	}
	still := func(steps []uint64) bool {
		if left <= 0 {
			return false
		}
		left--
		again := fails(p.with(steps))
		return again != nil && again.Invariant == found.Invariant
	}
	steps := p.Steps
	if found.Step < len(steps) && still(steps[:found.Step]) { // Later steps do not affect the violation.
		steps = steps[:found.Step]
	}
	for size := (len(steps) + 1) / 2; size > 0 && left > 0; {
		before := len(steps)
		for to := len(steps); to > 0; to -= size { // Late steps are needed less often.
			from := max(0, to-size)
			if fewer := slices.Concat(steps[:from], steps[to:]); still(fewer) {
				steps = fewer
			}
		}
		if size > 1 || len(steps) == before { // Single steps are removed until all are needed.
			size = min(size, len(steps)) / 2
		}
	}
	return p.with(steps)
}
