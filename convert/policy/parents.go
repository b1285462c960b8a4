package policy

import (
	"refract.dev/convert"
)

// parents returns what a scope has, on one side alone, around the values that entries name:
// objects that the other side has no place for, so that they come and go with what is in
// them.
func (s *spoke) parents(c *scope) []convert.Conversion {
	var all []convert.Conversion
	seen := [2]map[string]bool{{}, {}}
	add := func(sd side, p place) {
		other := sd.other()
		at, named := s.within(c, other), c.claims[other]
		for i := range len(p.steps) - 1 {
			if at != nil {
				at, named = fieldOf(at, p.steps[i].key), named.key(p.steps[i].key)
			}
			if named.exact() {
				at = nil // The other side has something else there.
			}
			parent := place{steps: p.steps[:i+1]}.String()
			if at != nil || seen[sd][parent] {
				continue
			}
			seen[sd][parent] = true
			if sd == onHub {
				all = append(all, convert.HubParent(parent))
				continue
			}
			all = append(all, convert.SpokeParent(parent))
		}
	}
	for _, e := range c.entries {
		for sd := range e.in {
			if !e.has(side(sd)) {
				continue
			}
			for _, p := range e.in[sd].members() {
				add(side(sd), p)
			}
		}
	}
	for _, inner := range c.inner {
		for sd := range inner.in {
			add(side(sd), inner.in[sd])
		}
	}
	return all
}
