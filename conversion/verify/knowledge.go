package verify

import "refract.dev/conversion/structural"

// knowledge is information that the author of a conversion has given: objects with the same meaning, and values that
// may get lost. Without this information, only equal objects mean the same.
type knowledge struct {
	of Knowledge // May be nil.
}

// ruleAt returns the rule for a path of a version; "" if there is none.
func (k knowledge) ruleAt(version, other *structural.Version, path string) string {
	if k.of == nil || path == "" {
		return ""
	}
	return k.of.RuleAt(version.Name(), other.Name(), firstOf(path))
}

// comparison has the conditions of a comparison of two objects of a version.
type comparison struct {
	version *structural.Version
	// toward are the versions to which the objects were converted.
	toward []*structural.Version
	// loses are the places at which the objects may differ.
	loses [][]string
	// via is the object that the other version had.
	via     between
	lenient bool
}

// over returns the comparison for objects of version that were converted to other. d is the result of that conversion.
func over(version, other *structural.Version, d *document) comparison {
	return comparison{version: version, toward: []*structural.Version{other}, via: inside(other, d)}
}

// compare returns the first difference between two objects; nil if there is none. It ignores defaults: want must
// already have them. It also ignores differences without a meaning for a conversion to one of the versions in c.toward.
func (k knowledge) compare(want, got map[string]any, c comparison) *difference {
	want, got = bare(want), bare(got)
	d := differ{lenient: c.lenient}
	if len(c.loses) == 0 && d.first("", want, got, c.via) == nil {
		return nil
	}
	decoded, err := decode(c.version, got)
	if err != nil {
		return &difference{want: none, got: none, unreadable: err.Error()}
	}
	a, b := any(want), any(decoded)
	d.hollow = len(c.loses) > 0
	for _, place := range c.loses {
		a, _ = without(a, place)
		b, _ = without(b, place)
	}
	want, _ = a.(map[string]any)
	got, _ = b.(map[string]any)
	found := d.first("", want, got, c.via)
	for _, other := range c.toward {
		if found == nil {
			return nil
		}
		x, y, ok := k.normalized(c.version, other, want, got)
		if !ok {
			continue
		}
		found = d.first("", x, y, c.via)
	}
	return found
}

// normalized returns the normal forms of two objects. It returns false if one of them has none.
func (k knowledge) normalized(version, other *structural.Version, a, b map[string]any) (x, y map[string]any, ok bool) {
	if k.of == nil {
		return nil, nil, false
	}
	x, err := k.of.Normalize(version.Name(), other.Name(), a)
	if err != nil {
		return nil, nil, false
	}
	y, err = k.of.Normalize(version.Name(), other.Name(), b)
	return x, y, err == nil
}

// mayLose returns the places whose values may get lost without an annotation.
func (k knowledge) mayLose(version, other *structural.Version) [][]string {
	if k.of == nil {
		return nil
	}
	var out [][]string
	for _, place := range k.of.MayLose(version.Name(), other.Name()) {
		out = append(out, parsePlace(place)...)
	}
	return out
}

// pair returns the normal forms of two values that are whole objects.
func (k knowledge) pair(version, other *structural.Version, a, b any) (x, y any, ok bool) {
	before, _ := a.(map[string]any)
	after, _ := b.(map[string]any)
	x, y, ok = k.normalized(version, other, before, after)
	return x, y, ok
}
