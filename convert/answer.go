package convert

import (
	"io"

	"refract.dev/tree/raw"
)

// Answer is the answer to one ConversionReview: a ConversionReview with a response. It
// refers to parts of the request's body.
type Answer struct {
	parts          [][]byte
	size           int64
	err            error
	objects        int
	kind, from, to string
	unconverted    []*ObjectError
	kept           int
	named          [][]byte // The first objects, as they came.
}

// Len returns how many bytes the answer has.
func (a *Answer) Len() int64 { return a.size }

// Bytes returns the answer in one piece, which is the caller's.
func (a *Answer) Bytes() []byte {
	b := make([]byte, 0, a.size)
	for _, part := range a.parts {
		b = append(b, part...)
	}
	return b
}

// WriteTo writes the answer.
func (a *Answer) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for _, part := range a.parts {
		n, err := w.Write(part)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Err returns nil if the answer is Success, and otherwise why it is Failure: usually an
// [*ObjectError].
func (a *Answer) Err() error { return a.err }

// Objects returns how many objects the review has.
func (a *Answer) Objects() int { return a.objects }

// mostNamed is how many objects an answer names of which something was kept.
const mostNamed = 100

// Unconverted returns the first of the objects of which something was kept since it cannot be
// converted, see [Keep], at most 100, and of how many something was.
func (a *Answer) Unconverted() (first []*ObjectError, count int) { return a.unconverted, a.kept }

// Name returns the namespace and the name of the object at this index; ok is false beyond the first
// 100, and if it has none.
func (a *Answer) Name(index int) (namespace, name string, ok bool) {
	if index >= len(a.named) {
		return "", "", false
	}
	metadata, err := raw.Field(a.named[index], "metadata")
	if err != nil {
		return "", "", false
	}
	for key, to := range map[string]*string{"namespace": &namespace, "name": &name} {
		if value, err := raw.Field(metadata, key); err == nil && len(value) > 0 && value[0] == '"' {
			*to, _ = raw.String(value) // It was read before.
		}
	}
	return namespace, name, name != ""
}

// Kind returns the kind of the first object that was not in the version that was wanted;
// empty if there is none, or the engine does not know it. So the number of kinds that it
// ever returns is bounded.
func (a *Answer) Kind() string { return a.kind }

// From returns the version, without group, of the object of [Answer.Kind].
func (a *Answer) From() string { return a.from }

// To returns the version, without group, that was wanted of the object of [Answer.Kind].
func (a *Answer) To() string { return a.to }

func (a *Answer) add(part []byte) {
	if len(part) == 0 {
		return
	}
	a.parts = append(a.parts, part)
	a.size += int64(len(part))
}

// addOf adds a part of a document, which continues the last part if that is possible.
func (a *Answer) addOf(document []byte, start, end int) {
	if start == end {
		return
	}
	if n := len(a.parts); n > 0 && start > 0 {
		last := a.parts[n-1]
		if len(last) <= start && cap(last) >= len(last)+end-start && &last[0] == &document[start-len(last)] {
			a.parts[n-1] = document[start-len(last) : end]
			a.size += int64(end - start)
			return
		}
	}
	a.add(document[start:end])
}

// succeed puts the envelope of a success around the objects.
func (a *Answer) succeed(head []byte) {
	if len(a.parts) == 0 {
		a.parts = append(a.parts, nil)
	}
	a.parts[0] = append(head, `"convertedObjects":[`...)
	a.size += int64(len(a.parts[0]))
	a.add(successTail)
}

var successTail = []byte(`],"result":{"status":"Success"}}}`)

// fail makes the answer a failure. Nothing else remains of it.
func (a *Answer) fail(r *review, err error) {
	a.err = err
	a.unconverted, a.kept = nil, 0
	text := append(r.head(nil), `"convertedObjects":[],"result":{"status":"Failure","message":`...)
	text = append(raw.AppendString(text, err.Error()), `}}}`...)
	a.parts, a.size = [][]byte{text}, int64(len(text))
}
