package policy

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// claim is a key on the path to a place of an entry. The claims form a tree.
type claim struct {
	// by is the path of the entry with this place; empty if no entry has it.
	by   string
	keys map[string]*claim
}

// add adds the place of an entry. If another entry has the same place, or one place is inside the other, add returns
// the path of the other entry.
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

// first returns the path of an entry with this place or a place inside it.
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

// key returns the claim for a key; nil if no entry has this key or a place inside it.
func (c *claim) key(key string) *claim {
	if c == nil {
		return nil
	}
	return c.keys[key]
}

// exact reports whether an entry has exactly this place.
func (c *claim) exact() bool { return c != nil && c.by != "" }

// names returns the keys that are places of entries or contain such places, in any order.
func (c *claim) names() []string {
	if c == nil {
		return nil
	}
	return slices.Collect(maps.Keys(c.keys))
}

// coverage finds the values that a policy forgets: no entry converts them, and they do not pass. A value passes if it
// stays unchanged, because both versions have it at the same place and with the same type. Each forgotten value is an
// error, because it would get lost silently.
type coverage struct {
	versionPair

	// lone are the places that only one side has, and that need an entry of their own. There is also an error for each
	// of them.
	lone []lone
}

// scope finds the forgotten values in an object, or in each element of a list or table.
func (c *coverage) scope(of *scope) {
	v := values{path: c.path, claims: of.claims}
	for sd := range v.schemas {
		v.schemas[sd] = c.within(of, side(sd))
		if of.at[sd].steps != nil {
			v.at[sd] = of.at[sd].elements()
		}
	}
	c.compare(v)
	for _, inner := range of.inner {
		c.scope(inner)
	}
}

// move finds the parts of a moved value that the other place does not accept unchanged.
func (c *coverage) move(e *entry) {
	c.compare(values{path: e.path, at: e.at, schemas: e.schemas, within: e})
	if e.at[onSpoke].group != nil || e.at[onHub].group != nil {
		return // compare has compared the fields of the group.
	}
	for _, sd := range []side{onSpoke, onHub} {
		if c.requiredAt(sd, e.at[sd]) && !c.requiredAt(sd.other(), e.at[sd.other()]) {
			c.requiredByOne(e.path, e.at, sd)
		}
	}
}

// values are the schemas of a value of the spoke and the corresponding value of the hub. The schema of a side is nil if
// the side does not have the value, or if an entry has its place.
type values struct {
	path    string // For findings.
	at      [2]place
	schemas [2]*schema.Structural
	claims  [2]*claim
	// taken is true for a side if an entry has the place of its value.
	taken [2]bool
	// within is the entry that converts these values or a value that contains them; nil if there is none.
	within *entry
	// opened is true for a side that keeps fields that are not in its schema.
	opened [2]bool
}

// compare finds the parts of two values that do not pass. If an entry has the place of the value on one side only, the
// value of the other side at the same place counts as one-sided.
func (c *coverage) compare(v values) {
	for sd := range v.schemas {
		if v.claims[sd].exact() {
			v.schemas[sd], v.taken[sd] = nil, true
		}
	}
	spokeSchema, hubSchema := v.schemas[onSpoke], v.schemas[onHub]
	if spokeSchema != nil && hubSchema != nil {
		c.compareNull(v)
	}
	switch {
	case spokeSchema == nil && hubSchema == nil:
	case hubSchema == nil:
		c.alone(v, onSpoke)
	case spokeSchema == nil:
		c.alone(v, onHub)
	case kindOf(spokeSchema) != kindOf(hubSchema):
		c.mismatch(v)
	case kindOf(hubSchema) == isObject:
		c.compareObjects(v)
	case kindOf(hubSchema) == isList:
		c.compare(v.elements())
	default:
		c.compareEnums(v)
	}
}

// compareNull finds nulls that one side keeps and the other side drops.
func (c *coverage) compareNull(v values) {
	for sd, own := range v.schemas {
		if other := v.schemas[side(sd).other()]; own.Nullable && !other.Nullable && kindOf(other) != isAnything {
			c.warnf(v.path, warnNull, "%s may be null in %s, and %s of %s may not: there the API server drops it",
				v.at[sd], c.versions[sd], v.at[side(sd).other()], c.versions[side(sd).other()])
		}
	}
}

// alone checks a value that only one side has. If entries have places inside the value, its parts are checked one by
// one, because their counterparts may be elsewhere. If the other side keeps unknown fields, the value passes without a
// schema.
func (c *coverage) alone(v values, sd side) {
	if v.opened[sd.other()] && !v.taken[sd.other()] {
		return
	}
	own := v.schemas[sd]
	if len(v.claims[sd].names()) == 0 {
		c.uncovered(v, sd)
		return
	}
	for _, key := range keysOf(own, v.claims[sd]) {
		c.compare(v.field(key))
	}
	if rest := restOf(own); rest != "" {
		c.errorf(v.path, ruleCoverage, "%s of %s keeps %s, which %s does not: use toHub and toSpoke for the whole",
			v.at[sd], c.versions[sd], rest, c.versions[sd.other()])
	}
}

// restOf describes the fields that an object keeps although they are not in its schema.
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

// uncovered reports a value that only one side has and that no entry has as its place. The message contains the missing
// entry, because usually a single entry is enough.
func (c *coverage) uncovered(v values, sd side) {
	own, other := c.versions[sd], c.versions[sd.other()]
	v.schemas[sd.other()] = nil
	at, what := v.at[sd], described(v.schemas[sd])
	lack := other + " does not"
	if v.taken[sd.other()] {
		lack = fmt.Sprintf("%s of %s is the counterpart of another value", v.at[sd.other()], other)
	}
	advice := v.instead()
	if advice == "" {
		c.lone = append(c.lone, lone{side: sd, at: at})
	}
	switch {
	case advice != "":
	case sd == onHub:
		advice = fmt.Sprintf("add {hub: %s, added: {}} or name its counterpart", quotedPlace(at))
	default:
		advice = fmt.Sprintf("add {spoke: %s, removed: {}} or name its counterpart", quotedPlace(at))
	}
	c.errorf(v.path, ruleCoverage, "%s has %s (%s), %s: %s", own, at, what, lack, advice)
}

// instead returns the advice for a part of a value that an entry converts; "" for other values.
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

// add returns the advice to convert the values with an operation.
func (v values) add(operation string) string {
	if advice := v.instead(); advice != "" {
		return advice
	}
	if v.within != nil {
		return "add " + operation
	}
	return fmt.Sprintf("add {hub: %s, spoke: %s, %s}", quotedPlace(v.at[onHub]), quotedPlace(v.at[onSpoke]), operation)
}

// named returns a place for use in a sentence.
func named(p place) string {
	if len(p.steps) == 0 {
		return "the object"
	}
	return p.String()
}

// quotedPlace returns a place as YAML.
func quotedPlace(p place) string {
	text := p.String()
	if slices.ContainsFunc(p.steps, func(s step) bool { return s.each || plainKey.FindString(s.key) != s.key }) {
		return "'" + text + "'"
	}
	return text
}

// compareObjects compares the fields of two objects, or the values of two tables. At the root it skips apiVersion, kind
// and metadata, because the engine converts them. It also reports fields outside the schema that one side keeps and the
// other side drops.
func (c *coverage) compareObjects(v values) {
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
		c.compareRequired(v, inner, key)
		c.compare(inner)
	}
	spokeValues, hubValues := valuesOf(v.schemas[onSpoke]), valuesOf(v.schemas[onHub])
	if spokeValues != nil && hubValues != nil {
		c.compare(v.elements())
		return
	}
	for sd, own := range v.schemas {
		other := v.schemas[side(sd).other()]
		if rest := restOf(own); rest != "" && !open(other) {
			c.errorf(v.path, ruleCoverage, "%s of %s keeps %s, and %s of %s does not: %s",
				named(v.at[sd]), c.versions[sd], rest, named(v.at[side(sd).other()]), c.versions[side(sd).other()],
				v.add("toHub: ..., toSpoke: ..."))
		}
		if own.XEmbeddedResource && !other.XEmbeddedResource {
			c.embedded(v, side(sd))
		}
	}
}

// embedded checks an object that is an embedded resource on one side only. That side validates it as a resource, and
// adds fields that the other side may drop.
func (c *coverage) embedded(v values, sd side) {
	other := sd.other()
	if open(v.schemas[other]) {
		c.warnf(v.path, warnRequired, "%s of %s is an embedded resource, and %s of %s is none: "+
			"an object without apiVersion, kind and metadata there is not valid in %s",
			v.at[sd], c.versions[sd], v.at[other], c.versions[other], c.versions[sd])
		return
	}
	c.errorf(v.path, ruleType, "%s of %s is an embedded resource, and %s of %s is none: %s",
		v.at[sd], c.versions[sd], v.at[other], c.versions[other], v.add("toHub: ..., toSpoke: ..."))
}

// compareRequired finds fields that only one side requires.
func (c *coverage) compareRequired(v, inner values, key string) {
	for sd, own := range v.schemas {
		other := side(sd).other()
		if inner.claims[sd] != nil || inner.claims[other] != nil || inner.schemas[sd] == nil || inner.schemas[other] == nil {
			continue
		}
		if requires(own, key) && !requires(v.schemas[other], key) && inner.schemas[sd].Default.Object == nil {
			c.requiredByOne(v.path, inner.at, side(sd))
		}
	}
}

// requiredByOne warns about a value that passes and that only one side requires. An object without the value is valid
// in one version and invalid in the other.
func (c *coverage) requiredByOne(path string, at [2]place, sd side) {
	other := sd.other()
	c.warnf(path, warnRequired, "%s requires %s, and %s does not require %s: an object without it is not valid in %s",
		c.versions[sd], at[sd], c.versions[other], at[other], c.versions[sd])
}

// keysOf returns the fields in a schema, and the fields in the places of entries.
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
			// The object of the other side is checked alone. No entry has a place in this side's object.
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

// mismatch reports values of different types. The message contains an operation that converts between them.
func (c *coverage) mismatch(v values) {
	c.errorf(v.path, ruleType, "%s: %s", c.kinds(v.at, v.schemas), v.add(remedy(v.schemas[onSpoke], v.schemas[onHub])))
}

// remedy returns the operation that converts between the types of two schemas.
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

// compareEnums finds values that only one side allows. If both sides have an enum, such a value is an error. If one
// side allows any value, there is only a warning, because users may never write such values.
func (c *coverage) compareEnums(v values) {
	for sd, own := range v.schemas {
		other := v.schemas[side(sd).other()]
		allowed := scalarKeys(enumOf(other))
		if len(allowed) == 0 {
			continue
		}
		if domainOf(own) == nil {
			c.warnf(v.path, warnValues,
				"%s may be any %s in %s, and %s of %s only %s: an object with another one is not valid there",
				v.at[sd], kindOf(own), c.versions[sd], v.at[side(sd).other()], c.versions[side(sd).other()],
				jsonText(enumOf(other)))
		}
		for _, value := range enumOf(own) {
			if !slices.Contains(allowed, keyOfValue(value)) {
				c.errorf(v.path, ruleEnum, "%s may be %s in %s, and %s of %s may not: %s",
					v.at[sd], jsonText(value), c.versions[sd], v.at[side(sd).other()], c.versions[side(sd).other()],
					v.add("map: [...]"))
			}
		}
	}
}
