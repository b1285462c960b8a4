package verify

import (
	"bytes"
	"encoding/json"
	"fmt"

	"refract.dev/conversion/structural"
)

// sample is an object for trials. Unless it is recorded, an API server would accept it.
type sample struct {
	version *structural.Version
	// raw is the object as a client writes it, without unknown fields. object is raw after defaulting, and text is the
	// JSON of object.
	raw, object map[string]any
	text        []byte
	// invalid is the reason why an API server would reject the object; "" for a valid object. Only recorded objects may
	// be invalid.
	invalid string
	// recorded is the number of a recorded object, counted from 1; 0 for a generated object.
	recorded int
}

// newSample returns an object in the form in which an API server stores it. why is the reason why the API server would
// reject the object; "" for a valid object.
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

// decode returns an object in the form that an API server finally returns. It decodes twice, because a null in a
// default is pruned only by the second read.
func decode(version *structural.Version, obj map[string]any) (map[string]any, error) {
	r, err := version.Decode(obj)
	if err == nil && len(r.Changes) > 0 {
		r, err = version.Decode(r.Object)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // Callers add the name of the object.
	}
	return r.Object, nil
}

// encode returns a value as JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Errorf("writing what has been read: %w", err)) // Cannot happen: the value was decoded from JSON.
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// document is the result of a conversion.
type document struct {
	// bytes is the JSON that the conversion returned. object is its content, decoded as by an API server: numbers are
	// int64 or float64. object must not be modified.
	bytes  []byte
	object map[string]any

	kept []byte
}

// text returns the object in the form in which an API server stores it and sends it to the next conversion. For
// example, 1.10 and 1e1 become 1.1 and 10, and numbers lose digits that a float64 does not have.
func (d *document) text() []byte {
	if d.kept == nil {
		d.kept = encode(d.object)
	}
	return d.kept
}

// trial is a conversion of a sample to another version. It caches values that several laws use.
type trial struct {
	*sample

	to *structural.Version
	// over is a third version; the conversion can also go through it. It may be nil.
	over *structural.Version
	// mate is another object of the same version that can be converted; it may be nil.
	mate []byte

	// out is the result of the conversion, and back is the result of the conversion back. In a comparison, theirs is
	// the result of the other subject.
	out, back, theirs outcome
	// pruned and decoded are the object in out after pruning, and after pruning and defaulting.
	pruned    *structural.Result
	decoded   map[string]any
	decodeErr error
}

// arrive computes pruned and decoded: the converted object as an API server stores it after a write.
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
