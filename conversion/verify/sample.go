package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"refract.dev/conversion/structural"
)

// sample is an object that an API server may have.
type sample struct {
	version *structural.Version
	// raw is the object as written by a client. object has its defaults filled in, and text is the JSON of object.
	raw, object map[string]any
	text        []byte
	// invalid is the reason why an API server would reject a recorded object; "" for a valid object.
	invalid string
	// recorded is the number of a recorded object, from 1; 0 for a generated object.
	recorded int
}

// newSample returns an object as an API server stores it, and the reason why the API server would reject it; "" for a
// valid object.
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

// decode returns an object as an API server finally reads it. A null inside a default is pruned only on the second
// read.
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
		panic(fmt.Errorf("writing what has been read: %w", err)) // It was decoded from JSON.
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// document is the result of a conversion.
type document struct {
	// bytes is the returned JSON, and object its content as an API server decodes it: numbers are int64 or float64. It
	// must not be modified.
	bytes  []byte
	object map[string]any

	kept []byte
}

// text returns the object as an API server stores it and sends it to the next conversion: 1.10 and 1e1 become 1.1 and
// 10, and digits beyond a float64 are gone.
func (d *document) text() []byte {
	if d.kept == nil {
		d.kept = encode(d.object)
	}
	return d.kept
}

// trial is the conversion of a sample to another version. It caches values that several laws use.
type trial struct {
	*sample

	to *structural.Version
	// over is a third version that the conversion can go through, or nil.
	over *structural.Version
	// mate is another convertible object of the version, or nil.
	mate []byte

	// out is the converted object, and back the object that comes back. theirs is the result of the other subject in a
	// comparison.
	out, back, theirs outcome
	// pruned and decoded are the object of out as an API server prunes and decodes it.
	pruned    *structural.Result
	decoded   map[string]any
	decodeErr error
}

// arrive computes the converted object as an API server stores it after a write.
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
