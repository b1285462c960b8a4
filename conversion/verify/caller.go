package verify

import (
	"context"
	"fmt"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"refract.dev/conversion/structural"
)

// caller calls a subject, and decodes the results as an API server does.
type caller struct {
	ctx     context.Context //nolint:containedctx // Valid only during a call of Run.
	subject Subject
}

// outcome is the result of one conversion.
type outcome struct {
	document *document
	err      error
}

// isKnown reports whether the conversion was tried.
func (o outcome) isKnown() bool { return o.document != nil || o.err != nil }

// forward returns the object in the other version. It converts the object only once.
func (c caller) forward(t *trial) (*document, error) {
	if !t.out.isKnown() {
		t.out.document, t.out.err = c.convert(t.text, t.to)
	}
	return t.out.document, t.out.err
}

// backward returns the object after the conversion to the other version and back. It converts the object only once.
func (c caller) backward(t *trial) (*document, error) {
	if !t.back.isKnown() {
		t.back.document, t.back.err = c.convert(t.out.document.text(), t.version)
	}
	return t.back.document, t.back.err
}

// convert converts one object.
func (c caller) convert(text []byte, to *structural.Version) (*document, error) {
	all, err := c.convertAll([][]byte{text}, to)
	if err != nil {
		return nil, err
	}
	return parse(all[0])
}

// convertObject converts one object.
func (c caller) convertObject(obj map[string]any, to *structural.Version) (*document, error) {
	return c.convert(encode(obj), to)
}

// convertAll converts objects in one call. It returns a panic as an error.
func (c caller) convertAll(texts [][]byte, to *structural.Version) (out [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	out, err = c.subject.Convert(c.ctx, texts, to.APIVersion())
	if err != nil {
		return nil, err //nolint:wrapcheck // The error is a result.
	}
	if len(out) != len(texts) {
		return nil, fmt.Errorf("%w: it has %d objects, want %d", ErrContract, len(out), len(texts))
	}
	return out, nil
}

// convertEach converts objects, all in one call if possible. One object that cannot be converted fails the whole call.
// convertEach then splits the list into halves.
func (c caller) convertEach(texts [][]byte, to *structural.Version) []outcome {
	all, err := c.convertAll(texts, to)
	switch half := len(texts) / 2; {
	case err != nil && len(texts) == 1:
		return []outcome{{err: err}}
	case err != nil:
		return append(c.convertEach(texts[:half], to), c.convertEach(texts[half:], to)...)
	}
	out := make([]outcome, len(all))
	for i, text := range all {
		out[i].document, out[i].err = parse(text)
	}
	return out
}

// parse decodes the JSON that a conversion has returned.
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
