package policy

import (
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
)

// scope has the entries for the object, or for each element of a list or table.
type scope struct {
	// at are the places of the list or table relative to the object. in are its places relative to the scope that
	// contains it.
	at, in  [2]place
	table   bool
	keys    [2][]string
	entries []*entry
	inner   []*scope
	claims  [2]*claim
}

// scopes finds out which lists and tables of the two versions correspond to each other. It assigns each entry to the
// list or table that contains its value. Elements are converted one by one, with places relative to the element.
type scopes struct {
	versionPair

	coverage *coverage
	root     *scope
}

// sort assigns the entries to scopes, and returns the scope of the object. Entries with places on both sides come
// first, because they show where each side has a list.
func (s *scopes) sort(entries []*entry, lists []refractv1alpha1.ListKeys) *scope {
	s.root = &scope{}
	for _, e := range entries {
		if e.has(onSpoke) && e.has(onHub) {
			s.put(e)
		}
	}
	for _, e := range entries { // Entries for one side. The entries above determine where the other side has the list.
		if e.has(onSpoke) != e.has(onHub) {
			s.putOneSided(e)
		}
	}
	s.settle(s.root)
	s.listKeys(lists)
	return s.root
}

// put adds an entry that has places on both sides to its scope.
func (s *scopes) put(e *entry) {
	at, e2 := s.root, e.at
	for {
		spokeHead, spokeRest, found := e2[onSpoke].cut()
		hubHead, hubRest, _ := e2[onHub].cut()
		if !found {
			break
		}
		inner := at.scopeAt([2]place{spokeHead, hubHead})
		if inner == nil {
			s.errorf(e.path, ruleOverlap,
				"%s of %s and %s of %s are not counterparts: another entry has another place for one of them",
				at.at[onSpoke].join(spokeHead), s.versions[onSpoke], at.at[onHub].join(hubHead), s.versions[onHub])
			return
		}
		at, e2 = inner, [2]place{spokeRest, hubRest}
	}
	e.in = e2
	at.entries = append(at.entries, e)
}

// scopeAt returns the scope for a list of each side. It creates a missing scope. It returns nil if one of the lists
// already corresponds to another list.
func (c *scope) scopeAt(head [2]place) *scope {
	for _, inner := range c.inner {
		spokes, hubs := inner.in[onSpoke].equal(head[onSpoke]), inner.in[onHub].equal(head[onHub])
		switch {
		case spokes && hubs:
			return inner
		case spokes || hubs:
			return nil
		}
	}
	inner := &scope{in: head}
	for sd := range head {
		inner.at[sd] = head[sd]
		if c.at[sd].steps != nil {
			inner.at[sd] = c.at[sd].elements().join(head[sd])
		}
	}
	c.inner = append(c.inner, inner)
	return inner
}

// putOneSided adds an entry that has a place on one side only to its scope. The other side must have a corresponding
// list for each list on the path; otherwise the list itself is one-sided.
func (s *scopes) putOneSided(e *entry) {
	sd := onSpoke
	if e.has(onHub) {
		sd = onHub
	}
	at, in := s.root, e.at[sd]
	for {
		head, rest, found := in.cut()
		if !found {
			break
		}
		other, err := s.counterpart(at, sd, head)
		if err != nil {
			s.errorf(e.path, rulePlace, "%v", err)
			return
		}
		var pair [2]place
		pair[sd], pair[sd.other()] = head, other
		if at = at.scopeAt(pair); at == nil {
			s.errorf(e.path, ruleOverlap, "%s of %s is the counterpart of another list", other, s.versions[sd.other()])
			return
		}
		in = rest
	}
	if len(in.steps) == 0 && in.group == nil {
		s.errorf(e.path, rulePlace, "elements of %s cannot be in only one version without the list: name the list, without [*]",
			at.at[sd])
		return
	}
	e.in[sd] = in
	at.entries = append(at.entries, e)
}

// counterpart returns the place of the corresponding list or table on the other side.
func (s *scopes) counterpart(at *scope, sd side, head place) (place, error) {
	for _, inner := range at.inner {
		if inner.in[sd].equal(head) {
			return inner.in[sd.other()], nil
		}
	}
	for _, e := range at.entries {
		if e.plain && e.in[sd].equal(head) {
			return e.in[sd.other()], nil
		}
	}
	other := s.schemas[sd.other()]
	if at.at[sd.other()].steps != nil {
		other = s.within(at, sd.other())
	}
	list, err := find(other, head)
	if err == nil && elementOf(list) == nil {
		err = fmt.Errorf("%s has no elements", head)
	}
	if err != nil {
		return place{}, fmt.Errorf("%s has no list or table at %s (%w): add an entry with its place",
			s.versions[sd.other()], head, err)
	}
	return head, nil
}

// settle records the places of the entries of a scope, and of its inner scopes. It reports entries with overlapping
// places: they would convert a value twice, or one would convert the result of the other.
func (s *scopes) settle(c *scope) {
	c.entries = slices.DeleteFunc(c.entries, func(e *entry) bool {
		// The scope of the elements also moves the list, so a separate entry for the move is not needed.
		return e.plain && slices.ContainsFunc(c.inner, func(inner *scope) bool {
			return inner.in[onSpoke].equal(e.in[onSpoke]) && inner.in[onHub].equal(e.in[onHub])
		})
	})
	c.claims = [2]*claim{{}, {}}
	for _, e := range c.entries {
		if e.plain {
			s.coverage.move(e)
		}
		for sd := range e.in {
			if !e.has(side(sd)) {
				continue
			}
			for _, p := range e.in[sd].members() {
				s.claim(c, side(sd), p, e.path)
			}
		}
	}
	for _, inner := range c.inner {
		if inner.path() == "" {
			continue
		}
		for sd := range inner.in {
			s.claim(c, side(sd), inner.in[sd], inner.path())
		}
		s.settleElements(inner)
		s.settle(inner)
	}
	for _, e := range c.entries {
		refused := func(f structural.Finding) bool { return f.Path == e.path && f.Rule == ruleOverlap }
		if !slices.ContainsFunc(s.findings, refused) {
			s.crossed(c, e)
		}
	}
}

// crossed reports an entry whose place is inside a value that the other side converts as a whole.
func (s *scopes) crossed(c *scope, e *entry) {
	for sd := range e.in {
		if !e.has(side(sd)) {
			continue
		}
		own, other := side(sd), side(sd).other()
		for _, p := range e.in[sd].members() {
			named := c.claims[other]
			for i := range len(p.steps) - 1 {
				if named = named.key(p.steps[i].key); !named.exact() {
					continue
				}
				outer := place{steps: e.at[sd].steps[:len(e.at[sd].steps)-len(e.in[sd].steps)+i+1]}
				s.errorf(e.path, ruleOverlap, "%s of %s is inside %s, which in %s is a value of %s: %s",
					e.at[sd], s.versions[own], outer, s.versions[other], named.by, e.uncrossed(own, outer))
			}
		}
	}
}

// uncrossed returns the advice for an entry that crossed has reported.
func (e *entry) uncrossed(sd side, outer place) string {
	if e.has(sd.other()) {
		return fmt.Sprintf("write one entry {hub: %[1]s, spoke: %[1]s, toHub: ..., toSpoke: ...}", quotedPlace(outer))
	}
	return fmt.Sprintf("write {%s: %s, %s: {}} if no part of it has a counterpart, or one entry with toHub and toSpoke",
		sd.name(), quotedPlace(outer), sideWord(sd))
}

// path returns the path of an entry in the scope or its inner scopes; empty if all entries have errors.
func (c *scope) path() string {
	if len(c.entries) > 0 {
		return c.entries[0].path
	}
	for _, inner := range c.inner {
		if path := inner.path(); path != "" {
			return path
		}
	}
	return ""
}

// claim records a place of an entry in a scope. If another entry has the same place, or one place is inside the other,
// the later entry gets an error.
func (s *scopes) claim(c *scope, sd side, p place, by string) {
	other := c.claims[sd].add(p, by)
	if other == "" {
		return
	}
	whole := p
	if c.at[sd].steps != nil {
		whole = c.at[sd].elements().join(p)
	}
	s.errorf(by, ruleOverlap,
		"%s of %s is a place of %s too, or one is inside the other: convert what contains both as one value",
		whole, s.versions[sd], other)
}

// settleElements determines what identifies the elements of a scope. In a table it is the key. In a list it is the keys
// in the schema of the hub. It reports a list on one side and a table on the other, because their elements cannot be
// converted one by one.
func (s *scopes) settleElements(c *scope) {
	var lists [2]*schema.Structural
	for sd := range lists {
		found, err := find(s.schemas[sd], c.at[sd])
		if err != nil {
			return // There is already an error for the entry.
		}
		lists[sd] = found
	}
	spokes, hubs := lists[onSpoke].Items != nil, lists[onHub].Items != nil
	if spokes != hubs {
		s.errorf(c.path(), ruleType, "%s: convert them as a whole, with keyed, or with toHub and toSpoke",
			s.kinds(c.at, lists))
		return
	}
	c.table = !hubs
	if !c.table {
		c.key(lists[onHub].XListMapKeys)
	}
}

// key sets the keys of the scope in both versions. The keys have other names in the spoke if an entry moves the key
// field.
func (c *scope) key(hub []string) {
	if len(hub) == 0 {
		return
	}
	c.keys[onHub] = hub
	c.keys[onSpoke] = slices.Clone(hub)
	for i, key := range hub {
		for _, e := range c.entries {
			at := e.in[onSpoke]
			moves := e.has(onSpoke) && e.has(onHub) && e.in[onHub].String() == keyText(key, true)
			if moves && at.group == nil && len(at.steps) == 1 {
				c.keys[onSpoke][i] = at.steps[0].key
			}
		}
	}
}

// listKeys sets the keys that the policy declares, and warns about lists without keys.
func (s *scopes) listKeys(lists []refractv1alpha1.ListKeys) {
	for i, l := range lists {
		path := fmt.Sprintf("%s.lists[%d]", s.path, i)
		p, err := parsePlace(l.Hub)
		var list *schema.Structural
		if err == nil {
			list, err = find(s.schemas[onHub], p)
		}
		if err != nil {
			s.errorf(path+".hub", ruleLists, "in %s: %v", s.versions[onHub], err)
			continue
		}
		if list.Items == nil || kindOf(list.Items) != isObject {
			s.errorf(path+".hub", ruleLists, "%s of %s is %s: only lists of objects have keys",
				p, s.versions[onHub], article(described(list)))
			continue
		}
		known := true
		for j, key := range l.Keys {
			if fieldOf(list.Items, key) == nil {
				s.errorf(fmt.Sprintf("%s.keys[%d]", path, j), ruleLists, "in %s: %v",
					s.versions[onHub], unknown(list.Items, p.elements(), key))
				known = false
			}
		}
		if known && !s.root.applyKeys(p.String(), l.Keys) {
			s.warnf(path, warnNoEffect, "has no effect: nothing in %s is converted", p)
		}
	}
	s.warnKeys(s.root)
}

// applyKeys sets the keys of the list at a place of the hub. It returns false if no entry converts the list or its
// elements.
func (c *scope) applyKeys(hub string, keys []string) bool {
	for _, e := range c.entries {
		if e.to[onHub] != nil && e.at[onHub].String() == hub {
			e.hubKeys = keys
			return true
		}
	}
	for _, inner := range c.inner {
		if inner.at[onHub].String() == hub {
			inner.key(keys)
			return true
		}
		if inner.applyKeys(hub, keys) {
			return true
		}
	}
	return false
}

// warnKeys warns about lists of objects without keys.
func (s *scopes) warnKeys(c *scope) {
	for _, inner := range c.inner {
		if !inner.table && len(inner.keys[onHub]) == 0 && kindOf(s.within(inner, onHub)) == isObject {
			s.warnf(inner.path(), warnKeys,
				"%s of %s has no keys, so kept parts of its elements are matched by position: add {hub: %s, keys: [...]} to %s.lists if fields identify them",
				inner.at[onHub], s.versions[onHub], quotedPlace(inner.at[onHub]), s.path)
		}
		s.warnKeys(inner)
	}
}
