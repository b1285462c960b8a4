package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// move compiles a value that is at another place.
func (s *spoke) move(e *entry) {
	if e.at[onSpoke].String() == e.at[onHub].String() && kindOf(e.schemas[onSpoke]) == kindOf(e.schemas[onHub]) {
		s.warnf(e.path, warnNoEffect, "has no effect: what both versions have at the same place passes without being named")
	}
	e.plain = true
}

// checkMove finds what of a value does not pass to another place.
func (s *spoke) checkMove(e *entry) {
	s.compare(values{path: e.path, at: e.at, schemas: e.schemas, within: e})
	if e.at[onSpoke].group != nil || e.at[onHub].group != nil {
		return // Their fields are compared like those of an object.
	}
	for _, sd := range []side{onSpoke, onHub} {
		if s.requiredAt(sd, e.at[sd]) && !s.requiredAt(sd.other(), e.at[sd.other()]) {
			s.requiredByOne(e.path, e.at, sd)
		}
	}
}

// oneSided compiles a value that only one side has.
func (s *spoke) oneSided(e *entry, sd side, f *refractv1alpha1.OneSided) {
	e.loses[sd] = true
	at := e.at[sd]
	if at.group != nil {
		s.errorf(e.path, rulePlace, "only one version has %s: name each of its fields in an entry of its own", at)
		return
	}
	last := at.steps[len(at.steps)-1]
	parent, err := find(s.schemas[sd], place{steps: at.steps[:len(at.steps)-1]})
	if err != nil || last.each {
		return // The scope has something to say about it.
	}
	own, required := e.schemas[sd], requires(parent, last.key)
	switch {
	case f.Default != nil:
		s.fill(e, sd, f.Default, required)
	case required && own.Default.Object == nil:
		s.errorf(e.path, ruleRequired, "%s requires %s, and %s has nothing for it: write %s: {default: ...}",
			s.versions[sd], at, s.versions[sd.other()], sideWord(sd))
	}
}

func sideWord(s side) string { return [2]string{onSpoke: "removed", onHub: "added"}[s] }

// fill compiles the default of a value that only one side has.
func (s *spoke) fill(e *entry, sd side, raw *apiextensionsv1.JSON, required bool) {
	path := e.path + "." + sideWord(sd) + ".default"
	own := e.schemas[sd]
	value, err := decode(raw.Raw)
	if err == nil {
		err = fits(own, value)
	}
	switch {
	case err != nil:
		s.errorf(path, ruleDefault, "%s of %s: %v", e.at[sd], s.versions[sd], err)
	case own.Default.Object != nil && !sameValue(own.Default.Object, value):
		s.errorf(path, ruleDefault, "want %s, which is the default of %s in %s; got %s",
			jsonText(own.Default.Object), e.at[sd], s.versions[sd], jsonText(value))
	case own.Default.Object == nil && !required:
		s.errorf(path, ruleDefault, "%s of %s has no default, and may be absent: leave this one out, so that absent stays absent", e.at[sd], s.versions[sd])
	default:
		e.fill = raw.Raw
	}
}

// scale compiles a change of units.
func (s *spoke) scale(e *entry) {
	f := e.field.Scale
	for sd, own := range e.schemas {
		if !kindOf(own).number() {
			s.errorf(e.path+".scale", ruleType, "%s is %s in %s: scale is for integers and numbers", e.at[sd], article(described(own)), s.versions[sd])
			return
		}
	}
	if f.Hub < 1 || f.Spoke < 1 {
		s.errorf(e.path+".scale", ruleField, "want hub and spoke to be 1 or more")
		return
	}
	if f.Hub == f.Spoke {
		s.warnf(e.path+".scale", warnNoEffect, "has no effect: %d are %d", f.Spoke, f.Hub)
	}
	integers := [2]bool{kindOf(e.schemas[onSpoke]) == isInteger, kindOf(e.schemas[onHub]) == isInteger}
	e.to = [2]transform{onSpoke: scaled(f.Spoke, f.Hub, integers[onSpoke]), onHub: scaled(f.Hub, f.Spoke, integers[onHub])}
	e.loses = [2]bool{
		onSpoke: !integers[onSpoke] || !integers[onHub] || f.Hub%f.Spoke != 0,
		onHub:   !integers[onSpoke] || !integers[onHub] || f.Spoke%f.Hub != 0,
	}
}

// cast compiles a text that is a number or a boolean.
func (s *spoke) cast(e *entry) {
	k, l := kindOf(e.schemas[onSpoke]), kindOf(e.schemas[onHub])
	if caster(k, l) == nil {
		s.errorf(e.path+".cast", ruleType, "%s is %s in %s, and %s is %s in %s: cast is between strings and numbers or booleans, or integers and numbers",
			e.at[onSpoke], article(described(e.schemas[onSpoke])), s.versions[onSpoke], e.at[onHub], article(described(e.schemas[onHub])), s.versions[onHub])
		return
	}
	wide := onSpoke
	if l == isText || k == isInteger && l == isNumber {
		wide = onHub
	}
	narrow := wide.other()
	var otherwise []byte
	if e.field.Cast.Otherwise != nil {
		otherwise = e.field.Cast.Otherwise.Raw
		value, err := decode(otherwise)
		if err == nil {
			err = fits(e.schemas[narrow], value)
		}
		if err != nil {
			s.errorf(e.path+".cast.otherwise", ruleDefault, "%s of %s: %v", e.at[narrow], s.versions[narrow], err)
			return
		}
	}
	kinds := [2]kind{k, l}
	e.to[narrow] = castTo(kinds[wide], kinds[narrow], otherwise)
	e.to[wide] = castTo(kinds[narrow], kinds[wide], nil)
	e.loses[wide] = otherwise != nil || kinds[wide] == isText && kinds[narrow].number()
}

// keyed compiles a list that is a table.
func (s *spoke) keyed(e *entry) {
	f := e.field.Keyed
	path := e.path + ".keyed"
	list := onSpoke
	if e.schemas[onHub].Items != nil {
		list = onHub
	}
	table := list.other()
	items, values := e.schemas[list].Items, valuesOf(e.schemas[table])
	if items == nil || kindOf(items) != isObject || values == nil {
		s.errorf(path, ruleType, "%s is %s in %s, and %s is %s in %s: keyed is for a list of objects and a table",
			e.at[onSpoke], article(described(e.schemas[onSpoke])), s.versions[onSpoke], e.at[onHub], article(described(e.schemas[onHub])), s.versions[onHub])
		return
	}
	elements := e.at[list].elements()
	key := fieldOf(items, f.Key)
	if key == nil || kindOf(key) != isText {
		err := fmt.Errorf("%s is no string: the keys of a table are", elements.member(f.Key))
		if key == nil {
			err = unknown(items, elements, f.Key)
		}
		s.errorf(path+".key", rulePlace, "in %s: %v", s.versions[list], err)
		return
	}
	if !requires(items, f.Key) && key.Default.Object == nil {
		s.warnf(path+".key", warnValues, "%s does not require %s: an object with an element that has none is not converted",
			s.versions[list], elements.member(f.Key))
	}
	s.keyedValues(e, list, elements)
	e.to[table] = tableOf(f.Key, f.Value)
	e.to[list] = listOf(f.Key, f.Value)
	e.loses[list], e.loses[table] = true, values.Nullable
}

// keyedValues compares what is in a list with what is in its table.
func (s *spoke) keyedValues(e *entry, list side, elements place) {
	f := e.field.Keyed
	items, table := e.schemas[list].Items, list.other()
	v := valuesAt(e, list, elements, items)
	v.schemas[table], v.at[table] = valuesOf(e.schemas[table]), e.at[table].elements()
	if f.Value == "" {
		v.claims[list] = &claim{keys: map[string]*claim{f.Key: {by: e.path}}}
		s.compare(v)
		return
	}
	value := fieldOf(items, f.Value)
	if value == nil {
		s.errorf(e.path+".keyed.value", rulePlace, "in %s: %v", s.versions[list], unknown(items, elements, f.Value))
		return
	}
	s.onlyFields(e, list, items, f.Key, f.Value)
	v.schemas[list], v.at[list] = value, elements.member(f.Value)
	s.compare(v)
}

// valuesAt returns the values of one side.
func valuesAt(e *entry, sd side, at place, own *schema.Structural) values {
	v := values{path: e.path, within: e}
	v.schemas[sd], v.at[sd] = own, at
	return v
}

// onlyFields finds the fields of a list's elements that the other side has no place for.
func (s *spoke) onlyFields(e *entry, list side, items *schema.Structural, but ...string) {
	for _, key := range slices.Sorted(maps.Keys(items.Properties)) {
		if !slices.Contains(but, key) {
			s.errorf(e.path, ruleCoverage, "%s has %s, and %s of %s has no place for it: "+
				"use a pair toHub and toSpoke, with lossy if it is to be kept in the annotation",
				s.versions[list], e.at[list].elements().member(key), e.at[list.other()], s.versions[list.other()])
		}
	}
	if rest := restOf(items); rest != "" {
		s.errorf(e.path, ruleCoverage, "%s of %s keeps %s, and %s of %s has no place for them: use a pair toHub and toSpoke",
			e.at[list].elements(), s.versions[list], rest, e.at[list.other()], s.versions[list.other()])
	}
}

// wrap compiles a value that is the element of a list.
func (s *spoke) wrap(e *entry) {
	key := e.field.Wrap.Key
	list, single := s.wrapping(e, key)
	if single == nil {
		what := "its elements"
		if key != "" {
			what = "the field " + key + " of its elements"
		}
		s.errorf(e.path+".wrap", ruleType, "%s is %s in %s, and %s is %s in %s: "+
			"wrap is for a value and a list whose elements, or a field of them, are such values, not %s",
			e.at[onSpoke], article(described(e.schemas[onSpoke])), s.versions[onSpoke],
			e.at[onHub], article(described(e.schemas[onHub])), s.versions[onHub], what)
		return
	}
	elements := e.at[list].elements()
	v := valuesAt(e, list, elements, single)
	if key != "" {
		v.at[list] = elements.member(key)
		s.onlyFields(e, list, e.schemas[list].Items, key)
	}
	other := list.other()
	v.schemas[other], v.at[other] = e.schemas[other], e.at[other]
	s.compare(v)
	e.to[list], e.to[other] = wrapped(key), unwrapped(key)
	e.loses[list] = true
}

// wrapping returns which side has the list, and the schema of the value in it: nil if
// neither has.
func (s *spoke) wrapping(e *entry, key string) (side, *schema.Structural) {
	for _, sd := range []side{onHub, onSpoke} {
		single := e.schemas[sd].Items
		if single != nil && key != "" {
			single = fieldOf(single, key)
		}
		if single != nil && kindOf(single) == kindOf(e.schemas[sd.other()]) {
			return sd, single
		}
	}
	return onHub, nil
}

// pairs compiles a map.
func (s *spoke) pairs(e *entry) {
	for sd, own := range e.schemas {
		if !kindOf(own).scalar() {
			s.errorf(e.path+".map", ruleType, "%s is %s in %s: map is for strings, numbers and booleans", e.at[sd], article(described(own)), s.versions[sd])
			return
		}
	}
	m := pairing{passes: kindOf(e.schemas[onSpoke]) == kindOf(e.schemas[onHub])}
	for sd, own := range e.schemas {
		m.domains[sd] = domainOf(own)
		m.from[sd], m.texts[sd] = map[string][]byte{}, map[string][]byte{}
	}
	for i, pair := range e.field.Map {
		s.pair(e, &m, fmt.Sprintf("%s.map[%d]", e.path, i), [2][]byte{onSpoke: pair.Spoke.Raw, onHub: pair.Hub.Raw})
	}
	for sd := range e.schemas {
		s.unpaired(e, &m, side(sd))
		e.to[side(sd).other()] = mapped(m.from[sd], m.texts[sd], m.passes)
		e.loses[sd] = m.loses(side(sd))
	}
}

// pairing is a map while it is being compiled.
type pairing struct {
	// from are the pairs by their value on a side, with the other side's value.
	from [2]map[string][]byte
	// texts are the same by the JSON that stands in the policy.
	texts [2]map[string][]byte
	// domains are the values that a side can have, nil if they are not counted.
	domains [2][]any
	// passes says that values of no pair pass.
	passes bool
	many   [2]bool
}

// pair adds a pair to a map.
func (s *spoke) pair(e *entry, m *pairing, path string, pair [2][]byte) {
	var keys [2]string
	for sd, text := range pair {
		key, err := scalarKey(text)
		if err == nil {
			var value any
			if value, err = decode(text); err == nil {
				err = fits(e.schemas[sd], value)
			}
		}
		if err != nil {
			s.errorf(path+"."+side(sd).name(), rulePair, "%s of %s: %v", e.at[sd], s.versions[sd], err)
			return
		}
		keys[sd] = key
	}
	_, spokeTwice := m.from[onSpoke][keys[onSpoke]]
	_, hubTwice := m.from[onHub][keys[onHub]]
	switch {
	case spokeTwice && hubTwice:
		s.warnf(path, warnNoEffect, "has no effect: there are pairs with both values before it")
	case spokeTwice:
		m.many[onHub] = true
		s.manyToOne(path, pair[onSpoke], onSpoke)
	case hubTwice:
		m.many[onSpoke] = true
		s.manyToOne(path, pair[onHub], onHub)
	}
	for sd := range pair {
		if _, twice := m.from[sd][keys[sd]]; !twice {
			m.from[sd][keys[sd]] = pair[side(sd).other()]
			m.texts[sd][string(pair[sd])] = pair[side(sd).other()]
		}
	}
}

func (s *spoke) manyToOne(path string, value []byte, sd side) {
	s.warnf(path, warnPairs, "%s of %s has more than one value in %s: which one it was is kept in the annotation",
		value, s.versions[sd], s.versions[sd.other()])
}

// unpaired judges the values of a side that are in no pair.
func (s *spoke) unpaired(e *entry, m *pairing, sd side) {
	other := sd.other()
	if m.domains[sd] == nil {
		if !m.passes {
			s.warnf(e.path+".map", warnValues, "%s of %s may be any %s: an object with one that is in no pair is not converted to %s",
				e.at[sd], s.versions[sd], kindOf(e.schemas[sd]), s.versions[other])
		}
		return
	}
	allowed := scalarKeys(m.domains[other])
	for _, value := range m.domains[sd] {
		key := keyOfValue(value)
		_, paired := m.from[sd][key]
		if paired || m.passes && (m.domains[other] == nil || slices.Contains(allowed, key)) {
			continue
		}
		s.errorf(e.path+".map", ruleEnum, "%s of %s may be %s, which is in no pair, and no value of %s in %s: add {%s: %s, %s: ...}",
			e.at[sd], s.versions[sd], jsonText(value), e.at[other], s.versions[other], sd.name(), jsonText(value), other.name())
	}
}

// loses reports whether two values of a side may become the same value of the other.
func (m *pairing) loses(sd side) bool {
	if m.many[sd] {
		return true
	}
	if !m.passes {
		return false
	}
	for _, to := range m.from[sd] {
		key, err := scalarKey(to)
		if _, paired := m.from[sd][key]; err != nil || paired {
			continue
		}
		if m.domains[sd] == nil || slices.Contains(scalarKeys(m.domains[sd]), key) {
			return true
		}
	}
	return false
}

// domainOf returns the values that a schema allows, nil if they are not counted.
func domainOf(s *schema.Structural) []any {
	if all := enumOf(s); len(all) > 0 {
		return all
	}
	if kindOf(s) == isBoolean {
		return []any{false, true}
	}
	return nil
}

func scalarKeys(all []any) []string {
	keys := make([]string, len(all))
	for i, value := range all {
		keys[i] = keyOfValue(value)
	}
	return keys
}

func keyOfValue(value any) string {
	text := jsonText(value)
	key, err := scalarKey([]byte(text))
	if err != nil {
		return strings.TrimSpace(text)
	}
	return key
}
