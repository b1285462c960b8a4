package policy

import (
	stdjson "encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/expression"
)

// leg is one step of the conversion from one version to another: between a spoke and the hub.
type leg struct {
	spoke *spoke
	from  side
}

// legs returns the steps of the conversion from one version to another, nil if there are no steps or a version is
// unknown.
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

// placed is an entry with the place of its value in the version of the query.
type placed struct {
	entry *entry
	side  side
	at    place
}

// entries returns the entries for the conversion from version to other that have a value in version, with the place in
// version. Between two spokes, the entries of the second step have places of the hub. These places are translated to
// the places in version.
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

// hubValue is a single value of an entry in the hub.
type hubValue struct {
	entry  *entry
	member int // Index in the group of the entry.
}

// index maps places of the hub to entries.
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

// fromHub returns the place in the spoke for a place of the hub, and reports whether the spoke has such a value. A part
// of a value that an entry converts has the place of that value.
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

// fromHub returns the place in the spoke for a place of the hub inside moved lists or tables.
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

// begins reports whether a place is p or inside p.
func (p place) begins(at place) bool {
	return len(at.steps) >= len(p.steps) && slices.Equal(p.steps, at.steps[:len(p.steps)])
}

// MayLose returns the places, in version, of values that the conversion to other may lose without an annotation, as for
// partial objects: values that are added or removed; values of lossy pairs and of maps with several values for one;
// values of scale, cast, keyed and wrap unless every value comes back. The places are sorted, with [*] for elements.
// The caller owns the slice.
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

// RuleAt returns the path in the policy of the entry for the value at path, such as spec.spokes[0].fields[2]. Path is a
// path in an object of version, for conversions from or to other. The entry is the one with the longest place that is
// path or contains it, or else the only one with a place inside path. RuleAt returns "" if there is no such entry, as
// for a value that passes, or several, as for the whole object. Elements in path may have an index or be [*].
func (p *Policy) RuleAt(version, other, path string) string {
	at, err := parsePath(path)
	if err != nil {
		return ""
	}
	around, longest := "", -1
	var inside []string
	seen := map[string]bool{} // Places inside: both legs may have an entry for the same place.
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
// It uses the equivalences for the conversion from version to other. If the expression of an equivalence fails, the
// value stays unchanged. The result is only for comparisons and usually invalid. It may share parts with obj, which is
// not modified.
//
// The error is about a value of obj that cannot be encoded as JSON.
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

// normalizeValue returns the normal form of a value. The normal form of a group replaces its first field.
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
		return value, nil //nolint:nilerr // Nothing else is known to mean the same.
	}
	var form any
	if err := json.Unmarshal(out, &form); err != nil {
		return nil, fmt.Errorf("decoding the normal form: %w", err)
	}
	return form, nil
}
