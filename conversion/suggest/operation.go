package suggest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// operation returns an entry that converts between values of different shapes. It returns false if the schemas do not
// suggest one.
func (d *differences) operation(hub, spoke *oneSided) (entry, bool) {
	for _, try := range []func(hub, spoke *oneSided) (entry, bool){lasting, only} {
		if e, ok := try(hub, spoke); ok {
			return e, true
		}
	}
	at, from := kindOf(hub.value), kindOf(spoke.value)
	for _, try := range []func(hub, spoke *schema.Structural, at, from kind) (entry, bool){
		d.mapped, d.narrowed, cast, intOrString, keyed, wrapped, d.listed, d.boxed,
	} {
		if e, ok := try(hub.value, spoke.value, at, from); ok {
			e.Hub, e.Spoke = hub.place, spoke.place
			return e, true
		}
	}
	return entry{}, false
}

// The function only returns an entry for a value that is the only member of an object in the other version. The value
// and the object must have different places: otherwise one place would be inside the other.
func only(hub, spoke *oneSided) (entry, bool) {
	if hub.place == spoke.place {
		return entry{}, false
	}
	if name := hub.holds(spoke); name != "" {
		return moved(below(hub.place, name), spoke.place), true
	}
	if name := spoke.holds(hub); name != "" {
		return moved(hub.place, below(spoke.place, name)), true
	}
	return entry{}, false
}

// holds returns the name of the only member of an object, if that member may be the scalar value. Otherwise it returns
// "". An optional member cannot be a required scalar.
func (o *oneSided) holds(value *oneSided) string {
	if kindOf(o.value) != object || keepsAll(o.value) || o.value.XEmbeddedResource || !kindOf(value.value).scalar() {
		return ""
	}
	name := onlyOf(o.value, value.value)
	if value.required && !requires(o.value, name) {
		return ""
	}
	return name
}

// mapped returns an entry for two enums, or for a boolean and an enum.
func (d *differences) mapped(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	ours, theirs := enumOf(hub), enumOf(spoke)
	switch {
	case at == boolean && theirs != nil:
		ours = []any{true, false}
	case from == boolean && ours != nil:
		theirs = []any{true, false}
	case at != from, ours == nil, theirs == nil, !at.scalar():
		return entry{}, false
	}
	var e entry
	var left []any // Values of the spoke without a pair.
	taken := map[any]bool{}
	for _, value := range theirs {
		i := slices.IndexFunc(ours, func(v any) bool { return v == value || !taken[v] && meansSame(v, value) })
		if i < 0 {
			left = append(left, value)
			continue
		}
		taken[ours[i]] = true
		e.Map = append(e.Map, pairOf(ours[i], value))
	}
	for _, value := range left {
		// If all values have a pair, this is the first value.
		i := max(0, slices.IndexFunc(ours, func(v any) bool { return !taken[v] && !slices.Contains(theirs, v) }))
		taken[ours[i]] = true
		e.Map = append(e.Map, pairOf(ours[i], value))
		e.notes = append(e.notes, guess(value, d.spokeVersion, ours[i], d.hubVersion))
	}
	for _, value := range ours {
		if !taken[value] {
			e.Map = append(e.Map, pairOf(value, theirs[0]))
			e.notes = append(e.notes, guess(value, d.hubVersion, theirs[0], d.spokeVersion))
		}
	}
	return e, true
}

// guess returns the note about two values that may correspond to each other.
func guess(value any, from string, other any, to string) string {
	return fmt.Sprintf("decide what %s of %s is in %s: %s is a guess", show(value), from, to, show(other))
}

// narrowed returns an entry for an enum whose counterpart allows any value.
func (d *differences) narrowed(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	ours, theirs := enumOf(hub), enumOf(spoke)
	if at != from || !at.scalar() || (ours == nil) == (theirs == nil) {
		return entry{}, false
	}
	known, strict := ours, d.hubVersion
	if known == nil {
		known, strict = theirs, d.spokeVersion
	}
	all := show(known)
	narrow := fmt.Sprintf("value in %s ? value : %s", all, show(known[0]))
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{ToHub: "value", ToSpoke: narrow, Lossy: true}}
	if ours != nil {
		e.ToHub, e.ToSpoke = narrow, "value"
	}
	e.notes = []string{fmt.Sprintf("decide on a replacement for values unknown to %s: it has %s, and %s is a guess. The value itself is kept",
		strict, all, show(known[0]))}
	return e, true
}

// meansSame reports whether two enum values seem to have the same meaning.
func meansSame(a, b any) bool {
	if yes, ok := a.(bool); ok {
		return saysSo(b, yes)
	}
	if yes, ok := b.(bool); ok {
		return saysSo(a, yes)
	}
	first, isText := a.(string)
	second, too := b.(string)
	return isText && too && strings.Join(words(first), "") == strings.Join(words(second), "")
}

// saysSo reports whether an enum value is a word for true or, if yes is false, for false.
func saysSo(value any, yes bool) bool {
	word, _ := value.(string)
	word = strings.ToLower(word)
	if yes {
		return slices.Contains([]string{"true", "yes", "on", "enabled", "enable", "active", "always", "allow", "allowed"}, word)
	}
	return slices.Contains([]string{"false", "no", "off", "disabled", "disable", "inactive", "never", "deny", "denied", "none"}, word)
}

func pairOf(hub, spoke any) refractv1alpha1.ValuePair {
	return refractv1alpha1.ValuePair{Hub: *jsonOf(hub), Spoke: *jsonOf(spoke)}
}

func show(value any) string { return string(jsonOf(value).Raw) }

// cast returns an entry for a text and a number or boolean, or for a number and an integer.
func cast(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	switch {
	case at == from, !at.scalar(), !from.scalar(), at != text && from != text && (at == boolean || from == boolean):
		return entry{}, false
	case at == text && !mayBe(hub, from), from == text && !mayBe(spoke, at):
		return entry{}, false
	}
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{Cast: &refractv1alpha1.CastConversion{}}}
	if at == text || from == text {
		other := at
		if at == text {
			other = from
		}
		e.notes = []string{fmt.Sprintf("decide on strings that are not of type %s: an object with such a string is not converted, unless you write cast: "+
			"{otherwise: VALUE}; the string is then kept", other)}
	} else {
		e.notes = []string{"decide on numbers that are not integers: an object with such a number is not converted, unless you write cast: {otherwise: " +
			"VALUE}; the number is then kept"}
	}
	return e, true
}

// intOrString returns an entry for a value that is an integer or a text in only one version.
func intOrString(_, _ *schema.Structural, at, from kind) (entry, bool) {
	other, back := from, "toHub"
	if from == either {
		other, back = at, "toSpoke"
	}
	if at == from || at != either && from != either || other != text && other != integer {
		return entry{}, false
	}
	narrow := "string(value)"
	if other == integer {
		narrow = "type(value) == int ? value : 0"
	}
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{Lossy: true, ToHub: "value", ToSpoke: narrow}}
	if back == "toSpoke" {
		e.ToHub, e.ToSpoke = narrow, "value"
	}
	e.notes = []string{"decide on integers or strings that the other version does not accept: they are kept"}
	return e, true
}

// keyed returns an entry for a list of objects and a table, which is an object with arbitrary keys.
func keyed(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	list, values := hub, spoke
	if at == table {
		list, values = spoke, hub
	}
	if at == from || at != array && from != array || at != table && from != table || kindOf(list.Items) != object {
		return entry{}, false
	}
	element, value := list.Items, values.AdditionalProperties.Structural
	key := keyOf(list)
	if key == "" {
		return entry{}, false
	}
	k := &refractv1alpha1.KeyedConversion{Key: key}
	rest := *element
	rest.Properties = maps.Clone(element.Properties)
	delete(rest.Properties, key)
	if !sameFields(&rest, value) {
		if k.Value = onlyOf(&rest, value); k.Value == "" {
			return entry{}, false
		}
	}
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{Keyed: k}}
	if len(list.XListMapKeys) == 0 {
		e.notes = []string{fmt.Sprintf("decide whether %s is the table's key: a guess", key)}
	}
	return e, true
}

// keyOf returns the field that identifies an element of a list; "" if there is none.
func keyOf(list *schema.Structural) string {
	if len(list.XListMapKeys) == 1 {
		return list.XListMapKeys[0]
	}
	if key := nameOf(list.Items); key != "" {
		return key
	}
	for _, name := range []string{"name", "key", "id"} {
		if value, ok := list.Items.Properties[name]; ok && kindOf(&value) == text {
			return name
		}
	}
	return ""
}

// sameFields reports whether two objects have the same members.
func sameFields(a, b *schema.Structural) bool {
	if kindOf(b) != object || len(a.Properties) != len(b.Properties) {
		return false
	}
	for name, value := range a.Properties {
		if other, ok := b.Properties[name]; !ok || !sameShape(&value, &other) {
			return false
		}
	}
	return true
}

// onlyOf returns the name of the only member of an object, if the member has the same shape as value; otherwise "".
func onlyOf(s, value *schema.Structural) string {
	if len(s.Properties) != 1 {
		return ""
	}
	for name, member := range s.Properties {
		if sameShape(&member, value) {
			return name
		}
	}
	return ""
}

// wrapped returns an entry for a value and a list of such values.
func wrapped(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	list, value, other := hub, spoke, "the spoke"
	if from == array {
		list, value, other = spoke, hub, "the hub"
	}
	if (at == array) == (from == array) {
		return entry{}, false
	}
	w := &refractv1alpha1.WrapConversion{}
	if !sameShape(list.Items, value) {
		if kindOf(list.Items) != object {
			return entry{}, false
		}
		if w.Key = onlyOf(list.Items, value); w.Key == "" {
			return entry{}, false
		}
	}
	return entry{
		FieldConversion: refractv1alpha1.FieldConversion{Wrap: w},
		notes:           []string{"decide whether the first element of the list is the single value of " + other + ": the others are kept in the annotation"},
	}, true
}

// listed returns an entry for a list of scalars and a list of objects.
func (d *differences) listed(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	if at != array || from != array {
		return entry{}, false
	}
	box, toBox, toValue := hub.Items, "toHub", spoke.Items
	if kindOf(hub.Items).scalar() {
		box, toBox, toValue = spoke.Items, "toSpoke", hub.Items
	}
	key := mainOf(box, toValue)
	if key == "" {
		return entry{}, false
	}
	wrap := fmt.Sprintf("value.map(v, {%s: v})", strconv.Quote(key))
	unwrap := fmt.Sprintf("value.filter(v, has(v.%s)).map(v, v.%s)", key, key)
	if requires(box, key) {
		unwrap = fmt.Sprintf("value.map(v, v.%s)", key)
	}
	note := fmt.Sprintf("decide on the other fields of the objects in the list: objects made of values get only %s. Other fields are kept", key)
	return pairOfExpressions(toBox, wrap, unwrap, note), true
}

// boxed returns an entry for a scalar and an object with such a member.
func (d *differences) boxed(hub, spoke *schema.Structural, at, from kind) (entry, bool) {
	box, toBox, value := hub, "toHub", spoke
	if at.scalar() {
		box, toBox, value = spoke, "toSpoke", hub
	}
	if at != object && from != object {
		return entry{}, false
	}
	key := mainOf(box, value)
	if key == "" {
		return entry{}, false
	}
	wrap := fmt.Sprintf("{%s: value}", strconv.Quote(key))
	// Even a required member may be absent, for example in the applied fields of one field manager.
	unwrap := fmt.Sprintf("value.?%s.orValue(%s)", key, jsonOf(least(value, 0)).Raw)
	note := fmt.Sprintf("decide whether the value is the object's %s: a guess. Other fields of the object are kept", key)
	return pairOfExpressions(toBox, wrap, unwrap, note), true
}

func pairOfExpressions(toBox, wrap, unwrap, note string) entry {
	e := entry{FieldConversion: refractv1alpha1.FieldConversion{ToHub: wrap, ToSpoke: unwrap, Lossy: true}, notes: []string{note}}
	if toBox == "toSpoke" {
		e.ToHub, e.ToSpoke = unwrap, wrap
	}
	return e
}

// mainOf returns the member of an object that seems to correspond to a scalar. It is the only required member. If no
// member is required, it is the only member of the same kind. Otherwise mainOf returns "".
func mainOf(box, value *schema.Structural) string {
	if kindOf(box) != object || !kindOf(value).scalar() {
		return ""
	}
	var fitting, required []string
	for name, member := range box.Properties {
		if fits := kindOf(&member) == kindOf(value) && strings.Trim(name, plainLetters) == "" && !strings.Contains(name, "-"); fits {
			fitting = append(fitting, name)
		}
		if requires(box, name) && !hasDefault(&member) {
			required = append(required, name)
		}
	}
	switch {
	case len(required) == 1 && slices.Contains(fitting, required[0]):
		return required[0]
	case len(required) == 0 && len(fitting) == 1:
		return fitting[0]
	default:
		return ""
	}
}
