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
	// run calls the function. It returns the argument and the result of the function, both as JSON.
	run func(object []byte) (given, made []byte, err error)
	// same reports whether two objects of the source version are equivalent; nil if only equal objects are.
	same func(a, b []byte) bool
	// empty returns the result of the function for an empty object; nil if the function fails.
	empty func() *tree
	// explicit is true if every null in the result is intended.
	explicit bool
	// in and out describe the fields of the Go types of the argument and the result; nil for maps.
	in, out *known
}

// Object converts whole objects of Go types: structs with json tags, usually with TypeMeta, ObjectMeta, Spec and
// Status. A function reads its first argument and fills the second one, which is empty.
//
//   - The engine owns metadata, apiVersion and kind. The functions may read them; the engine ignores their changes.
//   - Where the encoded result equals the encoded argument, the output has the bytes of the input. So a function
//     affects only the values that it changes. A field that the types do not have stays at its place. If that place no
//     longer exists, the object is not converted.
//   - An absent field stays absent, unless its value differs from the one that an empty object gets. No null is added.
//     Below the root, there is an exception: the field is written if the object would otherwise not convert back to the
//     same object, because a surplus zero is better than a missing value. If it matters whether a user has written a
//     zero, use pointers or omitempty in the types, or a [Field].
//   - For a field with omitempty, the function cannot distinguish a zero value from an absent field. Such a zero value
//     is removed, unless the type of the other version has a field of the same name and kind. The annotation of the
//     whole object keeps the zero value; the applied fields of a field manager lose it. A pointer avoids this.
//
// Names of fields are case-sensitive, and integers in values of type any are int64. An Object must be the only
// conversion of its spoke.
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

// typedStep returns one direction of an [Object]. The function receives only the fields that its type has.
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

// knowsRest reports whether the type has fields for all members of an object except apiVersion, kind and metadata.
func (s *step) knowsRest(object []byte) bool {
	t, err := restTree(object)
	return err == nil && s.in.all(t)
}

// Unstructured converts whole objects as maps, with numbers of type int64 or float64. The functions get a copy, which
// they may modify and return. The rules of [Object] apply, except that a map has every field. A number that these types
// do not represent exactly, or with another notation, stays unchanged if the value keeps its place or stays in its
// list.
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

// mapStep returns one direction of an [Unstructured]. A map has every field.
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

// makeEmpty returns the result of the function for an empty object; nil if the function fails.
func (s *step) makeEmpty() (rest *tree) {
	defer func() {
		if recover() != nil {
			rest = nil // The function panics on an empty object, so there is no result.
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

// run has the input and the result of one call of a function.
type run struct {
	step                  *step
	original, given, made *tree
	nulls                 bool
}

// apply calls the function with an object, and parses the argument and the result of the function.
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

// merged returns the members of the converted object. It also returns the number of optional members below the root,
// which shed controls: see [merger].
func (r *run) merged(shed []bool) ([]byte, int, error) {
	m := merger{nulls: r.nulls, shed: shed}
	rest, err := m.merge(nil, true, r.original, r.given, r.made, r.step.empty(), r.step.in, r.step.out)
	return rest, m.spared, err
}

// misses reports whether again lacks a member of original that equals the member of empty, at any depth.
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

// member is a member of an object.
type member struct {
	key   string
	value []byte
}

// membersOf returns the members of an object, and an error for a duplicate key.
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

// restOf returns the members except apiVersion, kind and metadata.
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

// objectOf returns an object with these members.
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

// restTree parses an object without apiVersion, kind and metadata.
func restTree(object []byte) (*tree, error) {
	members, err := restOf(object)
	if err != nil {
		return nil, err
	}
	return treeOf(objectOf(members))
}

// hasNull reports whether a value contains null at any depth.
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

// convertObject plans the conversion of an object by functions of whole objects. The result is one edit.
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
	live := objectOf(members) // The annotation need not keep metadata, apiVersion and kind: they do not get lost.
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

// replaceRest plans the replacement of all members except apiVersion, kind and metadata.
func (w *converter) replaceRest(p *plan, made []byte) error {
	r := w.rewriter
	if err := w.annotate(p); err != nil {
		return err
	}
	if err := r.write(); err != nil {
		return err
	}
	// The metadata of the output needs the edits of the annotations, which are complete now.
	out, err := envelope{source: &r.source, changes: &r.changes}.around(p.apiVersion, made)
	if err != nil {
		return err
	}
	root := &r.source.nodes[nodeRoot]
	r.changes.edits = append(r.changes.edits[:0], edit{start: root.start, end: root.end, text: out})
	return nil
}

// envelope has apiVersion, kind and metadata of an object. The functions of users cannot change them, and cannot give a
// name to an object without a name.
type envelope struct {
	source  *source
	changes *changes
}

// around returns an object with this apiVersion, the edited metadata and the members of rest. Members that the source
// also has keep their order.
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
