package convert

import (
	"encoding/json"
	"errors"
	"sync"

	apijson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/tree/raw"
)

// whole converts whole objects. It is immutable, and safe for concurrent use.
type whole struct {
	up, down *step
}

// step is one direction.
type step struct {
	// run returns what the function was given and what it made of it, as they are encoded,
	// and whether the function was given all of the object.
	run func(object []byte) (given, made []byte, complete bool, err error)
	// same reports whether two objects of this version mean the same; nil: if they are equal.
	same func(a, b []byte) bool
	// empty is what the function makes of an empty object; nil if it fails.
	empty func() []byte
	// explicit says that null is only made by a function that wants it.
	explicit bool
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
//     conversion of an empty object. There is no null where there was none.
//
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
	c.whole = &whole{up: typedStep(toHub, sameSpoke), down: typedStep(toSpoke, sameHub)}
	return c
}

func typedStep[A, B any](f func(*A, *B) error, same func(a, b A) bool) *step {
	s := &step{run: func(object []byte) (given, made []byte, complete bool, err error) {
		a, b := new(A), new(B)
		if err := json.Unmarshal(object, a); err != nil {
			return nil, nil, false, err
		}
		if given, err = json.Marshal(a); err != nil { // Before f changes it.
			return nil, nil, false, err
		}
		if err := f(a, b); err != nil {
			return nil, nil, false, err
		}
		made, err = json.Marshal(b)
		return given, made, knowsRest[A](object), err
	}}
	if same != nil {
		s.same = func(a, b []byte) bool {
			va, vb := new(A), new(A)
			c := newCodec[A](nil)
			return knowsRest[A](a) && c.decode(a, va) == nil && c.decode(b, vb) == nil && same(*va, *vb)
		}
	}
	s.empty = sync.OnceValue(s.makeEmpty)
	return s
}

// knowsRest reports whether the type has a place for all of an object but for what is the
// engine's.
func knowsRest[T any](object []byte) bool {
	members, err := restOf(object)
	return err == nil && newCodec[T](nil).knows(objectOf(members))
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
	c.whole = &whole{up: mapStep(toHub, sameSpoke), down: mapStep(toSpoke, sameHub)}
	return c
}

var errNoObject = errors.New("the conversion returned no object")

func mapStep(f func(map[string]any) (map[string]any, error), same func(a, b map[string]any) bool) *step {
	s := &step{explicit: true, run: func(object []byte) (given, made []byte, complete bool, err error) {
		var in map[string]any
		if err := apijson.Unmarshal(object, &in); err != nil {
			return nil, nil, false, err
		}
		if given, err = json.Marshal(in); err != nil { // Before f changes it.
			return nil, nil, false, err
		}
		out, err := f(in)
		if err != nil {
			return nil, nil, false, err
		}
		if out == nil {
			return nil, nil, false, errNoObject
		}
		made, err = json.Marshal(out)
		return given, made, true, err
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
func (s *step) makeEmpty() (rest []byte) {
	defer func() {
		if recover() != nil {
			rest = nil // It cannot take one: then there is nothing that it makes of one.
		}
	}()
	_, made, _, err := s.run([]byte(`{"metadata":{}}`))
	if err != nil {
		return nil
	}
	members, _ := restOf(made)
	return objectOf(members)
}

// convert returns the members of the object that become of one, but for its apiVersion,
// kind and metadata.
func (s *step) convert(object []byte) ([]byte, error) {
	given, made, complete, err := s.run(object)
	if err != nil {
		return nil, err
	}
	m := merger{incomplete: !complete, nulls: s.explicit && hasNull(object)}
	var parts [3][]byte
	for i, part := range [][]byte{object, given, made} {
		members, err := restOf(part)
		if err != nil {
			return nil, err
		}
		parts[i] = objectOf(members)
	}
	return m.merge(nil, "", parts[0], parts[1], parts[2], s.empty())
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

// convertWhole converts the object by a function of whole objects.
func (w *work) convertWhole(p *plan, partial bool) error {
	conversion := w.engine.conversions[p.whole.id].whole
	forth, back := conversion.down, conversion.up
	if p.toHub {
		forth, back = back, forth
	}
	root := &w.facts[nodeRoot]
	object := w.src[root.start:root.end]
	members, err := restOf(object)
	if err != nil {
		return err
	}
	live := objectOf(members)
	made := w.keptValue("", live, func(dst, kept []byte) ([]byte, error) {
		before, err := w.assemble(nil, p.apiVersion, kept)
		if err != nil {
			return nil, err
		}
		again, err := back.convert(before)
		return append(dst, again...), err
	})
	if made == nil {
		if made, err = forth.convert(object); err != nil {
			return at("", err)
		}
		if !partial && !w.wholeReturns(p, forth, back, live, made) {
			w.keep("", live, made)
		}
	}
	if err := w.annotate(p); err != nil {
		return err
	}
	if err := w.restructure(p); err != nil {
		return err
	}
	out, err := w.assemble(make([]byte, 0, len(object)+len(made)), p.apiVersion, made)
	if err != nil {
		return err
	}
	w.edits = append(w.edits[:0], edit{start: root.start, end: root.end, text: out})
	return nil
}

// wholeReturns reports whether what was made of an object would come back.
func (w *work) wholeReturns(p *plan, forth, back *step, live, made []byte) bool {
	after, err := w.assemble(nil, p.apiVersion, made)
	if err != nil {
		return false
	}
	again, err := back.convert(after)
	if err != nil {
		return false
	}
	if w.comparer.equal(live, again) {
		return true
	}
	if forth.same == nil {
		return false
	}
	before := w.facts[nodeAPIVersion]
	returned, err := w.assemble(nil, w.src[before.start:before.end], again)
	root := &w.facts[nodeRoot]
	return err == nil && forth.same(w.src[root.start:root.end], returned)
}

// assemble appends the object with this apiVersion, the members of rest, and metadata as
// the edits make it.
func (w *work) assemble(dst, apiVersion, rest []byte) ([]byte, error) {
	members, err := membersOf(rest)
	if err != nil {
		return nil, err
	}
	values := map[string][]byte{}
	for _, m := range members {
		values[m.key] = m.value
	}
	root, metadata := &w.facts[nodeRoot], &w.facts[nodeMetadata]
	values["apiVersion"] = apiVersion
	kind := &w.facts[nodeKind]
	values["kind"] = w.src[kind.start:kind.end]
	values["metadata"] = metadataMissing
	if metadata.present {
		values["metadata"] = w.render(nil, metadata.start, metadata.end)
	}
	dst = append(dst, '{')
	first := true
	emit := func(key string) {
		if value, ok := values[key]; ok {
			dst = appendMember(dst, first, key, value)
			first = false
			delete(values, key)
		}
	}
	err = raw.Members(w.src[root.start:root.end], func(key, _ []byte) bool {
		emit(string(key))
		return true
	})
	emit("metadata")
	for _, m := range members {
		emit(m.key)
	}
	return append(dst, '}'), err
}
