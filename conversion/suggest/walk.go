package suggest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// object compares two objects at the same place. scope is the place of the innermost list or table that contains them.
func (d *differences) object(hub, spoke *schema.Structural, place, scope string) {
	var added, removed []oneSided
	for _, name := range slices.Sorted(maps.Keys(hub.Properties)) {
		value := memberOf(hub, name, place, scope, true)
		if _, both := spoke.Properties[name]; both {
			other := memberOf(spoke, name, place, scope, false)
			d.both(&value, &other)
		} else if !keepsAll(spoke) {
			added = append(added, value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spoke.Properties)) {
		if _, both := hub.Properties[name]; !both && !keepsAll(hub) {
			removed = append(removed, memberOf(spoke, name, place, scope, false))
		}
	}
	d.lonely = append(d.lonely, d.renames(added, removed)...)
}

// memberOf returns a member of the object at a place.
func memberOf(s *schema.Structural, name, place, scope string, hub bool) oneSided {
	value := s.Properties[name]
	return oneSided{place: below(place, name), name: name, scope: scope, value: &value, required: requires(s, name), hub: hub}
}

// both compares two values at the same place.
func (d *differences) both(ours, theirs *oneSided) {
	hub, spoke, place := ours.value, theirs.value, ours.place
	at, from := kindOf(hub), kindOf(spoke)
	switch {
	case sameShape(hub, spoke):
		d.defaults(hub, spoke, place)
	case at == anything && from == anything:
	case at == object && from == object && keepsAll(hub) == keepsAll(spoke):
		d.object(hub, spoke, place, ours.scope)
	case at == array && from == array && d.elements(hub.Items, spoke.Items, place):
		d.lists = append(d.lists, list{place, hub})
	case at == table && from == table && d.elements(hub.AdditionalProperties.Structural, spoke.AdditionalProperties.Structural, place):
	default:
		if e, ok := d.operation(ours, theirs); ok {
			d.entries = append(d.entries, e)
			return
		}
		undecided := fmt.Sprintf("decide on the conversion of %s, which is %s in %s and %s in %s: until then each is kept for its own version. To convert "+
			"it, replace both entries by {hub: %s, spoke: %s, toHub: EXPRESSION, toSpoke: EXPRESSION}",
			place, described(hub), d.hubVersion, described(spoke), d.spokeVersion, quoted(place), quoted(place))
		d.keep(ours)
		d.entries[len(d.entries)-1].notes = []string{undecided}
		d.keep(theirs)
		d.entries[len(d.entries)-1].notes = []string{"see the entry of " + place + " above"}
		return
	}
}

// elements compares the elements of two lists or tables at the same place. It returns false if they cannot be compared.
func (d *differences) elements(hub, spoke *schema.Structural, place string) bool {
	if hub == nil || spoke == nil {
		return false
	}
	inside := place + "[*]"
	switch at, from := kindOf(hub), kindOf(spoke); {
	case at == object && from == object && keepsAll(hub) == keepsAll(spoke):
		d.object(hub, spoke, inside, inside)
	case at == array && from == array && d.elements(hub.Items, spoke.Items, inside):
		d.lists = append(d.lists, list{inside, hub})
	case at == table && from == table:
		return d.elements(hub.AdditionalProperties.Structural, spoke.AdditionalProperties.Structural, inside)
	case sameShape(hub, spoke):
		d.defaults(hub, spoke, inside)
	default:
		return false
	}
	return true
}

// defaults adds a note for each pair of values that have the same shape and different defaults. A policy cannot have an
// entry for such a difference.
func (d *differences) defaults(hub, spoke *schema.Structural, place string) {
	if hasDefault(hub) && hasDefault(spoke) && !reflect.DeepEqual(hub.Default.Object, spoke.Default.Object) {
		d.notes = append(d.notes, fmt.Sprintf("the default of %s is %s in %s and %s in %s, and an object gets one of them depending on its conversions: "+
			"decide on one default for both versions", place, show(hub.Default.Object), d.hubVersion, show(spoke.Default.Object), d.spokeVersion))
	}
	switch kindOf(hub) {
	case object:
		for _, name := range slices.Sorted(maps.Keys(hub.Properties)) {
			value, other := hub.Properties[name], spoke.Properties[name]
			d.defaults(&value, &other, below(place, name))
		}
	case array:
		d.defaults(hub.Items, spoke.Items, place+"[*]")
	case table:
		d.defaults(hub.AdditionalProperties.Structural, spoke.AdditionalProperties.Structural, place+"[*]")
	default: // Scalars have no members.
	}
}

// keep adds an entry for a value that only one version has.
func (d *differences) keep(o *oneSided) {
	side := &refractv1alpha1.OneSided{}
	has, other := d.hubVersion, d.spokeVersion
	if !o.hub {
		has, other = other, has
	}
	note := fmt.Sprintf("only %s has %s: objects in %s keep it in an annotation", has, o.place, other)
	switch {
	case !o.required: // The value may be absent. API servers set the default in the schema.
	case hasDefault(o.value):
		side.Default = jsonOf(o.value.Default.Object)
		note += ", if it is not the default"
	default:
		side.Default = jsonOf(least(o.value, 0))
		note = fmt.Sprintf("only %s has %s, and requires it: decide on its value for objects that were written in %s; %s is a guess",
			has, o.place, other, side.Default.Raw)
	}
	e := entry{notes: []string{note}}
	if o.hub {
		e.Hub, e.Added = o.place, side
	} else {
		e.Spoke, e.Removed = o.place, side
	}
	d.entries = append(d.entries, e)
}

// fill returns the text of the entry's field added or removed.
func (o *oneSided) fill() string {
	if !o.required || hasDefault(o.value) {
		return "{}"
	}
	return fmt.Sprintf("{default: %s}", jsonOf(least(o.value, 0)).Raw)
}

// keys returns the keys for lists whose elements differ and whose schema has no keys. It also returns a note for each
// of these lists.
func (d *differences) keys() (out []refractv1alpha1.ListKeys, notes []string) {
	for _, l := range d.lists {
		if len(l.hub.XListMapKeys) > 0 || !slices.ContainsFunc(d.entries, func(e entry) bool {
			return strings.HasPrefix(e.Hub, l.place+"[*]") || strings.HasPrefix(e.Spoke, l.place+"[*]")
		}) {
			continue
		}
		key := nameOf(l.hub.Items)
		if key == "" {
			continue
		}
		out = append(out, refractv1alpha1.ListKeys{Hub: l.place, Keys: []string{key}})
		notes = append(notes, fmt.Sprintf("decide whether %s identifies the elements of %s; without keys they are matched by position", key, l.place))
	}
	return out, notes
}

// nameOf returns the field that seems to name an element of a list; "" if there is none.
func nameOf(element *schema.Structural) string {
	for _, name := range []string{"name", "key", "id", "type"} {
		if value, ok := element.Properties[name]; ok && requires(element, name) && kindOf(&value) == text {
			return name
		}
	}
	return ""
}

// below returns the place of a member of the object at place.
func below(place, name string) string {
	switch plain := strings.Trim(name, plainLetters) == "" && name != ""; {
	case !plain:
		return place + "[" + strconv.Quote(name) + "]"
	case place == "":
		return name
	default:
		return place + "." + name
	}
}

// quoted returns a place in the notation for a YAML map.
func quoted(place string) string {
	if strings.ContainsAny(place, `[]"`) {
		return "'" + strings.ReplaceAll(place, "'", "''") + "'"
	}
	return place
}

// plainLetters are the characters of keys that need no quotes.
const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// requires reports whether an object requires a member.
func requires(s *schema.Structural, name string) bool {
	return s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
}

// keepsAll reports whether an object keeps members that are not in its schema.
func keepsAll(s *schema.Structural) bool {
	return s.XPreserveUnknownFields || s.AdditionalProperties != nil && s.AdditionalProperties.Structural == nil && s.AdditionalProperties.Bool
}

func hasDefault(s *schema.Structural) bool { return s.Default.Object != nil }
