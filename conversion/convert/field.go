package convert

import (
	"fmt"
	"slices"
)

// worker converts values in both directions, for one request at a time.
type worker interface {
	// convert appends the converted value to dst. Even if it returns an error, it may have written to the free capacity
	// of dst.
	convert(dst, value []byte, toHub bool) ([]byte, error)
	// returns reports whether the reverse function gives back the same value or an equivalent one. The last call of
	// convert must have been for this value, and converted is its result.
	returns(value, converted []byte, toHub bool) bool
	// release drops the references to values.
	release()
}

// Field converts the value at a place. spoke and hub are the places in the two versions: keys from the root, separated
// by dots, such as "spec.toppings"; see the package comment. If the places differ, the value moves. Metadata,
// apiVersion and kind cannot be converted. If an object already has a value at the target place, the object is not
// converted. So a version must not use the old place of a moved value for another value. To do this nevertheless,
// convert the parent as one value.
//
// The engine decodes the value into S or H as API servers do: keys are case-sensitive, and integers in values of type
// any are int64. It encodes as encoding/json does. It calls UnmarshalJSON, MarshalJSON and AppendJSON([]byte) ([]byte,
// error) of S and H directly. It does not call the functions for an absent value, which stays absent, nor for null,
// which stays null. The functions must be safe for concurrent use, and their results must depend only on the argument,
// because the engine also calls the reverse function to find losses. A function may modify and keep its argument,
// unless a declared equivalence reads that argument.
func Field[S, H any](spoke, hub string, toHub func(S) (H, error), toSpoke func(H) (S, error), o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	if c.err != nil {
		return c
	}
	if toHub == nil || toSpoke == nil {
		c.err = errNoFunction
		return c
	}
	sameSpoke, sameHub, err := equivalences[S, H](c.options)
	if err != nil {
		c.err = err
		return c
	}
	spokes, hubs := typeShape[S](), typeShape[H]()
	c.worker = func() worker {
		w := &typed[S, H]{}
		w.up = way[S, H]{f: toHub, back: toSpoke, same: sameSpoke, in: newCodec[S](spokes), out: newCodec[H](hubs), comparer: &w.comparer}
		w.down = way[H, S]{f: toSpoke, back: toHub, same: sameHub, in: w.up.out, out: w.up.in, comparer: &w.comparer}
		return w
	}
	return c
}

// conversion returns a conversion between two places with these options.
func conversion(spoke, hub string, o []Option) Conversion {
	c := Conversion{spoke: spoke, hub: hub}
	for _, option := range o {
		option(&c.options)
	}
	if c.options.hasFill {
		c.err = errDefaultTwice
	}
	return c
}

// equivalences returns the two functions of an [Equivalent] option.
func equivalences[S, H any](o options) (spoke func(a, b S) bool, hub func(a, b H) bool, err error) {
	var ok bool
	if spoke, ok = o.spoke.(func(a, b S) bool); !ok && o.spoke != nil {
		return nil, nil, fmt.Errorf("the equivalence of the spoke is a %T, want a %T", o.spoke, spoke)
	}
	if hub, ok = o.hub.(func(a, b H) bool); !ok && o.hub != nil {
		return nil, nil, fmt.Errorf("the equivalence of the hub is a %T, want a %T", o.hub, hub)
	}
	return spoke, hub, nil
}

// typed converts the values of a [Field].
type typed[S, H any] struct {
	up       way[S, H]
	down     way[H, S]
	comparer comparer
}

func (w *typed[S, H]) convert(dst, value []byte, toHub bool) ([]byte, error) {
	if toHub {
		return w.up.convert(dst, value)
	}
	return w.down.convert(dst, value)
}

func (w *typed[S, H]) returns(value, converted []byte, toHub bool) bool {
	if toHub {
		return w.up.returns(value, converted)
	}
	return w.down.returns(value, converted)
}

func (w *typed[S, H]) release() {
	w.up.release()
	w.down.release()
	w.comparer.release()
}

// way is one direction of a [Field].
type way[A, B any] struct {
	f        func(A) (B, error)
	back     func(B) (A, error)
	same     func(a, b A) bool
	in       *codec[A]
	out      *codec[B]
	comparer *comparer

	value, again A
	exact        bool // exact is true if the type has fields for all members of value.
	converted    B
	scratch      []byte
}

// convert decodes the value, calls the function, and encodes the result. It stores both Go values for the method
// returns.
func (w *way[A, B]) convert(dst, value []byte) ([]byte, error) {
	if err := w.in.decode(value, &w.value); err != nil {
		return dst, err
	}
	w.exact = w.in.exact
	var err error
	if w.converted, err = w.f(w.value); err != nil {
		return dst, err
	}
	return w.out.encode(dst, &w.converted, value)
}

// returns converts the value back. It decodes the converted value only if decoding could give another value than the
// result of the function, because decoding is as expensive as the conversion itself.
func (w *way[A, B]) returns(value, converted []byte) bool {
	if !w.out.faithful(converted) && w.out.decode(converted, &w.converted) != nil {
		return false
	}
	var err error
	if w.again, err = w.back(w.converted); err != nil {
		return false
	}
	if w.scratch, err = w.in.encode(w.scratch[:0], &w.again, converted); err != nil {
		return false
	}
	if w.comparer.equal(value, w.scratch) {
		return true
	}
	if w.same == nil || !w.exact && !w.in.knows(value) {
		return false
	}
	return w.equivalent(value)
}

// equivalent reports whether the declared equivalence accepts the value that came back.
func (w *way[A, B]) equivalent(value []byte) bool {
	if !w.in.faithful(w.scratch) && w.in.decode(w.scratch, &w.again) != nil {
		return false
	}
	// The conversion function may have modified the decoded value. If so, the value is decoded again.
	var err error
	w.scratch, err = w.in.encode(w.scratch[:0], &w.value, value)
	if (err != nil || !w.in.faithful(w.scratch) || !w.comparer.equal(value, w.scratch)) && w.in.decode(value, &w.value) != nil {
		return false
	}
	return w.same(w.value, w.again)
}

func (w *way[A, B]) release() {
	var a A
	var b B
	w.value, w.again, w.converted = a, a, b
	trim(&w.scratch)
}

// RawField is [Field] with functions of JSON. Each function appends the converted value to dst. It must not modify
// value or the existing content of dst, and must not keep either slice.
func RawField(spoke, hub string, toHub, toSpoke func(dst, value []byte) ([]byte, error), o ...Option) Conversion {
	c := conversion(spoke, hub, o)
	if c.err != nil {
		return c
	}
	if toHub == nil || toSpoke == nil {
		c.err = errNoFunction
		return c
	}
	sameSpoke, sameHub, err := equivalences[[]byte, []byte](c.options)
	if err != nil {
		c.err = err
		return c
	}
	c.worker = func() worker {
		return &untyped{toHub: toHub, toSpoke: toSpoke, sameSpoke: sameSpoke, sameHub: sameHub}
	}
	return c
}

// untyped converts the values of a [RawField].
type untyped struct {
	toHub, toSpoke     func(dst, value []byte) ([]byte, error)
	sameSpoke, sameHub func(a, b []byte) bool
	comparer           comparer
	scratch            []byte
}

func (w *untyped) convert(dst, value []byte, toHub bool) ([]byte, error) {
	f := w.toSpoke
	if toHub {
		f = w.toHub
	}
	out, err := f(dst, value)
	if err != nil {
		return dst, err
	}
	if len(out) < len(dst) {
		return dst, errNotAppended
	}
	appended := out[len(dst):]
	if len(out) > cap(dst) || len(out) > 0 && &out[0] != &dst[:1][0] {
		// Another owner may use this memory, so the text is copied.
		out = append(slices.Clip(dst), appended...)
	}
	return out, checkJSON(&w.comparer.s, appended)
}

func (w *untyped) returns(value, converted []byte, toHub bool) bool {
	var err error
	w.scratch, err = w.convert(w.scratch[:0], converted, !toHub)
	if err != nil {
		return false
	}
	same := w.sameHub
	if toHub {
		same = w.sameSpoke
	}
	return w.comparer.equal(value, w.scratch) || same != nil && same(value, w.scratch)
}

func (w *untyped) release() {
	w.comparer.release()
	trim(&w.scratch)
}
