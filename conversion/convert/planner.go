package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"refract.dev/tree/raw"
)

// planner plans the conversion of the values that a plan names. It converts the values, restores kept values from the
// annotation, and keeps values that would get lost. It plans changes, but does not modify the text.
type planner struct {
	source     *source
	changes    *changes
	complement *complement
	comparer   *comparer
	arena      *arena
	workers    *workers
	parents    parents
	elements   elements
}

// plan plans the changes of a source. The order matters. Kept parents come back before the values inside them. Values
// that the source does not have are restored after all others have moved, if their place is still empty. Parents are
// removed after the last value was put into them.
func (p *planner) plan() error {
	if p.source.trouble != nil {
		return p.source.trouble
	}
	plan := p.source.plan
	p.parents.comeBack('{', below)
	for i := range plan.fields {
		if err := p.field(&plan.fields[i]); err != nil {
			return err
		}
	}
	if len(p.complement.restorable) > 0 {
		for i := range plan.fields { // All other values have moved now, and may have created parents.
			p.restoreAbsent(&plan.fields[i])
		}
	}
	for i := range plan.fills {
		p.fillIn(&plan.fills[i])
	}
	p.parents.comeBack('n', null) // A parent that now has a value does not become null.
	p.parents.leave()
	p.parents.keepEmpty()
	p.parents.prune()
	return nil
}

// field plans the conversion of one value. If the target place already has another value, the object is not converted,
// because a later conversion would take the existing value for the converted one.
func (p *planner) field(f *field) error {
	plan := p.source.plan
	for _, n := range f.to.nodes {
		if p.source.nodes[n].present && !plan.nodes[n].moves && !slices.Contains(f.from.nodes, n) {
			return at(plan.nodes[n].path,
				fmt.Errorf("in %s, the place of %s of %s already has a value", plan.to, f.from.place, plan.from))
		}
	}
	if p.putBack(f) {
		return nil
	}
	value := p.value(f)
	if value == nil {
		return nil
	}
	before := p.begin()
	err := p.pass(f, value)
	if err == nil || !plan.keeps || f.from.nodes[0] == nodeRoot {
		return err
	}
	p.undo(before)
	p.keepFailed(f, value, err)
	return nil
}

// pass plans the conversion of a value that the source has.
func (p *planner) pass(f *field, value []byte) error {
	switch {
	case len(f.to.nodes) == 0:
		p.takeAway(f, value)
		return nil
	case f.elements != nil && value[0] == f.open:
		return p.convertElements(f, value)
	case f.passes || value[0] == 'n' && !f.to.group || f.elements != nil:
		return p.give(f, value, value)
	}
	converted, err := p.convert(f, value)
	if err != nil {
		return at(f.from.place, err)
	}
	return p.give(f, value, converted)
}

// value returns the value of a field; nil if it is absent. The value of a group is an object of the existing members.
func (p *planner) value(f *field) []byte {
	o := p.source
	if !f.from.group {
		if !o.nodes[f.from.nodes[0]].present {
			return nil
		}
		return o.value(f.from.nodes[0])
	}
	object := append(p.arena.room(), '{')
	for _, n := range f.from.nodes {
		if !o.nodes[n].present {
			continue
		}
		if len(object) > 1 {
			object = append(object, ',')
		}
		object = append(append(object, o.plan.nodes[n].quoted...), o.value(n)...)
	}
	if len(object) == 1 {
		return nil
	}
	return p.arena.keep(append(object, '}'))
}

// convert returns the converted value, and restores kept values. If the value is still the result of the kept value,
// convert returns the kept value without a call of the function. Otherwise it restores the parts that were not edited.
func (p *planner) convert(f *field, value []byte) ([]byte, error) {
	toHub, partial := p.source.plan.toHub, p.source.partial
	if value[0] == 'n' { // For a group, null means that it has no member.
		if !partial {
			p.complement.keep(f.from.place, value, null)
		}
		return value, nil
	}
	var e *entry
	if len(p.complement.restorable) > 0 {
		e = p.complement.entry(f.to.place)
		if kept := f.fitting(p.source.plan, p.complement.keptValue(e, value, p.workers.passing(f.id, !toHub))); kept != nil {
			return kept, nil
		}
	}
	worker := p.workers.of(f.id)
	out, err := worker.convert(p.arena.room(), value, toHub)
	if err != nil {
		return nil, err
	}
	out = p.arena.keep(out)
	// The method returns needs the state of the convert call above, so no other call of the worker may come before it.
	lost := !partial && (f.to.group && isEmptyObject(out) || !worker.returns(value, out, toHub))
	if e != nil && !raw.IsNull(out) {
		restored := p.complement.restored(e, out, f.to.keys, p.workers.passing(f.id, toHub), p.workers.passing(f.id, !toHub))
		if restored = f.fitting(p.source.plan, restored); restored != nil {
			out = restored
		}
	}
	if lost {
		p.complement.keep(f.from.place, value, out)
		if raw.IsNull(out) || f.to.group && isEmptyObject(out) {
			p.changes.gone = append(p.changes.gone, f.from.nodes...)
		}
	}
	return out, nil
}

var null = []byte("null")

// give plans that the converted value replaces the value of a field. If a value other than null is converted to null,
// the target version has no value.
func (p *planner) give(f *field, value, converted []byte) error {
	none := value[0] != 'n' && string(converted) == "null"
	if none && f.from.nodes[0] == nodeRoot {
		return errNoElement
	}
	if !none && !f.from.group && !f.to.group && f.from.nodes[0] == f.to.nodes[0] {
		if len(converted) != len(value) || &converted[0] != &value[0] { // Otherwise this text is already at this place.
			p.changes.replace(f.from.nodes[0], converted)
		}
		return nil
	}
	for _, n := range f.from.nodes {
		if p.source.nodes[n].present && !slices.Contains(f.to.nodes, n) {
			p.changes.remove(n)
		}
	}
	return p.giveTo(f, converted, none)
}

var errNoElement = errors.New("an element cannot be removed: convert the list as one value")

// giveTo puts the converted value at the target place. If absent is true, there is no value.
func (p *planner) giveTo(f *field, converted []byte, absent bool) error {
	if !f.to.group {
		p.set(f, f.to.nodes[0], converted, absent)
		return nil
	}
	values, err := f.split(p.source.plan, converted)
	if err != nil {
		return at(f.from.place, err)
	}
	for i, n := range f.to.nodes {
		p.set(f, n, values[i], values[i] == nil)
	}
	return nil
}

// set plans the value of one target node of a field.
func (p *planner) set(f *field, n int, value []byte, absent bool) {
	own := p.source.nodes[n].present && slices.Contains(f.from.nodes, n)
	switch {
	case absent && own:
		p.changes.remove(n)
	case absent:
	case own:
		p.changes.replace(n, value)
	default:
		p.changes.put(n, value)
	}
}

// convertElements converts the elements of a list or table. The edits of the elements become edits of the object. If
// the list or table moves, its text is rendered with these edits.
func (p *planner) convertElements(f *field, value []byte) error {
	c, base := p.changes, p.source.nodes[f.from.nodes[0]].start
	first := len(c.edits)
	if p.elements.inner == nil { // Created on demand, because few objects have such lists or tables.
		p.elements.inner = newRewriter(len(p.source.nodes), p.workers)
	}
	in := p.elements.inner
	in.source.partial, in.complement.believes = p.source.partial, p.complement.believes
	all, kept, failures, err := p.elements.convert(c.edits, base, f, value, p.complement.entryOf(f.to.place))
	c.edits = all
	if err != nil {
		return at(f.from.place, err)
	}
	for _, failure := range failures {
		p.complement.failures = append(p.complement.failures, at(f.from.place, failure))
	}
	converted := value
	if own := all[first:]; len(own) > 0 && (len(kept) > 0 || f.from.nodes[0] != f.to.nodes[0]) {
		converted = own.render(p.source.text, base, base+len(value))
	}
	if len(kept) > 0 {
		content, err := p.elements.names.appendInside(nil, f, converted, kept)
		if err != nil {
			return at(f.from.place, err)
		}
		p.complement.kept = append(p.complement.kept, entry{place: f.from.place, inside: content})
	}
	if f.from.nodes[0] == f.to.nodes[0] {
		return nil
	}
	c.edits = all[:first]
	return p.give(f, value, converted)
}

// restoreAbsent restores the kept value of a field that the source does not have, if the target place is empty and its
// parent exists.
func (p *planner) restoreAbsent(f *field) {
	if len(f.to.nodes) == 0 || f.passes || f.elements != nil { // Values of these fields are not kept in this way.
		return
	}
	if p.source.hasAny(f.from.nodes) || !p.changes.hasParent(f.to.nodes[0]) {
		return
	}
	if kept := f.fitting(p.source.plan, p.keptAbsent(f)); kept != nil {
		_ = p.giveTo(f, kept, false) // It fits.
	}
}

// keptAbsent returns the kept value of a field that the source does not have. If the field is a group in the source
// version, the result of the kept value may have been null or an empty object.
func (p *planner) keptAbsent(f *field) []byte {
	back := p.workers.passing(f.id, !p.source.plan.toHub)
	e := p.complement.entry(f.to.place)
	if f.from.group {
		if e := p.complement.entryOf(f.to.place); e != nil && raw.IsNull(e.value) && e.of == absent {
			return null
		}
		if kept := p.complement.keptValue(e, emptyObject, back); kept != nil {
			return kept
		}
	}
	return p.complement.keptValue(e, null, back)
}

// takeAway plans the removal of a value that only the source version has. It keeps the value unless it is the default,
// which the conversion back adds again.
func (p *planner) takeAway(f *field, value []byte) {
	p.changes.remove(f.from.nodes[0])
	if p.source.partial || f.fill != nil && p.comparer.equal(value, f.fill) {
		return
	}
	p.complement.keepAbsent(f.from.place, value)
}

// fillIn puts the kept value or the default at a place that only the target version has.
func (p *planner) fillIn(f *field) {
	n := f.to.nodes[0]
	if p.source.nodes[n].present && !p.source.plan.nodes[n].moves || p.changes.puts[n] != nil || !p.changes.hasParent(n) {
		return
	}
	switch e := p.complement.entryOfAbsent(f.to.place); {
	case e != nil:
		p.changes.put(n, e.value)
	case f.fill != nil && !p.source.partial:
		p.changes.put(n, f.fill)
	}
}

// split returns the values of the members of a target group; nil for absent members.
func (f *field) split(p *plan, converted []byte) ([][]byte, error) {
	values := make([][]byte, len(f.to.nodes))
	switch first := bytes.TrimLeft(converted, " \t\r\n")[0]; first {
	case 'n':
		return values, nil
	case '{':
	default:
		return nil, fmt.Errorf("want an object with the fields of %s, the conversion returned %s", f.to.place, describe(first))
	}
	var wrong error
	err := raw.Members(converted, func(key, value []byte) bool {
		i := slices.IndexFunc(f.to.nodes, func(n int) bool { return p.nodes[n].key == string(key) })
		switch {
		case i < 0:
			wrong = fmt.Errorf("the conversion returned a field %q, which is not part of %s", key, f.to.place)
		case values[i] != nil:
			wrong = at(string(key), errTwice)
		default:
			values[i] = value
		}
		return wrong == nil
	})
	return values, cmp.Or(wrong, err)
}

// fitting returns the kept value, or nil if the target place is a group and the value is not an object of its members.
// An empty object does not fit either: restoring it would remove the live value.
func (f *field) fitting(p *plan, kept []byte) []byte {
	if kept == nil || !f.to.group {
		return kept
	}
	if _, err := f.split(p, kept); err != nil || isEmptyObject(kept) {
		return nil
	}
	return kept
}

var emptyObject = []byte("{}")

// isEmptyObject reports whether a value is an object without members. For a group this means that it has no member.
func isEmptyObject(value []byte) bool {
	var s raw.Scanner
	s.Reset(value)
	if s.Next() != '{' || !s.OpenObject() {
		return false
	}
	_, _, some := s.NextKey(true)
	return !some
}
