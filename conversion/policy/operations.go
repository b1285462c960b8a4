package policy

import (
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// move compiles an entry for a value that only moves.
func (c *fieldCompiler) move(e *entry) {
	if e.at[onSpoke].String() == e.at[onHub].String() && kindOf(e.schemas[onSpoke]) == kindOf(e.schemas[onHub]) {
		c.warnf(e.path, warnNoEffect, "has no effect: fields at the same place in both versions pass without an entry")
	}
	e.plain = true
}

// oneSided compiles an entry for a value that only one side has. If that side requires the value, objects from the
// other side need a default. This is the default of the policy, or the default of the schema, which API servers set.
func (c *fieldCompiler) oneSided(e *entry, sd side, f *refractv1alpha1.OneSided) {
	e.loses[sd] = true
	at := e.at[sd]
	if at.group != nil {
		c.errorf(e.path, rulePlace, "only one version has %s: name each of its fields in an entry of its own", at)
		return
	}
	last := at.steps[len(at.steps)-1]
	parent, err := find(c.schemas[sd], place{steps: at.steps[:len(at.steps)-1]})
	if err != nil || last.each {
		return // sort reports this problem.
	}
	own, required := e.schemas[sd], requires(parent, last.key)
	switch {
	case f.Default != nil:
		c.fill(e, sd, f.Default, required)
	case required && own.Default.Object == nil:
		c.errorf(e.path, ruleRequired, "%s requires %s, and %s has no counterpart: write %s: {default: ...}",
			c.versions[sd], at, c.versions[sd.other()], sideWord(sd))
	}
}

// sideWord returns the field of a policy for values that only this side has.
func sideWord(s side) string { return [2]string{onSpoke: "removed", onHub: "added"}[s] }

// fill compiles the default of a value that only one side has. If the value is optional and has no default in the
// schema, a default is an error: it would add a value to objects that have none.
func (c *fieldCompiler) fill(e *entry, sd side, raw *apiextensionsv1.JSON, required bool) {
	path := e.path + "." + sideWord(sd) + ".default"
	own := e.schemas[sd]
	value, err := decode(raw.Raw)
	if err == nil {
		err = fits(own, value)
	}
	switch {
	case err != nil:
		c.errorf(path, ruleDefault, "%s of %s: %v", e.at[sd], c.versions[sd], err)
	case own.Default.Object != nil && !sameValue(own.Default.Object, value):
		c.errorf(path, ruleDefault, "want %s, which is the default of %s in %s; got %s",
			jsonText(own.Default.Object), e.at[sd], c.versions[sd], jsonText(value))
	case own.Default.Object == nil && !required:
		c.errorf(path, ruleDefault,
			"%s of %s has no default, and may be absent: leave this one out, so that absent stays absent",
			e.at[sd], c.versions[sd])
	default:
		e.fill = raw.Raw
	}
}

// scale compiles a change of units. A multiplication of integers by a whole number loses nothing. A division truncates
// integers. Other numbers are rounded.
func (c *fieldCompiler) scale(e *entry) {
	f := e.field.Scale
	for sd, own := range e.schemas {
		if !kindOf(own).number() {
			c.errorf(e.path+".scale", ruleType, "%s: scale is for integers and numbers", c.kind(side(sd), e.at[sd], own))
			return
		}
	}
	if f.Hub < 1 || f.Spoke < 1 {
		c.errorf(e.path+".scale", ruleField, "want hub and spoke to be 1 or more")
		return
	}
	if f.Hub == f.Spoke {
		c.warnf(e.path+".scale", warnNoEffect, "has no effect: %d are %d", f.Spoke, f.Hub)
	}
	integers := [2]bool{kindOf(e.schemas[onSpoke]) == isInteger, kindOf(e.schemas[onHub]) == isInteger}
	e.to = [2]transform{onSpoke: scaled(f.Spoke, f.Hub, integers[onSpoke]), onHub: scaled(f.Hub, f.Spoke, integers[onHub])}
	e.loses = [2]bool{
		onSpoke: !integers[onSpoke] || !integers[onHub] || f.Hub%f.Spoke != 0,
		onHub:   !integers[onSpoke] || !integers[onHub] || f.Spoke%f.Hub != 0,
	}
}

// cast compiles a conversion between texts and numbers or booleans, or between integers and numbers. Each value of the
// narrow type, for example of an integer, has a counterpart of the wide type, for example a text. A value of the wide
// type may have no counterpart. Such an object is not converted, unless the policy has a fallback in otherwise.
func (c *fieldCompiler) cast(e *entry) {
	k, l := kindOf(e.schemas[onSpoke]), kindOf(e.schemas[onHub])
	if caster(k, l) == nil {
		c.errorf(e.path+".cast", ruleType, "%s: cast is between strings and numbers or booleans, or integers and numbers",
			c.kinds(e.at, e.schemas))
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
			c.errorf(e.path+".cast.otherwise", ruleDefault, "%s of %s: %v", e.at[narrow], c.versions[narrow], err)
			return
		}
	}
	kinds := [2]kind{k, l}
	e.to[narrow] = castTo(kinds[wide], kinds[narrow], otherwise)
	e.to[wide] = castTo(kinds[narrow], kinds[wide], nil)
	e.loses[wide] = otherwise != nil || kinds[wide] == isText && kinds[narrow].number()
}

// keyed compiles a conversion between a list and a table. A table has no order and no duplicate keys, so some lists
// need the annotation to come back unchanged.
func (c *fieldCompiler) keyed(e *entry) {
	f := e.field.Keyed
	path := e.path + ".keyed"
	list := onSpoke
	if e.schemas[onHub].Items != nil {
		list = onHub
	}
	table := list.other()
	items, values := e.schemas[list].Items, valuesOf(e.schemas[table])
	if items == nil || kindOf(items) != isObject || values == nil {
		c.errorf(path, ruleType, "%s: keyed is for a list of objects and a table", c.kinds(e.at, e.schemas))
		return
	}
	elements := e.at[list].elements()
	key := fieldOf(items, f.Key)
	if key == nil || kindOf(key) != isText {
		err := fmt.Errorf("%s is not a string: keys of a table are strings", elements.member(f.Key))
		if key == nil {
			err = unknown(items, elements, f.Key)
		}
		c.errorf(path+".key", rulePlace, "in %s: %v", c.versions[list], err)
		return
	}
	if !requires(items, f.Key) && key.Default.Object == nil {
		c.warnf(path+".key", warnValues, "%s does not require %s: an object with an element without it is not converted",
			c.versions[list], elements.member(f.Key))
	}
	c.keyedValues(e, list, elements)
	e.to[table] = tableOf(f.Key, f.Value)
	e.to[list] = listOf(f.Key, f.Value)
	e.loses[list], e.loses[table] = true, values.Nullable
}

// keyedValues compares the elements of the list with the values of the table.
func (c *fieldCompiler) keyedValues(e *entry, list side, elements place) {
	f := e.field.Keyed
	items, table := e.schemas[list].Items, list.other()
	v := valuesAt(e, list, elements, items)
	v.schemas[table], v.at[table] = valuesOf(e.schemas[table]), e.at[table].elements()
	if f.Value == "" {
		v.claims[list] = &claim{keys: map[string]*claim{f.Key: {by: e.path}}}
		c.coverage.compare(v)
		return
	}
	value := fieldOf(items, f.Value)
	if value == nil {
		c.errorf(e.path+".keyed.value", rulePlace, "in %s: %v", c.versions[list], unknown(items, elements, f.Value))
		return
	}
	c.onlyFields(e, list, items, f.Key, f.Value)
	v.schemas[list], v.at[list] = value, elements.member(f.Value)
	c.coverage.compare(v)
}

// valuesAt returns values that only one side has.
func valuesAt(e *entry, sd side, at place, own *schema.Structural) values {
	v := values{path: e.path, within: e}
	v.schemas[sd], v.at[sd] = own, at
	return v
}

// onlyFields reports those fields of list elements that have no place on the other side. The fields in but have one.
func (c *fieldCompiler) onlyFields(e *entry, list side, items *schema.Structural, but ...string) {
	for _, key := range slices.Sorted(maps.Keys(items.Properties)) {
		if !slices.Contains(but, key) {
			c.errorf(e.path, ruleCoverage, "%s has %s, and %s of %s has no place for it: "+
				"use a pair toHub and toSpoke, with lossy to keep it in the annotation",
				c.versions[list], e.at[list].elements().member(key), e.at[list.other()], c.versions[list.other()])
		}
	}
	if rest := restOf(items); rest != "" {
		c.errorf(e.path, ruleCoverage, "%s of %s keeps %s, and %s of %s has no place for them: use a pair toHub and toSpoke",
			e.at[list].elements(), c.versions[list], rest, e.at[list.other()], c.versions[list.other()])
	}
}

// wrap compiles a conversion between a value and a list that has the value as its first element. Further elements need
// the annotation to come back.
func (c *fieldCompiler) wrap(e *entry) {
	key := e.field.Wrap.Key
	list, single := c.wrapping(e, key)
	if single == nil {
		what := "its elements"
		if key != "" {
			what = "the field " + key + " of its elements"
		}
		c.errorf(e.path+".wrap", ruleType,
			"%s: wrap is for a value and a list whose elements, or a field of them, are such values, not %s",
			c.kinds(e.at, e.schemas), what)
		return
	}
	elements := e.at[list].elements()
	v := valuesAt(e, list, elements, single)
	if key != "" {
		v.at[list] = elements.member(key)
		c.onlyFields(e, list, e.schemas[list].Items, key)
	}
	other := list.other()
	v.schemas[other], v.at[other] = e.schemas[other], e.at[other]
	c.coverage.compare(v)
	e.to[list], e.to[other] = wrapped(key), unwrapped(key)
	e.loses[list] = true
}

// wrapping returns the side that has the list, and the schema of the value in the list. The schema is nil if neither
// side has such a list.
func (c *fieldCompiler) wrapping(e *entry, key string) (side, *schema.Structural) {
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
