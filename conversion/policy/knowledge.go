package policy

import (
	stdjson "encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/expression"
)

// leg is one step of a conversion between two versions: from a spoke to the hub, or from the hub to a spoke.
type leg struct {
	spoke *spoke
	from  side
}

// legs returns the steps of the conversion from version to other. It returns nil if the versions are equal or unknown.
func (p *Policy) legs(version, other string) []leg {
	if version == other {
		return nil
	}
	var way []leg
	if version != p.Hub() {
		s := p.spoke(version)
		if s == nil {
			return nil
		}
		way = append(way, leg{spoke: s, from: onSpoke})
	}
	if other != p.Hub() {
		s := p.spoke(other)
		if s == nil {
			return nil
		}
		way = append(way, leg{spoke: s, from: onHub})
	}
	return way
}

func (p *Policy) spoke(version string) *spoke {
	for _, s := range p.spokes {
		if s.version() == version {
			return s
		}
	}
	return nil
}

// placed is an entry with the place of its value in the queried version.
type placed struct {
	entry *entry
	side  side
	at    place
}

// entries returns the entries that have a value in version, for the conversion from version to other. Each has its
// place in version. In a conversion between two spokes, the entries of the second step have places in the hub; these
// are translated to places in version.
func (p *Policy) entries(version, other string) []placed {
	if placed := p.placed[[2]string{version, other}]; placed != nil {
		return placed()
	}
	return nil
}

func (p *Policy) place(version, other string) []placed {
	var all []placed
	for i, l := range p.legs(version, other) {
		for _, e := range l.spoke.entries {
			if !e.has(l.from) {
				continue
			}
			at := e.at[l.from]
			if i > 0 {
				var ok bool
				if at, ok = p.spoke(version).fromHub(at); !ok {
					continue
				}
			}
			all = append(all, placed{entry: e, side: l.from, at: at})
		}
	}
	return all
}

// hubValue is one value of an entry in the hub.
type hubValue struct {
	entry  *entry
	member int // Index of the value in the group of the entry.
}

// index sets hubValues.
func (s *spoke) index() {
	s.hubValues = map[string]hubValue{}
	for _, e := range s.entries {
		if !e.has(onHub) {
			continue
		}
		for i, at := range e.at[onHub].members() {
			s.hubValues[at.String()] = hubValue{entry: e, member: i}
		}
	}
}

// fromHub translates a place in the hub to the place in the spoke. It returns false if the spoke does not have the
// value. For a part of a value that an entry converts, the result is the place of the whole value.
func (s *spoke) fromHub(at place) (place, bool) {
	for i := range len(at.steps) + 1 {
		named, ok := s.hubValues[place{steps: at.steps[:i]}.String()]
		switch e := named.entry; {
		case !ok:
		case !e.has(onSpoke):
			return place{}, false
		case !e.plain:
			return e.at[onSpoke], true
		default:
			rest := place{steps: at.steps[i:], group: at.group}
			return e.at[onSpoke].members()[named.member].join(rest), true
		}
	}
	return s.root.fromHub(at), true
}

// fromHub translates a place in the hub that is inside a moved list or table.
func (c *scope) fromHub(at place) place {
	for _, inner := range c.inner {
		if moved := inner.fromHub(at); moved.String() != at.String() {
			return moved
		}
		if inner.at[onHub].begins(at) {
			return inner.at[onSpoke].join(place{steps: at.steps[len(inner.at[onHub].steps):], group: at.group})
		}
	}
	return at
}

// begins reports whether the place at is p, or is inside p.
func (p place) begins(at place) bool {
	return len(at.steps) >= len(p.steps) && slices.Equal(p.steps, at.steps[:len(p.steps)])
}

// MayLose returns the places in version whose values the conversion to other may lose if nothing is kept in the
// annotation, as for partial objects. These are values that only one version has, values of lossy pairs, values of maps
// in which several values become one, and values of scale, cast, keyed and wrap that may not come back. The places are
// sorted, and have [*] for elements. The caller owns the slice.
func (p *Policy) MayLose(version, other string) []string {
	var all []string
	for _, e := range p.entries(version, other) {
		if !e.entry.loses[e.side] {
			continue
		}
		for _, at := range e.at.members() {
			all = append(all, at.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// RuleAt returns the path in the policy of the entry for a value, such as spec.spokes[0].fields[2]. path is the path of
// the value in an object of version. The entry belongs to the conversion from version to other or back. If several
// entries have places that are path or contain it, RuleAt returns the entry with the longest place. If no entry has
// such a place, but exactly one has a place inside path, RuleAt returns that entry. Otherwise it returns "", for
// example for a value that passes or for the whole object. Elements in path may have an index or be [*].
func (p *Policy) RuleAt(version, other, path string) string {
	at, err := parsePath(path)
	if err != nil {
		return ""
	}
	around, longest := "", -1
	var inside []string
	seen := map[string]bool{} // Places inside path. The entries of both legs may have the same place.
	for _, e := range p.entries(version, other) {
		for _, member := range e.at.members() {
			switch n := len(member.steps); {
			case !member.matches(at), seen[member.String()]:
			case n > len(at.steps):
				seen[member.String()] = true
				inside = append(inside, e.entry.path)
			case n > longest:
				around, longest = e.entry.path, n
			}
		}
	}
	if inside = slices.Compact(inside); around == "" && len(inside) == 1 {
		return inside[0]
	}
	return around
}

// Normalize returns obj, an object of version, with values in their normal form, so that equivalent values are equal.
// It uses the equivalences for the conversion from version to other. If an expression fails, the value stays unchanged.
// The result is usually not a valid object, and is only for comparisons. It may share parts with obj; obj is not
// modified.
//
// Normalize returns an error if a value of obj cannot be encoded as JSON.
func (p *Policy) Normalize(version, other string, obj map[string]any) (map[string]any, error) {
	out := any(obj)
	for _, e := range p.entries(version, other) {
		normal := e.entry.normal[e.side]
		if normal == nil {
			continue
		}
		var err error
		if out, err = normalize(out, e.at, normal); err != nil {
			return nil, fmt.Errorf("normalizing %s: %w", e.at, err)
		}
	}
	normalized, _ := out.(map[string]any)
	return normalized, nil
}

// normalize replaces the value at a place inside a value by its normal form. It does not modify its argument.
func normalize(value any, at place, normal *expression.Program) (any, error) {
	if len(at.steps) == 0 {
		return normalizeValue(value, at.group, normal)
	}
	inner := place{steps: at.steps[1:], group: at.group}
	switch value := value.(type) {
	case map[string]any:
		return normalizeFields(value, at.steps[0], inner, normal)
	case []any:
		if !at.steps[0].each {
			return value, nil
		}
		out := slices.Clone(value)
		for i, element := range value {
			var err error
			if out[i], err = normalize(element, inner, normal); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return value, nil
	}
}

func normalizeFields(object map[string]any, at step, inner place, normal *expression.Program) (any, error) {
	out := make(map[string]any, len(object))
	for key, value := range object {
		if !at.each && key != at.key {
			out[key] = value
			continue
		}
		var err error
		if out[key], err = normalize(value, inner, normal); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// normalizeValue returns the normal form of a value. If the value is a group, the normal form takes the place of its
// first field.
func normalizeValue(value any, group []string, normal *expression.Program) (any, error) {
	object, isObject := value.(map[string]any)
	switch {
	case group == nil:
		return normalForm(value, normal)
	case !isObject:
		return value, nil
	}
	rest, members := map[string]any{}, map[string]any{}
	for key, v := range object {
		if slices.Contains(group, key) {
			members[key] = v
			continue
		}
		rest[key] = v
	}
	if len(members) == 0 {
		return value, nil
	}
	form, err := normalForm(members, normal)
	if err != nil || jsonText(form) == jsonText(members) {
		return value, err
	}
	rest[group[0]] = form
	return rest, nil
}

func normalForm(value any, normal *expression.Program) (any, error) {
	if value == nil {
		return nil, nil //nolint:nilnil // Null stays null.
	}
	text, err := stdjson.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding the value: %w", err)
	}
	out, err := normal.Convert(nil, text)
	if err != nil {
		return value, nil //nolint:nilerr // A value without a normal form is equivalent only to itself.
	}
	var form any
	if err := json.Unmarshal(out, &form); err != nil {
		return nil, fmt.Errorf("decoding the normal form: %w", err)
	}
	return form, nil
}
