package policy

import (
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/convert"
)

// parents returns the objects around the values of a scope that come and go with what is in
// them: those that the other side has no place for, and those that values move into or out
// of, which nobody can tell otherwise from ones that were there before.
func (s *spoke) parents(c *scope) []convert.Conversion {
	p := parenting{claims: c.claims, filled: [2]map[string]bool{{}, {}}, required: [2]map[string]bool{{}, {}}}
	p.requires = func(sd side, at place) bool {
		if c.at[sd].steps != nil {
			at = c.at[sd].elements().join(at)
		}
		return s.requiredAt(sd, at)
	}
	for sd := range p.schemas {
		p.schemas[sd] = s.within(c, side(sd))
	}
	for _, e := range c.entries {
		for sd := range e.in {
			p.add(side(sd), e.in)
		}
	}
	for _, inner := range c.inner {
		for sd := range inner.in {
			p.add(side(sd), inner.in)
		}
	}
	for sd, filled := range p.filled {
		for _, text := range slices.Sorted(maps.Keys(filled)) {
			if !filled[text] {
				s.unfilled(c, side(sd), text)
			}
		}
	}
	return p.all
}

// unfilled judges a parent into which nothing comes from the other side.
func (s *spoke) unfilled(c *scope, sd side, text string) {
	at, err := parsePlace(text)
	if err == nil && c.at[sd].steps != nil {
		at = c.at[sd].elements().join(at)
	}
	if err == nil && s.requiredAt(sd, at) {
		s.errorf(s.path, ruleRequired,
			"%s requires %s, and %s has nothing for what is in it: name the whole, {%s: %s, %s: {default: ...}}",
			s.versions[sd], at, s.versions[sd.other()], sd.name(), quotedPlace(at), sideWord(sd))
	}
}

// parenting collects the parents of a scope.
type parenting struct {
	schemas [2]*schema.Structural
	claims  [2]*claim
	// filled are the parents, and whether something comes into them from the other side.
	filled [2]map[string]bool
	// requires reports whether a side requires what is at a place of the scope, and required
	// has the objects that both have of which that is known.
	requires func(sd side, at place) bool
	required [2]map[string]bool
	all      []convert.Conversion
}

// add adds the parents of a value on one side. In the other it has another place, or none.
func (p *parenting) add(sd side, in [2]place) {
	own := in[sd]
	at, named := p.schemas[sd.other()], p.claims[sd.other()]
	depth := len(own.steps)
	if own.group == nil {
		depth--
	}
	for i := range depth {
		if at != nil {
			at, named = fieldOf(at, own.steps[i].key), named.key(own.steps[i].key)
		}
		if named.exact() {
			at = nil // The other side has something else there.
		}
		parent := place{steps: own.steps[:i+1]}
		if at == nil {
			p.put(sd, parent, in[sd.other()].steps != nil || in[sd.other()].group != nil)
		} else {
			p.remains(sd.other(), parent)
		}
	}
}

// remains is about an object that both sides have: one of them may require it, whatever
// moves out of it.
func (p *parenting) remains(sd side, at place) {
	text := at.String()
	if p.required[sd][text] || !p.requires(sd, at) {
		return
	}
	p.required[sd][text] = true
	if sd == onHub {
		p.all = append(p.all, convert.HubRequires(text))
	} else {
		p.all = append(p.all, convert.SpokeRequires(text))
	}
}

// put adds a parent that one side has alone. Filled says that a value comes into it from the
// other side: one that nothing comes into cannot be made there.
func (p *parenting) put(sd side, at place, filled bool) {
	text := at.String()
	before, there := p.filled[sd][text]
	p.filled[sd][text] = before || filled
	switch {
	case there:
	case sd == onHub:
		p.all = append(p.all, convert.HubParent(text))
	default:
		p.all = append(p.all, convert.SpokeParent(text))
	}
}
