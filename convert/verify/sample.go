package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/structural"
	"refract.dev/structural/generate"
)

// sample is an object that an API server may have.
type sample struct {
	version *structural.Version
	// raw is as somebody has written it, object has the defaults, and text is its JSON.
	raw, object map[string]any
	text        []byte
	// invalid is why a recorded object would be refused in its version; empty if it would not.
	invalid string
	// recorded is its number among the recorded objects, from 1; 0 if it was made up.
	recorded int
}

// newSample returns what an API server makes of an object, and why it would refuse that:
// empty if it would not.
func newSample(version *structural.Version, obj map[string]any) (s *sample, why string) {
	pruned, err := version.Prune(obj)
	if err != nil {
		return nil, err.Error()
	}
	object, err := decode(version, pruned.Object)
	if err != nil {
		return nil, err.Error()
	}
	s = &sample{version: version, raw: pruned.Object, object: object, text: encode(object)}
	if wrong := version.Validate(s.object); len(wrong) > 0 {
		s.invalid = wrong[0].String()
	}
	return s, s.invalid
}

// decode returns what an API server makes of an object in the end: a null inside a default
// is pruned when the object is read again.
func decode(version *structural.Version, obj map[string]any) (map[string]any, error) {
	r, err := version.Decode(obj)
	if err == nil && len(r.Changes) > 0 {
		r, err = version.Decode(r.Object)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // Callers say what the object is.
	}
	return r.Object, nil
}

// encode returns a value as JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Errorf("writing what has been read: %w", err)) // It has come from JSON.
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// document is an object that has come out of a conversion.
type document struct {
	// bytes are what came out, and object what an API server reads there: numbers are int64
	// or float64. It must not be modified.
	bytes  []byte
	object map[string]any

	kept []byte
}

// text returns the object as an API server keeps it, and sends it to whoever converts it
// next: 1.10 and 1e1 have become 1.1 and 10 then, and digits that no float64 has are gone.
func (d *document) text() []byte {
	if d.kept == nil {
		d.kept = encode(d.object)
	}
	return d.kept
}

// trial is a sample on its way to another version. What is computed once for all laws is
// kept.
type trial struct {
	*sample

	to *structural.Version
	// over is a third version; nil if there are two only.
	over *structural.Version
	// mate is another object of the version, which can be converted; nil if there is none.
	mate []byte

	out     *document
	outErr  error
	back    *document
	backErr error
	// pruned and decoded are what an API server makes of out.
	pruned    *structural.Result
	decoded   map[string]any
	decodeErr error
	// theirs is what another subject makes of it, if two are compared.
	theirs    *document
	theirsErr error
}

// forward returns the object in the other version.
func (r *runner) forward(t *trial) (*document, error) {
	if t.out == nil && t.outErr == nil {
		t.out, t.outErr = r.convert(t.text, t.to)
	}
	return t.out, t.outErr
}

// backward returns what comes back from the other version.
func (r *runner) backward(t *trial) (*document, error) {
	if t.back == nil && t.backErr == nil {
		t.back, t.backErr = r.convert(t.out.text(), t.version)
	}
	return t.back, t.backErr
}

// arrive makes of what comes out what an API server makes of it if it is written back.
func (*runner) arrive(t *trial) error {
	if t.decoded != nil || t.decodeErr != nil {
		return t.decodeErr
	}
	if t.pruned, t.decodeErr = t.to.Prune(t.out.object); t.decodeErr != nil {
		return t.decodeErr
	}
	t.decoded, t.decodeErr = decode(t.to, t.pruned.Object)
	return t.decodeErr
}

// convert converts one object.
func (r *runner) convert(text []byte, to *structural.Version) (*document, error) {
	all, err := convertAll(r.ctx, r.subject, [][]byte{text}, to)
	if err != nil {
		return nil, err
	}
	return parse(all[0])
}

// convertObject converts one object.
func (r *runner) convertObject(obj map[string]any, to *structural.Version) (*document, error) {
	return r.convert(encode(obj), to)
}

// convertAll converts objects. A panic is an error.
func convertAll(ctx context.Context, s Subject, texts [][]byte, to *structural.Version) (out [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	out, err = s.Convert(ctx, texts, to.APIVersion())
	if err != nil {
		return nil, err //nolint:wrapcheck // It is what is reported.
	}
	if len(out) != len(texts) {
		return nil, fmt.Errorf("%w: it has %d objects, want %d", ErrContract, len(out), len(texts))
	}
	return out, nil
}

// parse reads what has come out of a conversion.
func parse(text []byte) (*document, error) {
	d := &document{bytes: text}
	if err := utiljson.Unmarshal(text, &d.object); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrContract, err)
	}
	if d.object == nil {
		return nil, fmt.Errorf("%w: null instead of an object", ErrContract)
	}
	return d, nil
}

// source returns a source for a place in the order of objects.
func (r *runner) source(parts ...uint64) generate.Source {
	seed := r.options.Seed
	for _, p := range parts {
		seed = generate.Seeded(seed + p).Uint64()
	}
	return generate.Seeded(seed)
}
