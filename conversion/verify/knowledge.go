package verify

import "refract.dev/conversion/structural"

// knowledge is the information from the author of a conversion: the objects that mean the same, and the values that may
// get lost. Without information, only equal objects mean the same.
type knowledge struct {
	of Knowledge // May be nil.
}

// ruleAt returns the rule for a path of a version, or "".
func (k knowledge) ruleAt(version, other *structural.Version, path string) string {
	if k.of == nil || path == "" {
		return ""
	}
	return k.of.RuleAt(version.Name(), other.Name(), firstOf(path))
}

// comparison defines how two objects of a version are compared.
type comparison struct {
	version *structural.Version
	// toward are the other versions that the objects were converted to.
	toward []*structural.Version
	// loses are the places where they may differ.
	loses [][]string
	// via is the object in the other version.
	via     between
	lenient bool
}

// over returns the comparison for objects of a version that were converted to another version, where d is the result.
func over(version, other *structural.Version, d *document) comparison {
	return comparison{version: version, toward: []*structural.Version{other}, via: inside(other, d)}
}

// compare returns the first difference between two objects. It ignores defaults, and differences that do not matter for
// one of the other versions. The defaults of want are filled in.
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

// normalized returns the normal forms of two objects, if both have one.
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

// mayLose returns the places of values that may get lost without an annotation.
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

// pair returns the normal forms of two values that are objects.
func (k knowledge) pair(version, other *structural.Version, a, b any) (x, y any, ok bool) {
	before, _ := a.(map[string]any)
	after, _ := b.(map[string]any)
	x, y, ok = k.normalized(version, other, before, after)
	return x, y, ok
}
