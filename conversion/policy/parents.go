package policy

import (
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/conversion/convert"
)

// parents declares the objects around the values of a scope that are created and removed together with their values.
// These are objects that only one side has, and objects that both sides have and one side requires, if values move into
// or out of them. Without these declarations, the engine cannot distinguish a parent that it has created from one that
// existed before.
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

// unfilled checks a parent that gets no value from the other side.
func (s *spoke) unfilled(c *scope, sd side, text string) {
	at, err := parsePlace(text)
	if err == nil && c.at[sd].steps != nil {
		at = c.at[sd].elements().join(at)
	}
	if err == nil && s.requiredAt(sd, at) {
		s.errorf(s.path, ruleRequired,
			"%s requires %s, and %s has no values for its content: name the whole, {%s: %s, %s: {default: ...}}",
			s.versions[sd], at, s.versions[sd.other()], sd.name(), quotedPlace(at), sideWord(sd))
	}
}

// parenting collects the parents of a scope.
type parenting struct {
	schemas [2]*schema.Structural
	claims  [2]*claim
	// filled has each parent, and whether a value of the other side moves into it.
	filled [2]map[string]bool
	// requires reports whether a side requires the value at a place of the scope. required are the places of required
	// objects of both sides that were already added.
	requires func(sd side, at place) bool
	required [2]map[string]bool
	all      []convert.Conversion
}

// add adds the parents of a value of one side. The other side does not have the value, or has it at another place.
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
			at = nil // The other side has another value there.
		}
		parent := place{steps: own.steps[:i+1]}
		if at == nil {
			p.put(sd, parent, in[sd.other()].steps != nil || in[sd.other()].group != nil)
		} else {
			p.remains(sd.other(), parent)
		}
	}
}

// remains adds an object that both sides have, if this side requires it. The object must remain after values have moved
// out of it.
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

// put adds a parent that only one side has. filled is true if a value of the other side moves into it. A parent that no
// value moves into cannot be created.
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
