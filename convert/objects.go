package convert

import (
	"encoding/json"
	"errors"
	"reflect"
	"sync"

	apijson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"

	"refract.dev/tree/raw"
)

// objectConversion converts whole objects. It is immutable, and safe for concurrent use.
type objectConversion struct {
	up, down *step
}

// step is one direction.
type step struct {
	// run returns what the function was given and what it made of it, as they are encoded.
	run func(object []byte) (given, made []byte, err error)
	// same reports whether two objects of this version mean the same; nil: if they are equal.
	same func(a, b []byte) bool
	// empty is what the function makes of an empty object; nil if it fails.
	empty func() *tree
	// explicit says that null is only made by a function that wants it.
	explicit bool
	// in and out are what the types have a place for.
	in, out *known
}

// Object converts whole objects of Go types: structs with json tags, usually of TypeMeta,
// ObjectMeta, Spec and Status. A function reads its first argument and fills the second,
// which is empty.
//
//   - Metadata, apiVersion and kind are the engine's. What the functions make of them is of
//     no matter; they may read them.
//   - Of the rest, what is encoded from the result as it was from the argument stands in the
//     output as it stood in the input, byte for byte. So the functions decide about what
//     they change only: a field that the types do not know stays at its place; the object is
//     not converted if that place is gone.
//   - A field that was absent stays absent, unless it gets another value than in the
//     conversion of an empty object. There is no null where there was none. Below the root a
//     field stays nevertheless if the object would not convert back to the same without it:
//     rather a zero too many than a value too few. So where it matters whether somebody has
//     written a zero, the types have pointers or omitempty, or the conversion is a [Field].
//   - A zero value of a field with omitempty, which the function cannot tell from none, goes
//     unless the other version's type has a field of that name and kind. The whole object
//     keeps it in its annotation; what one manager has applied does not: a pointer does.
//
// The names of fields are case-sensitive, and integers in values of type any are int64.
// It must be the only conversion of its spoke.
func Object[S, H any](toHub func(*S, *H) error, toSpoke func(*H, *S) error, o ...Option) Conversion {
	c := conversion("", "", o)
	if toHub == nil || toSpoke == nil {
		c.err = errNoFunction
		return c
	}
	sameSpoke, sameHub, err := equivalences[S, H](c.options)
	if err != nil {
		c.err = err
		return c
	}
	c.whole = &objectConversion{up: typedStep(toHub, sameSpoke), down: typedStep(toSpoke, sameHub)}
	return c
}

// typedStep returns the direction of a function of types. What the function was given is what the
// types encode, so that a field which they do not know counts as one that it has not seen.
func typedStep[A, B any](f func(*A, *B) error, same func(a, b A) bool) *step {
	s := &step{run: func(object []byte) (given, made []byte, err error) {
		a, b := new(A), new(B)
		if err := explained(kjson.UnmarshalCaseSensitivePreserveInts(object, a)); err != nil {
			return nil, nil, err
		}
		if given, err = json.Marshal(a); err != nil { // Before f changes it.
			return nil, nil, err
		}
		if err := f(a, b); err != nil {
			return nil, nil, err
		}
		made, err = json.Marshal(b)
		return given, made, err
	}}
	s.in, s.out = knownOf(reflect.TypeFor[A]()), knownOf(reflect.TypeFor[B]())
	if same != nil {
		s.same = func(a, b []byte) bool {
			va, vb := new(A), new(A)
			c := newCodec[A](nil)
			return s.knowsRest(a) && c.decode(a, va) == nil && c.decode(b, vb) == nil && same(*va, *vb)
		}
	}
	s.empty = sync.OnceValue(s.makeEmpty)
	return s
}

// knowsRest reports whether the type has a place for all of an object but for what is the
// engine's.
func (s *step) knowsRest(object []byte) bool {
	t, err := restTree(object)
	return err == nil && s.in.all(t)
}

// Unstructured converts whole objects as maps, whose numbers are int64 or float64. The
// functions are given a copy that they may change and return. All is as with [Object],
// but that there is nothing the argument does not hold. Numbers beyond these types, or
// written in another way, stay what they are wherever the value is left unchanged at its
// place, or in its list.
func Unstructured(toHub, toSpoke func(map[string]any) (map[string]any, error), o ...Option) Conversion {
	c := conversion("", "", o)
	if toHub == nil || toSpoke == nil {
		c.err = errNoFunction
		return c
	}
	sameSpoke, sameHub, err := equivalences[map[string]any, map[string]any](c.options)
	if err != nil {
		c.err = err
		return c
	}
	c.whole = &objectConversion{up: mapStep(toHub, sameSpoke), down: mapStep(toSpoke, sameHub)}
	return c
}

var errNoObject = errors.New("the conversion returned no object")

// mapStep returns the direction of a function of maps, which sees all there is.
func mapStep(f func(map[string]any) (map[string]any, error), same func(a, b map[string]any) bool) *step {
	s := &step{explicit: true, run: func(object []byte) (given, made []byte, err error) {
		var in map[string]any
		if err := apijson.Unmarshal(object, &in); err != nil {
			return nil, nil, err
		}
		if given, err = json.Marshal(in); err != nil { // Before f changes it.
			return nil, nil, err
		}
		out, err := f(in)
		if err != nil {
			return nil, nil, err
		}
		if out == nil {
			return nil, nil, errNoObject
		}
		made, err = json.Marshal(out)
		return given, made, err
	}}
	if same != nil {
		s.same = func(a, b []byte) bool {
			var va, vb map[string]any
			return apijson.Unmarshal(a, &va) == nil && apijson.Unmarshal(b, &vb) == nil && same(va, vb)
		}
	}
	s.empty = sync.OnceValue(s.makeEmpty)
	return s
}

// makeEmpty returns what the function makes of an empty object.
func (s *step) makeEmpty() (rest *tree) {
	defer func() {
		if recover() != nil {
			rest = nil // It cannot take one: then there is nothing that it makes of one.
		}
	}()
	_, made, err := s.run([]byte(`{"metadata":{}}`))
	if err != nil {
		return nil
	}
	if rest, err = restTree(made); err != nil {
		return nil
	}
	return rest
}

// run is what a function has made of an object.
type run struct {
	step                  *step
	original, given, made *tree
	nulls                 bool
}

// apply calls the function with an object, and takes apart what it was given and what it made.
func (s *step) apply(object []byte) (*run, error) {
	given, made, err := s.run(object)
	if err != nil {
		return nil, err
	}
	r := &run{step: s, nulls: s.explicit && hasNull(object)}
	for _, part := range []struct {
		text []byte
		tree **tree
	}{{object, &r.original}, {given, &r.given}, {made, &r.made}} {
		if *part.tree, err = restTree(part.text); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// merged returns the members of the object that was made, and how many of them are in it
// or not as shed says: see [merger].
func (r *run) merged(shed []bool) ([]byte, int, error) {
	m := merger{nulls: r.nulls, shed: shed}
	rest, err := m.merge(nil, true, r.original, r.given, r.made, r.step.empty(), r.step.in, r.step.out)
	return rest, m.spared, err
}

// direction is the way of an object from one version to another, and back.
type direction struct {
	envelope    envelope
	comparer    *comparer
	forth, back *step
	here, there []byte // The API versions, as JSON.
	// inner says that this is only to see what another passage forgets.
	inner bool
}

// reverse returns the way back.
func (c direction) reverse() direction {
	c.forth, c.back, c.here, c.there, c.inner = c.back, c.forth, c.there, c.here, false
	return c
}

// convert returns the members of the object that become of these, which are all but
// apiVersion, kind and metadata.
func (c direction) convert(rest []byte) ([]byte, error) {
	r, err := c.apply(rest)
	if err != nil {
		return nil, err
	}
	bare, spared, err := r.merged(nil)
	if err != nil || spared == 0 {
		return bare, err
	}
	return c.complete(r, bare, spared)
}

// apply calls the function with these members and what is the engine's, which it may read.
func (c direction) apply(rest []byte) (*run, error) {
	object, err := c.envelope.around(c.here, rest)
	if err != nil {
		return nil, err
	}
	return c.forth.apply(object)
}

// complete returns what was made with no more of the members that an empty object gives
// than it takes to come back as with all of them.
func (c direction) complete(r *run, bare []byte, spared int) ([]byte, error) {
	shed := make([]bool, spared) // Of the members, which are left out: none at first.
	full, _, err := r.merged(shed)
	if err != nil {
		return nil, err
	}
	want := c.returned(full)
	switch {
	case c.forgets(r.original, bare):
		return full, nil
	case want.same(c.returned(bare)):
		return bare, nil
	}
	// Members are left out together as long as nothing gets lost, and otherwise half of them after
	// the other: most often few of many are needed.
	var try func(members []bool) error
	try = func(members []bool) error {
		for i := range members {
			members[i] = true
		}
		less, _, err := r.merged(shed)
		if err != nil || want.same(c.returned(less)) {
			return err
		}
		for i := range members {
			members[i] = false
		}
		if len(members) == 1 {
			return nil
		}
		return errors.Join(try(members[:len(members)/2]), try(members[len(members)/2:]))
	}
	if err := try(shed); err != nil {
		return nil, err
	}
	rest, _, err := r.merged(shed)
	return rest, err
}

// returned returns what the function back makes of an object, nil if it fails.
func (c direction) returned(rest []byte) (made *tree) {
	err := guard(func() error {
		r, err := c.reverse().apply(rest)
		if err == nil {
			made = r.made
		}
		return err
	})
	if err != nil {
		return nil
	}
	return made
}

// forgets reports whether the original has something, below its root, that is what the way
// back of an empty object gives, and that does not come back unless something is in the
// other version for it.
func (c direction) forgets(original *tree, bare []byte) (forgotten bool) {
	err := guard(func() error {
		rest, err := c.comesBack(bare)
		if err != nil {
			return err
		}
		again, err := treeOf(rest)
		if err != nil {
			return err
		}
		empty := c.back.empty()
		for i, key := range original.keys {
			forgotten = forgotten || misses(&original.items[i], again.get(key), empty.get(key))
		}
		return nil
	})
	return err == nil && forgotten
}

// comesBack returns what becomes of an object on the way back.
func (c direction) comesBack(bare []byte) ([]byte, error) {
	back := c.reverse()
	if !c.inner {
		back.inner = true
		return back.convert(bare)
	}
	r, err := back.apply(bare)
	if err != nil {
		return nil, err
	}
	rest, _, err := r.merged(nil)
	return rest, err
}

// misses reports whether an object has members that another one has not, and that are in
// the empty one.
func misses(original, again, empty *tree) bool {
	if !original.isObject() || !empty.isObject() {
		return false
	}
	for i, key := range original.keys {
		o, a, e := &original.items[i], again.get(key), empty.get(key)
		if e != nil && a == nil && o.same(e) || misses(o, a, e) {
			return true
		}
	}
	return false
}

// member is one of an object.
type member struct {
	key   string
	value []byte
}

// membersOf returns the members of an object, none of which may be there twice.
func membersOf(object []byte) ([]member, error) {
	var members []member
	seen := map[string]struct{}{}
	var twice error
	err := raw.Members(object, func(key, value []byte) bool {
		if _, ok := seen[string(key)]; ok && twice == nil {
			twice = at(string(key), errTwice)
		}
		seen[string(key)] = struct{}{}
		members = append(members, member{key: string(key), value: value})
		return true
	})
	if err != nil {
		return nil, err
	}
	return members, twice
}

// restOf returns the members that are not the engine's.
func restOf(object []byte) ([]member, error) {
	var rest []member
	err := raw.Members(object, func(key, value []byte) bool {
		if k := string(key); k != "apiVersion" && k != "kind" && k != "metadata" {
			rest = append(rest, member{key: k, value: value})
		}
		return true
	})
	return rest, err
}

// objectOf returns an object of members.
func objectOf(members []member) []byte {
	dst := []byte{'{'}
	for i, m := range members {
		dst = appendMember(dst, i == 0, m.key, m.value)
	}
	return append(dst, '}')
}

func appendMember(dst []byte, first bool, key string, value []byte) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return append(append(raw.AppendString(dst, key), ':'), value...)
}

// restTree returns the object without what is the engine's.
func restTree(object []byte) (*tree, error) {
	members, err := restOf(object)
	if err != nil {
		return nil, err
	}
	return treeOf(objectOf(members))
}

// hasNull reports whether there is null in a value, at any depth.
func hasNull(object []byte) bool {
	var s raw.Scanner
	s.Reset(object)
	return scanNull(&s)
}

func scanNull(s *raw.Scanner) bool {
	found := false
	switch s.Next() {
	case 'n':
		s.Value()
		return true
	case '{':
		s.Object(func([]byte) { found = scanNull(s) || found })
	case '[':
		s.Array(func(int) { found = scanNull(s) || found })
	default:
		s.Value()
	}
	return found
}

// convertObject converts the object by a function of whole objects: all that is planned of
// it becomes one edit.
func (w *converter) convertObject(p *plan) error {
	r, conversion := w.rewriter, w.engine.conversions[p.whole.id].whole
	way := direction{
		envelope: envelope{source: &r.source, changes: &r.changes}, comparer: &r.comparer,
		forth: conversion.down, back: conversion.up, here: r.source.value(nodeAPIVersion), there: p.apiVersion,
	}
	if p.toHub {
		way.forth, way.back = way.back, way.forth
	}
	members, err := restOf(r.source.value(nodeRoot))
	if err != nil {
		return err
	}
	live := objectOf(members) // What is the engine's is not kept: it does not get lost.
	forth := way.convert
	back := func(value []byte) ([]byte, error) { return way.reverse().convert(value) }
	kept := r.complement.entry("")
	made := r.complement.keptValue(kept, live, back)
	if made == nil {
		if made, err = way.convert(live); err != nil {
			return at("", err)
		}
		lost := !r.source.partial && !way.returns(live, made)
		if restored := r.complement.restored(kept, made, nil, forth, back); restored != nil {
			made = restored
		}
		if lost {
			r.complement.keep("", live, made)
		}
	}
	return w.replaceRest(p, made)
}

// replaceRest plans that the members which are not the engine's are these.
func (w *converter) replaceRest(p *plan, made []byte) error {
	r := w.rewriter
	if err := w.annotate(p); err != nil {
		return err
	}
	if err := r.write(); err != nil {
		return err
	}
	// Only now do the edits have all of the metadata that goes around what was made.
	out, err := envelope{source: &r.source, changes: &r.changes}.around(p.apiVersion, made)
	if err != nil {
		return err
	}
	root := &r.source.nodes[nodeRoot]
	r.changes.edits = append(r.changes.edits[:0], edit{start: root.start, end: root.end, text: out})
	return nil
}

// returns reports whether what was made of an object would come back.
func (c direction) returns(live, made []byte) bool {
	again, err := c.reverse().convert(made)
	if err != nil {
		return false
	}
	if c.comparer.equal(live, again) {
		return true
	}
	if c.forth.same == nil {
		return false
	}
	before, err := c.envelope.around(c.here, live)
	if err != nil {
		return false
	}
	after, err := c.envelope.around(c.here, again)
	return err == nil && c.forth.same(before, after)
}

// envelope is what of an object is the engine's: apiVersion, kind and metadata. No function
// can change them, and what has no name is not made one by a function.
type envelope struct {
	source  *source
	changes *changes
}

// around returns the object with this apiVersion, the members of rest, and metadata as the
// edits make it. The members that the source has stand in its order.
func (e envelope) around(apiVersion, rest []byte) ([]byte, error) {
	members, err := membersOf(rest)
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, m := range members {
		values[m.key] = m.value
	}
	values["apiVersion"] = apiVersion
	values["kind"] = e.source.value(nodeKind)
	values["metadata"] = emptyObject
	if metadata := &e.source.nodes[nodeMetadata]; metadata.present {
		values["metadata"] = e.changes.edits.render(e.source.text, metadata.start, metadata.end)
	}
	root := e.source.value(nodeRoot)
	dst := append(make([]byte, 0, len(root)+len(rest)), '{')
	first := true
	emit := func(key string) {
		if value, ok := values[key]; ok {
			dst = appendMember(dst, first, key, value)
			first = false
			delete(values, key)
		}
	}
	err = raw.Members(root, func(key, _ []byte) bool {
		emit(string(key))
		return true
	})
	emit("metadata")
	for _, m := range members {
		emit(m.key)
	}
	return append(dst, '}'), err
}
