package simulate

import "slices"

// Shrink returns a plan with fewer steps that still breaks the same promise. fails runs a plan and returns the
// violation. It is called at most a few hundred times, and may return nil to end the search early. The given plan must
// fail.
func Shrink(p Plan, fails func(Plan) *Broken) Plan {
	s := shrinking{fails: fails, left: mostShrinks}
	found := s.run(p)
	if found == nil {
		return p
	}
	s.invariant = found.Invariant
	if found.Step < len(p.Steps) { // Later steps do not affect the violation.
		if shorter := p.with(p.Steps[:found.Step]); s.still(shorter) {
			p = shorter
		}
	}
	for parts := 2; len(p.Steps) > 0 && s.left > 0; {
		smaller, found := s.without(p, parts)
		switch {
		case found:
			p, parts = smaller, max(2, parts-1)
		case parts >= len(p.Steps):
			return p
		default:
			parts = min(2*parts, len(p.Steps))
		}
	}
	return p
}

// mostShrinks is the maximum number of runs of a search.
const mostShrinks = 300

type shrinking struct {
	fails     func(Plan) *Broken
	invariant string
	left      int
}

func (s *shrinking) run(p Plan) *Broken {
	if s.left <= 0 {
		return nil
	}
	s.left--
	return s.fails(p)
}

// still reports whether a plan breaks the promise.
func (s *shrinking) still(p Plan) bool {
	found := s.run(p)
	return found != nil && found.Invariant == s.invariant
}

// without divides the steps into parts, and returns the plan without a part that is not needed.
func (s *shrinking) without(p Plan, parts int) (smaller Plan, found bool) {
	parts = min(parts, len(p.Steps))
	for i := parts - 1; i >= 0 && s.left > 0; i-- { // Late steps are needed less often.
		from, to := i*len(p.Steps)/parts, (i+1)*len(p.Steps)/parts
		if smaller := p.with(slices.Concat(p.Steps[:from], p.Steps[to:])); s.still(smaller) {
			return smaller, true
		}
	}
	return p, false
}
