package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"refract.dev/structural"
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

	// out is what becomes of it, back what comes back of that, and theirs what another subject
	// makes of it, if two are compared.
	out, back, theirs outcome
	// pruned and decoded are what an API server makes of out.
	pruned    *structural.Result
	decoded   map[string]any
	decodeErr error
}

// arrive makes of what comes out what an API server makes of it if it is written back.
func (t *trial) arrive() error {
	if t.decoded != nil || t.decodeErr != nil {
		return t.decodeErr
	}
	if t.pruned, t.decodeErr = t.to.Prune(t.out.document.object); t.decodeErr != nil {
		return t.decodeErr
	}
	t.decoded, t.decodeErr = decode(t.to, t.pruned.Object)
	return t.decodeErr
}
