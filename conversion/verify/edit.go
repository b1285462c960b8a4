package verify

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
)

// mostEdits is the maximum number of edits that are made together.
const mostEdits = 2

// planEdit generates edits of the object in the other version.
func (j *judge) planEdit(t *trial, src generate.Source) []generate.Edit {
	if out, err := j.subject.forward(t); err != nil || unconverted(out) || t.arrive() != nil {
		return nil // Clients cannot edit an object that was not converted completely.
	}
	return generate.Edits(src, t.to, t.decoded, mostEdits)
}

// edit checks that edits in the other version stay, and that they change no other values.
func (j *judge) edit(t *trial, edits []generate.Edit) (*Violation, bool) {
	if _, err := j.subject.forward(t); err != nil || len(edits) == 0 || t.arrive() != nil {
		return nil, false
	}
	edited, ok := applied(t, edits)
	if !ok {
		return nil, false
	}
	when := "after " + described(edits) + " in " + t.to.Name()
	stored, err := j.subject.convertObject(edited, t.version)
	if err != nil {
		if _, clean := j.subject.convertObject(bare(edited), t.version); clean != nil {
			return nil, false // Kept values are not the reason for the failure.
		}
		return j.broken(t, t.to, pathOf(edits[0].Path), "%s, does not convert back: %v", when, err), true
	}
	seen, err := j.subject.convert(stored.text(), t.to)
	if err != nil {
		return j.broken(t, t.to, pathOf(edits[0].Path), "%s, converts back to %s, but not there again: %v",
			when, t.version.Name(), err), true
	}
	if d := j.knowledge.compare(edited, seen.object, over(t.to, t.version, stored)); d != nil {
		return j.differs(t, t.to, d, when+", and the way to "+t.version.Name()+" and back"), true
	}
	if unconverted(stored) {
		return nil, true // The edited value cannot be converted, and is kept.
	}
	if d := j.untouched(t, edited, stored.object); d != nil {
		return j.differs(t, t.version, d, when+", an edit elsewhere"), true
	}
	return nil, true
}

// applied returns the object after the edits, as an API server stores it. It returns false if the API server would
// reject the edits.
func applied(t *trial, edits []generate.Edit) (map[string]any, bool) {
	changed, ok := generate.Apply(t.decoded, edits)
	if !ok {
		return nil, false
	}
	result, err := decode(t.to, changed)
	if err != nil || same(result, t.decoded) || len(t.to.ValidateUpdate(result, t.decoded)) > 0 {
		return nil, false
	}
	return result, true
}

// described describes edits.
func described(edits []generate.Edit) string {
	words := make([]string, len(edits))
	for i, e := range edits {
		if words[i] = pathOf(e.Path) + " is removed"; !e.Removed {
			words[i] = pathOf(e.Path) + " is set to " + brief(e.Value)
		}
	}
	return strings.Join(words, " and ")
}

// untouched returns the first difference between the original object and the object that comes back after an edit in
// the other version. It ignores values that the edit affects. An edit affects the values that it changes in an object
// without kept values. It may also affect other values of the same rule, because they are parts of the edited value.
// This is the case if the object with their original values converts to another result.
//
// If the edit removes an object in the other version, it also removes the object at the same place in this version.
func (j *judge) untouched(t *trial, edited, stored map[string]any) *difference {
	before, err := j.subject.convertObject(headless(t.out.document.object), t.version)
	if err != nil {
		return nil
	}
	after, err := j.subject.convertObject(headless(edited), t.version)
	if err != nil {
		return nil
	}
	got, err := decode(t.version, bare(stored))
	if err != nil {
		return &difference{want: none, got: none, unreadable: err.Error()}
	}
	want, back := headless(t.object), runtime.DeepCopyJSON(headless(got))
	k := kept{
		before: headless(before.object), after: headless(after.object), want: want, got: back,
		via: inside(t.to, t.out.document), removed: vanished(nil, "", t.decoded, edited),
	}
	all := k.lost("", t.version.Structural(), nil)
	if len(all) == 0 {
		return nil
	}
	found := all
	var okBefore, okWant bool
	k.before, k.after, okBefore = j.knowledge.pair(t.version, t.to, k.before, k.after)
	k.want, k.got, okWant = j.knowledge.pair(t.version, t.to, k.want, k.got)
	if okBefore && okWant {
		found = k.lost("", t.version.Structural(), nil)
	}
	free := map[string]bool{}
	for _, l := range found {
		rule := j.knowledge.ruleAt(t.version, t.to, l.path)
		if _, judged := free[rule]; !judged {
			free[rule] = rule == "" || j.could(t, back, all, rule)
		}
		if free[rule] {
			return &l.difference
		}
	}
	return nil
}

// The method could reports whether the object still converts to the same result with the original values of a rule. It
// sets the original values in stored.
func (j *judge) could(t *trial, stored map[string]any, all []loss, rule string) bool {
	was, err := j.subject.convertObject(stored, t.to)
	if err != nil {
		return true
	}
	for _, l := range all {
		switch {
		case l.in == nil || j.knowledge.ruleAt(t.version, t.to, l.path) != rule:
		case l.was == none:
			delete(l.in, l.key)
		default:
			l.in[l.key] = l.was
		}
	}
	is, err := j.subject.convertObject(stored, t.to)
	if err != nil {
		return false
	}
	want, err := decode(t.to, was.object)
	way := comparison{version: t.to, toward: []*structural.Version{t.version}, via: strict}
	return err != nil || j.knowledge.compare(want, is.object, way) == nil
}

// vanished appends the places of the objects that are in before and not in after.
func vanished(places []string, path string, before, after map[string]any) []string {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		was, ok := before[key].(map[string]any)
		if !ok {
			continue
		}
		if is, ok := after[key].(map[string]any); ok {
			places = vanished(places, member(path, key), was, is)
			continue
		}
		places = append(places, member(path, key))
	}
	return places
}

// kept has the four values of a place that are compared.
type kept struct {
	// before and after are the values of this version without and with the edit, if nothing is kept. If they are equal,
	// the edit does not affect the place.
	before, after any
	// want is the original value, and got is the value after the edit.
	want, got any
	// via is the value that the other version has.
	via between
	// removed are the places of objects that the edits have removed.
	removed []string
}

// loss is a difference at a place that the edit does not affect.
type loss struct {
	difference

	// in is the object with the different member, or nil. key is the name of the member, and was is its original value.
	in  map[string]any
	key string
	was any
}

// lost returns the differences at places that the edit does not affect. A list is affected as a whole, unless its
// schema has keys. at has the object that contains the value and the key of the value; it may be nil.
func (k kept) lost(path string, s *schema.Structural, at *loss) []loss {
	if k.got == none && slices.Contains(k.removed, path) {
		return nil
	}
	if same(k.before, k.after) && !k.hasRemoved(path) {
		return k.differences(path, at)
	}
	b, okB := k.before.(map[string]any)
	a, okA := k.after.(map[string]any)
	w, okW := k.want.(map[string]any)
	g, okG := k.got.(map[string]any)
	if okB && okA && okW && okG {
		var out []loss
		for _, key := range keysOf(w, g) {
			inner := kept{
				before: memberOf(b, key), after: memberOf(a, key), want: memberOf(w, key), got: memberOf(g, key),
				via: k.via.member(key), removed: k.removed,
			}
			out = append(out, inner.lost(member(path, key), below(s, key), &loss{in: g, key: key})...)
		}
		return out
	}
	if s == nil || s.XListType == nil || *s.XListType != "map" {
		return nil
	}
	return k.lostElements(path, s)
}

// differences returns a difference for each member that differs.
func (k kept) differences(path string, at *loss) []loss {
	d := differ{}.first(path, k.want, k.got, k.via)
	if d == nil {
		return nil
	}
	w, okW := k.want.(map[string]any)
	g, okG := k.got.(map[string]any)
	if !okW || !okG {
		l := loss{difference: *d, was: k.want}
		if at != nil {
			l.in, l.key = at.in, at.key
		}
		return []loss{l}
	}
	var out []loss
	for _, key := range keysOf(w, g) {
		inner := kept{want: memberOf(w, key), got: memberOf(g, key), via: k.via.member(key)}
		out = append(out, inner.differences(member(path, key), &loss{in: g, key: key})...)
	}
	return out
}

// hasRemoved reports whether an object inside the place was removed.
func (k kept) hasRemoved(path string) bool {
	return slices.ContainsFunc(k.removed, func(removed string) bool {
		return path == "" || strings.HasPrefix(removed, path+".")
	})
}

// lostElements is lost for a list with keys.
func (k kept) lostElements(path string, s *schema.Structural) []loss {
	list, _ := k.want.([]any)
	var out []loss
	for i, want := range list {
		inner := kept{
			before: like(k.before, want, s), after: like(k.after, want, s), want: want, got: like(k.got, want, s),
			via: k.via.element(), removed: k.removed,
		}
		if inner.before == none || inner.after == none || inner.got == none {
			continue
		}
		out = append(out, inner.lost(element(path, i), s.Items, nil)...)
	}
	return out
}

// like returns the element of a list that has the same keys as another element. It returns none if there is no such
// element or more than one.
func like(list, want any, s *schema.Structural) any {
	elements, _ := list.([]any)
	found := none
	for _, e := range elements {
		equal := true
		for _, key := range s.XListMapKeys {
			equal = equal && same(keyOf(e, key, s), keyOf(want, key, s))
		}
		if equal && found != none {
			return none
		}
		if equal {
			found = e
		}
	}
	return found
}

// keyOf returns the value of a key field of an element. If the field is absent, it returns the default.
func keyOf(element any, key string, s *schema.Structural) any {
	if v := memberOf(element, key); v != none {
		return v
	}
	if v := s.Items.Properties[key].Default.Object; v != nil {
		return v
	}
	return none
}

// anything is the schema of fields that are kept although they are not in the schema of their object.
var anything = &schema.Structural{Extensions: schema.Extensions{XPreserveUnknownFields: true}}

// below returns the schema of a member, or nil.
func below(s *schema.Structural, key string) *schema.Structural {
	if s == nil {
		return nil
	}
	if property, ok := s.Properties[key]; ok {
		return &property
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		return s.AdditionalProperties.Structural
	}
	if s.XPreserveUnknownFields || s.AdditionalProperties != nil {
		return anything
	}
	return nil
}
