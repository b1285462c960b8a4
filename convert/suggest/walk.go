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

// object compares two objects, at one place. Scope is that of the innermost list or
// table around them.
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

// memberOf returns the member of an object at a place.
func memberOf(s *schema.Structural, name, place, scope string, hub bool) oneSided {
	value := s.Properties[name]
	return oneSided{place: below(place, name), name: name, scope: scope, value: &value, required: requires(s, name), hub: hub}
}

// both compares what both versions have at a place.
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
		undecided := fmt.Sprintf("%s is %s in %s and %s in %s, and what becomes of one in the other is to be decided: "+
			"until then each is kept for its own version. "+
			"If one can be made of the other, take both entries away and write {hub: %s, spoke: %s, toHub: EXPRESSION, toSpoke: EXPRESSION}",
			place, described(hub), d.hubVersion, described(spoke), d.spokeVersion, quoted(place), quoted(place))
		d.keep(ours)
		d.entries[len(d.entries)-1].notes = []string{undecided}
		d.keep(theirs)
		d.entries[len(d.entries)-1].notes = []string{"see the entry of " + place + " above"}
		return
	}
}

// elements compares the elements of lists or tables at a place, and reports whether that
// made sense.
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

// defaults notes which defaults differ, in values of the same shape: no entry could mend
// that.
func (d *differences) defaults(hub, spoke *schema.Structural, place string) {
	if hasDefault(hub) && hasDefault(spoke) && !reflect.DeepEqual(hub.Default.Object, spoke.Default.Object) {
		d.notes = append(d.notes, fmt.Sprintf("the default of %s is %s in %s and %s in %s, and which of them an object gets depends on the way it takes: "+
			"decide for one, and give it to both versions", place, show(hub.Default.Object), d.hubVersion, show(spoke.Default.Object), d.spokeVersion))
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
	default: // Nothing is in it.
	}
}

// keep has a value that only one version has kept for it.
func (d *differences) keep(o *oneSided) {
	side := &refractv1alpha1.OneSided{}
	has, other := d.hubVersion, d.spokeVersion
	if !o.hub {
		has, other = other, has
	}
	note := fmt.Sprintf("only %s has %s: objects in %s keep it in an annotation", has, o.place, other)
	switch {
	case !o.required: // It may be absent; its schema's own default is filled in by whoever writes the object.
	case hasDefault(o.value):
		side.Default = jsonOf(o.value.Default.Object)
		note += ", if it is not the default"
	default:
		side.Default = jsonOf(least(o.value, 0))
		note = fmt.Sprintf("only %s has %s, and requires it: decide what it is for objects that were written in %s; %s is a guess",
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

// fill returns what is to be written of a value that only one version has.
func (o *oneSided) fill() string {
	if !o.required || hasDefault(o.value) {
		return "{}"
	}
	return fmt.Sprintf("{default: %s}", jsonOf(least(o.value, 0)).Raw)
}

// keys returns keys for lists that have none and whose elements differ, and a note for
// each.
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
		notes = append(notes, fmt.Sprintf("decide whether %s tells the elements of %s from each other; "+
			"without keys they are told from each other by position", key, l.place))
	}
	return out, notes
}

// nameOf returns the field that names an element of a list; empty if there is none.
func nameOf(element *schema.Structural) string {
	for _, name := range []string{"name", "key", "id", "type"} {
		if value, ok := element.Properties[name]; ok && requires(element, name) && kindOf(&value) == text {
			return name
		}
	}
	return ""
}

// below returns the place of a member.
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

// quoted returns a place as it is written in a map of YAML.
func quoted(place string) string {
	if strings.ContainsAny(place, `[]"`) {
		return "'" + strings.ReplaceAll(place, "'", "''") + "'"
	}
	return place
}

// plainLetters are those of keys that need no quotes.
const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// requires reports whether an object requires a member.
func requires(s *schema.Structural, name string) bool {
	return s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
}

// keepsAll reports whether an object keeps members that it does not name.
func keepsAll(s *schema.Structural) bool {
	return s.XPreserveUnknownFields || s.AdditionalProperties != nil && s.AdditionalProperties.Structural == nil && s.AdditionalProperties.Bool
}

func hasDefault(s *schema.Structural) bool { return s.Default.Object != nil }
