package simulate

import "slices"

// mostShrinks is the maximum number of runs of a search.
const mostShrinks = 300

// Shrink returns a plan with fewer steps that still breaks the same promise. The function fails runs a plan and returns
// the violation; it must return one for p. Shrink calls it a few hundred times at most. The function may return nil to
// end the search early.
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
		for to := len(steps); to > 0; to -= size { // The violation rarely needs late steps, so the search begins with these.
			from := max(0, to-size)
			if fewer := slices.Concat(steps[:from], steps[to:]); still(fewer) {
				steps = fewer
			}
		}
		if size > 1 || len(steps) == before { // The search removes single steps until all are needed.
			size = min(size, len(steps)) / 2
		}
	}
	return p.with(steps)
}
