package policy

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// claim is a key on the way to the places that entries name.
type claim struct {
	// by is the path of the entry that names this place; empty if none does.
	by   string
	keys map[string]*claim
}

// add claims a place. If it is another entry's, or one is inside the other, add returns the
// path of that.
func (c *claim) add(p place, by string) (other string) {
	at := c
	for _, s := range p.steps {
		if at.by != "" {
			return at.by
		}
		if at.keys == nil {
			at.keys = map[string]*claim{}
		}
		if at.keys[s.key] == nil {
			at.keys[s.key] = &claim{}
		}
		at = at.keys[s.key]
	}
	if other := at.first(); other != "" {
		return other
	}
	at.by = by
	return ""
}

// first returns the path of an entry that names this place, or one inside it.
func (c *claim) first() string {
	if c.by != "" {
		return c.by
	}
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if by := c.keys[key].first(); by != "" {
			return by
		}
	}
	return ""
}

func (c *claim) key(key string) *claim {
	if c == nil {
		return nil
	}
	return c.keys[key]
}

func (c *claim) exact() bool { return c != nil && c.by != "" }

func (c *claim) names() []string {
	if c == nil {
		return nil
	}
	return slices.Collect(maps.Keys(c.keys))
}

// coverScope finds what no entry of a scope names, and does not pass.
func (s *spoke) coverScope(c *scope) {
	pair := values{path: s.path, claims: c.claims, at: [2]place{}}
	for sd := range pair.schemas {
		pair.schemas[sd] = s.within(c, side(sd))
		if c.at[sd].steps != nil {
			pair.at[sd] = c.at[sd].elements()
		}
	}
	s.compare(pair)
	for _, inner := range c.inner {
		s.coverScope(inner)
	}
}

// values are the schemas of values that are each other's counterparts. A side that has
// none, or whose value an entry names, has no schema.
type values struct {
	path    string // Of findings.
	at      [2]place
	schemas [2]*schema.Structural
	claims  [2]*claim
	// taken says that the side has a value there, which an entry names.
	taken [2]bool
	// within is the entry that converts what contains these values, or these; nil if they
	// would pass.
	within *entry
	// opened says that the side keeps fields that its schema does not name.
	opened [2]bool
}

// compare finds what of two values that are each other's counterparts does not pass.
func (s *spoke) compare(v values) {
	for sd := range v.schemas {
		if v.claims[sd].exact() {
			v.schemas[sd], v.taken[sd] = nil, true
		}
	}
	spokeSchema, hubSchema := v.schemas[onSpoke], v.schemas[onHub]
	if spokeSchema != nil && hubSchema != nil {
		s.compareNull(v)
	}
	switch {
	case spokeSchema == nil && hubSchema == nil:
	case hubSchema == nil:
		s.alone(v, onSpoke)
	case spokeSchema == nil:
		s.alone(v, onHub)
	case kindOf(spokeSchema) != kindOf(hubSchema):
		s.mismatch(v)
	case kindOf(hubSchema) == isObject:
		s.compareObjects(v)
	case kindOf(hubSchema) == isList:
		s.compare(v.elements())
	default:
		s.compareEnums(v)
	}
}

// compareNull finds nulls that only one side keeps.
func (s *spoke) compareNull(v values) {
	for sd, own := range v.schemas {
		if other := v.schemas[side(sd).other()]; own.Nullable && !other.Nullable && kindOf(other) != isAnything {
			s.warnf(v.path, warnNull, "%s may be null in %s, and %s of %s may not: there the API server drops it",
				v.at[sd], s.versions[sd], v.at[side(sd).other()], s.versions[side(sd).other()])
		}
	}
}

// alone judges a value that the other side does not have.
func (s *spoke) alone(v values, sd side) {
	if v.opened[sd.other()] && !v.taken[sd.other()] {
		return
	}
	own := v.schemas[sd]
	if len(v.claims[sd].names()) == 0 {
		s.uncovered(v, sd)
		return
	}
	for _, key := range keysOf(own, v.claims[sd]) {
		s.compare(v.field(key))
	}
	if rest := restOf(own); rest != "" {
		s.errorf(v.path, ruleCoverage, "%s of %s keeps %s, which %s does not: use toHub and toSpoke for the whole",
			v.at[sd], s.versions[sd], rest, s.versions[sd.other()])
	}
}

// restOf names what an object keeps beside the fields that its schema names.
func restOf(s *schema.Structural) string {
	switch {
	case open(s):
		return "fields that its schema does not name"
	case s.AdditionalProperties != nil:
		return "fields of any name"
	default:
		return ""
	}
}

func (s *spoke) uncovered(v values, sd side) {
	own, other := s.versions[sd], s.versions[sd.other()]
	v.schemas[sd.other()] = nil
	at, what := v.at[sd], described(v.schemas[sd])
	lack := other + " does not"
	if v.taken[sd.other()] {
		lack = fmt.Sprintf("%s of %s is the counterpart of another value", v.at[sd.other()], other)
	}
	advice := v.instead()
	if advice == "" {
		s.lone = append(s.lone, lone{side: sd, at: at})
	}
	switch {
	case advice != "":
	case sd == onHub:
		advice = fmt.Sprintf("add {hub: %s, added: {}} or say where it comes from", quotedPlace(at))
	default:
		advice = fmt.Sprintf("add {spoke: %s, removed: {}} or say where it goes", quotedPlace(at))
	}
	s.errorf(v.path, ruleCoverage, "%s has %s (%s), %s: %s", own, at, what, lack, advice)
}

// instead says what is to be done about a value that is a part of what an entry converts;
// "" if it is none.
func (v values) instead() string {
	switch e := v.within; {
	case e == nil, e.plain && e.at[onSpoke].String() == v.at[onSpoke].String() && e.at[onHub].String() == v.at[onHub].String():
		return ""
	case e.plain:
		return "name the parts in entries of their own, instead of what contains them"
	default:
		return "use toHub and toSpoke for the whole"
	}
}

// add says how values of one side become those of the other.
func (v values) add(operation string) string {
	if advice := v.instead(); advice != "" {
		return advice
	}
	if v.within != nil {
		return "add " + operation
	}
	return fmt.Sprintf("add {hub: %s, spoke: %s, %s}", quotedPlace(v.at[onHub]), quotedPlace(v.at[onSpoke]), operation)
}

// named returns a place as it stands in a sentence.
func named(p place) string {
	if len(p.steps) == 0 {
		return "the object"
	}
	return p.String()
}

// quotedPlace returns a place as it is written in YAML.
func quotedPlace(p place) string {
	text := p.String()
	if slices.ContainsFunc(p.steps, func(s step) bool { return s.each || plainKey.FindString(s.key) != s.key }) {
		return "'" + text + "'"
	}
	return text
}

// compareObjects compares the fields of two objects, or the values of two tables.
func (s *spoke) compareObjects(v values) {
	names := map[string]bool{}
	for sd, own := range v.schemas {
		for _, key := range keysOf(own, v.claims[sd]) {
			names[key] = true
		}
	}
	root := v.at[onHub].steps == nil
	for _, key := range slices.Sorted(maps.Keys(names)) {
		if root && (key == "apiVersion" || key == "kind" || key == "metadata") {
			continue
		}
		inner := v.field(key)
		s.compareRequired(v, inner, key)
		s.compare(inner)
	}
	spokeValues, hubValues := valuesOf(v.schemas[onSpoke]), valuesOf(v.schemas[onHub])
	if spokeValues != nil && hubValues != nil {
		s.compare(v.elements())
		return
	}
	for sd, own := range v.schemas {
		other := v.schemas[side(sd).other()]
		if rest := restOf(own); rest != "" && !open(other) {
			s.errorf(v.path, ruleCoverage, "%s of %s keeps %s, and %s of %s does not: %s",
				named(v.at[sd]), s.versions[sd], rest, named(v.at[side(sd).other()]), s.versions[side(sd).other()], v.add("toHub: ..., toSpoke: ..."))
		}
		if own.XEmbeddedResource && !other.XEmbeddedResource {
			s.embedded(v, side(sd))
		}
	}
}

// embedded judges a resource that is embedded on one side only.
func (s *spoke) embedded(v values, sd side) {
	other := sd.other()
	if open(v.schemas[other]) {
		s.warnf(v.path, warnRequired, "%s of %s is an embedded resource, and %s of %s is none: "+
			"an object without apiVersion, kind and metadata there is not valid in %s",
			v.at[sd], s.versions[sd], v.at[other], s.versions[other], s.versions[sd])
		return
	}
	s.errorf(v.path, ruleType, "%s of %s is an embedded resource, and %s of %s is none: %s",
		v.at[sd], s.versions[sd], v.at[other], s.versions[other], v.add("toHub: ..., toSpoke: ..."))
}

// compareRequired finds fields that only one side requires.
func (s *spoke) compareRequired(v, inner values, key string) {
	for sd, own := range v.schemas {
		other := side(sd).other()
		if inner.claims[sd] != nil || inner.claims[other] != nil || inner.schemas[sd] == nil || inner.schemas[other] == nil {
			continue
		}
		if requires(own, key) && !requires(v.schemas[other], key) && inner.schemas[sd].Default.Object == nil {
			s.requiredByOne(v.path, inner.at, side(sd))
		}
	}
}

func (s *spoke) requiredByOne(path string, at [2]place, sd side) {
	other := sd.other()
	s.warnf(path, warnRequired, "%s requires %s, and %s does not require %s: an object without it is not valid in %s",
		s.versions[sd], at[sd], s.versions[other], at[other], s.versions[sd])
}

// requiredAt reports whether the schema of a side requires what is at a place, so that
// somebody must write it.
func (s *spoke) requiredAt(sd side, at place) bool {
	last := at.steps[len(at.steps)-1]
	parent, err := find(s.schemas[sd], place{steps: at.steps[:len(at.steps)-1]})
	return err == nil && !last.each && requires(parent, last.key) && fieldOf(parent, last.key).Default.Object == nil
}

// keysOf returns the fields that a schema or an entry names.
func keysOf(s *schema.Structural, c *claim) []string {
	return append(slices.Collect(maps.Keys(s.Properties)), c.names()...)
}

// field returns the values of a field of both objects.
func (v values) field(key string) values {
	inner := values{path: v.path, within: v.within}
	for sd, own := range v.schemas {
		inner.at[sd] = v.at[sd].member(key)
		inner.claims[sd] = v.claims[sd].key(key)
		if own == nil {
			// The other's fields are judged alone, and this side takes none of them.
			inner.taken[sd] = false
			continue
		}
		inner.opened[sd] = open(own)
		if _, named := own.Properties[key]; named || !open(own) || inner.claims[sd] != nil {
			inner.schemas[sd] = fieldOf(own, key)
		}
	}
	return inner
}

// elements returns the elements of both lists, or the values of both tables.
func (v values) elements() values {
	inner := values{path: v.path, within: v.within}
	for sd, own := range v.schemas {
		inner.at[sd] = v.at[sd].elements()
		inner.schemas[sd] = elementOf(own)
	}
	return inner
}

func (s *spoke) mismatch(v values) {
	a, b := v.schemas[onSpoke], v.schemas[onHub]
	s.errorf(v.path, ruleType, "%s is %s in %s, and %s is %s in %s: %s",
		v.at[onSpoke], article(described(a)), s.versions[onSpoke], v.at[onHub], article(described(b)), s.versions[onHub], v.add(remedy(a, b)))
}

// remedy says what makes values of one kind those of another.
func remedy(a, b *schema.Structural) string {
	k, l := kindOf(a), kindOf(b)
	isTable := func(s *schema.Structural) bool { return kindOf(s) == isObject && valuesOf(s) != nil }
	isWrapped := func(list, value *schema.Structural) bool {
		return list.Items != nil && kindOf(list.Items) == kindOf(value)
	}
	switch {
	case k == isBoolean && l == isText, l == isBoolean && k == isText:
		return "map: [{hub: ..., spoke: ...}]"
	case caster(k, l) != nil:
		return "cast: {}"
	case k == isList && isTable(b), l == isList && isTable(a):
		return "keyed: {key: ...}"
	case k == isList && isWrapped(a, b), l == isList && isWrapped(b, a):
		return "wrap: {}"
	default:
		return "toHub: ..., toSpoke: ..."
	}
}

// compareEnums finds values that only one side allows.
func (s *spoke) compareEnums(v values) {
	for sd, own := range v.schemas {
		other := v.schemas[side(sd).other()]
		allowed := scalarKeys(enumOf(other))
		if len(allowed) == 0 {
			continue
		}
		if domainOf(own) == nil {
			s.warnf(v.path, warnValues, "%s may be any %s in %s, and %s of %s only %s: an object with another one is not valid there",
				v.at[sd], kindOf(own), s.versions[sd], v.at[side(sd).other()], s.versions[side(sd).other()], jsonText(enumOf(other)))
		}
		for _, value := range enumOf(own) {
			if !slices.Contains(allowed, keyOfValue(value)) {
				s.errorf(v.path, ruleEnum, "%s may be %s in %s, and %s of %s may not: %s",
					v.at[sd], jsonText(value), s.versions[sd], v.at[side(sd).other()], s.versions[side(sd).other()], v.add("map: [...]"))
			}
		}
	}
}
