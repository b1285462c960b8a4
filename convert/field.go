package convert

import (
	"fmt"
	"slices"
)

// worker converts values in both directions, for one request at a time.
type worker interface {
	// convert appends what becomes of a value. Some of the memory of dst may be written to
	// even if there is an error.
	convert(dst, value []byte, toHub bool) ([]byte, error)
	// returns reports whether what the last call of convert made of this value would come
	// back as the same value, or an equivalent one.
	returns(value, converted []byte, toHub bool) bool
	// release forgets the values.
	release()
}

// Field converts the value at a place. Spoke and hub are the places in the two versions:
// the keys from the root on with dots between them, such as "spec.toppings"; the package
// comment has more about places. If they differ the value moves. Places inside metadata, apiVersion and kind are not for it. An
// object that has a value at the place to move to already is not converted, so that a
// version cannot use the name that a value had in another one for something new: convert
// the parent as one value then.
//
// The value is decoded into S or H as API servers do, with keys that are case-sensitive and
// integers that are int64 in values of type any, and encoded as by encoding/json;
// UnmarshalJSON,
// MarshalJSON and AppendJSON([]byte) ([]byte, error) of S and H are called directly. The
// functions are called neither for a value that is not there, which is not there
// afterwards either, nor for null, which stays null. They must be safe for concurrent use
// and depend on their argument alone: the engine also calls the other one, to see whether
// something gets lost. An argument is theirs, unless they have declared an equivalence
// that looks at it.
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

// conversion returns a conversion of two places, with its options.
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

// equivalences returns the functions of [Equivalent].
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

// typed converts values of a [Field].
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

// way is one direction.
type way[A, B any] struct {
	f        func(A) (B, error)
	back     func(B) (A, error)
	same     func(a, b A) bool
	in       *codec[A]
	out      *codec[B]
	comparer *comparer

	value, again A
	exact        bool // Nothing of value was left out.
	converted    B
	scratch      []byte
}

// convert keeps what it has decoded and made, for returns to look at.
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

// returns takes the value back. It decodes what was made only if that is not sure to be what the
// function has returned: that costs as much as the conversion itself.
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

// equivalent reports whether the value and what came back mean the same.
func (w *way[A, B]) equivalent(value []byte) bool {
	if !w.in.faithful(w.scratch) && w.in.decode(w.scratch, &w.again) != nil {
		return false
	}
	// The function may have changed what it was given.
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

// RawField is [Field] on JSON: each function appends what becomes of value to dst, and
// modifies neither value nor what is in dst already. It must not keep them.
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

// untyped converts values of a [RawField].
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
		// Memory that may be somebody else's.
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
