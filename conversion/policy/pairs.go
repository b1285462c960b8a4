package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/tree/raw"
)

// pairs compiles a map. If both sides have the same type, a value without a pair passes. Otherwise a value without a
// pair is an error if the schema allows the value.
func (c *fieldCompiler) pairs(e *entry) {
	for sd, own := range e.schemas {
		if !kindOf(own).scalar() {
			c.errorf(e.path+".map", ruleType, "%s: map is for strings, numbers and booleans", c.kind(side(sd), e.at[sd], own))
			return
		}
	}
	m := pairing{versionPair: c.versionPair, entry: e, passes: kindOf(e.schemas[onSpoke]) == kindOf(e.schemas[onHub])}
	for sd, own := range e.schemas {
		m.domains[sd] = domainOf(own)
		m.from[sd], m.texts[sd] = map[string][]byte{}, map[string][]byte{}
	}
	for i, pair := range e.field.Map {
		m.add(fmt.Sprintf("%s.map[%d]", e.path, i), [2][]byte{onSpoke: pair.Spoke.Raw, onHub: pair.Hub.Raw})
	}
	for sd := range e.schemas {
		m.unpaired(side(sd))
		e.to[side(sd).other()] = mapped(m.from[sd], m.texts[sd], m.passes)
		e.loses[sd] = m.loses(side(sd))
	}
}

// pairing is a map during compilation. It finds values without a pair, and different values that may become the same
// value.
type pairing struct {
	versionPair

	entry *entry
	// from has, for each side, the value of the other side by the value of this side.
	from [2]map[string][]byte
	// texts has the same content as from, with the JSON in the policy as keys.
	texts [2]map[string][]byte
	// domains are the allowed values of a side; nil if the schema does not list them.
	domains [2][]any
	// passes is true if values without a pair pass.
	passes bool
	// many is true for a side if several of its values become one value of the other side.
	many [2]bool
}

// add adds a pair. Of several pairs with the same value, the first one wins.
func (m *pairing) add(path string, pair [2][]byte) {
	var keys [2]string
	for sd, text := range pair {
		key, err := scalarKey(text)
		if err == nil {
			var value any
			if value, err = decode(text); err == nil {
				err = fits(m.entry.schemas[sd], value)
			}
		}
		if err != nil {
			m.errorf(path+"."+side(sd).name(), rulePair, "%s of %s: %v", m.entry.at[sd], m.versions[sd], err)
			return
		}
		keys[sd] = key
	}
	_, spokeTwice := m.from[onSpoke][keys[onSpoke]]
	_, hubTwice := m.from[onHub][keys[onHub]]
	switch {
	case spokeTwice && hubTwice:
		m.warnf(path, warnNoEffect, "has no effect: there are pairs with both values before it")
	case spokeTwice:
		m.many[onHub] = true
		m.manyToOne(path, pair[onSpoke], onSpoke)
	case hubTwice:
		m.many[onSpoke] = true
		m.manyToOne(path, pair[onHub], onHub)
	}
	for sd := range pair {
		if _, twice := m.from[sd][keys[sd]]; !twice {
			m.from[sd][keys[sd]] = pair[side(sd).other()]
			m.texts[sd][string(pair[sd])] = pair[side(sd).other()]
		}
	}
}

// manyToOne warns that several values of the other side become one value of this side.
func (m *pairing) manyToOne(path string, value []byte, sd side) {
	m.warnf(path, warnPairs, "%s of %s has more than one value in %s: the annotation keeps the original value",
		value, m.versions[sd], m.versions[sd.other()])
}

// unpaired checks the values of a side that have no pair. If the schema lists the allowed values, a missing pair is an
// error; otherwise it is a warning.
func (m *pairing) unpaired(sd side) {
	e := m.entry
	other := sd.other()
	if m.domains[sd] == nil {
		if !m.passes {
			m.warnf(e.path+".map", warnValues,
				"%s of %s may be any %s: an object with a value outside the pairs is not converted to %s",
				e.at[sd], m.versions[sd], kindOf(e.schemas[sd]), m.versions[other])
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
		m.errorf(e.path+".map", ruleEnum,
			"%s of %s may be %s, which is in no pair, and no value of %s in %s: add {%s: %s, %s: ...}",
			e.at[sd], m.versions[sd], jsonText(value), e.at[other], m.versions[other], sd.name(), jsonText(value), other.name())
	}
}

// loses reports whether two different values of this side may become the same value of the other side.
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

// domainOf returns the values that a schema allows; nil if the schema does not list them.
func domainOf(s *schema.Structural) []any {
	if all := enumOf(s); len(all) > 0 {
		return all
	}
	if kindOf(s) == isBoolean {
		return []any{false, true}
	}
	return nil
}

// scalarKeys returns the [scalarKey] of each value.
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

// scalarKey returns a text that is equal for equal JSON scalars, and different for different ones. Numbers are compared
// to the last digit.
func scalarKey(value []byte) (string, error) {
	switch {
	case len(value) == 0:
		return "", errScalar
	case value[0] == '"':
		text, err := raw.String(value)
		return `"` + text, err
	case isNumeric(value):
		r, err := rational(value)
		if err != nil {
			return "", err
		}
		return r.RatString(), nil
	case string(value) == "true", string(value) == "false":
		return string(value), nil
	default:
		return "", errScalar
	}
}

var errScalar = errors.New("want a string, a number or a boolean")

// mapped returns a function that maps values by pairs. pairs has the JSON of the result by the [scalarKey] of the
// value. texts has it by the usual JSON of the value, for a fast lookup. A value without a pair stays unchanged if
// passes is true, and is an error otherwise.
func mapped(pairs, texts map[string][]byte, passes bool) transform {
	return func(dst, value []byte) ([]byte, error) {
		if to, ok := texts[string(value)]; ok {
			return append(dst, to...), nil
		}
		key, err := scalarKey(value)
		if to, ok := pairs[key]; ok && err == nil {
			return append(dst, to...), nil
		}
		if passes {
			return append(dst, value...), nil
		}
		return dst, fmt.Errorf("%s is in no pair of map, and the versions have different types here", shortened(value))
	}
}
