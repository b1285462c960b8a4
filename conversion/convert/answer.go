package convert

import (
	"io"

	"refract.dev/tree/raw"
)

// Answer is the answer to a ConversionReview. It is itself a ConversionReview, with a response, and refers to parts of
// the request body.
type Answer struct {
	parts          [][]byte
	size           int64
	err            error
	objects        int
	kind, from, to string
	unconverted    []*ObjectError
	kept           int
	named          [][]byte // The first objects, at most mostNamed, as received.
}

// Len returns the length of the answer in bytes.
func (a *Answer) Len() int64 { return a.size }

// Bytes returns the answer in one piece. The caller owns the slice.
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

// Err returns nil if the result is Success. Otherwise it returns the reason for the Failure: usually an [*ObjectError].
func (a *Answer) Err() error { return a.err }

// Objects returns the number of objects in the review.
func (a *Answer) Objects() int { return a.objects }

// mostNamed limits the results of [Answer.Unconverted] and [Answer.Name].
const mostNamed = 100

// Unconverted returns the first 100 objects with a part that could not be converted, and the number of all such
// objects. The annotation keeps these parts: see [Keep].
func (a *Answer) Unconverted() (first []*ObjectError, count int) { return a.unconverted, a.kept }

// Name returns the namespace and the name of the object at this index. ok is false for an object without a name, and
// for all objects after the first 100.
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
			*to, _ = raw.String(value) // Already read without error.
		}
	}
	return namespace, name, name != ""
}

// Kind returns the kind of the first object that needed a conversion. It is empty if no object needed one, or if the
// engine does not know the kind. So it is suitable as a metric label: the number of values is bounded.
func (a *Answer) Kind() string { return a.kind }

// From returns the source version, without group, of the object of [Answer.Kind].
func (a *Answer) From() string { return a.from }

// To returns the target version, without group, of the object of [Answer.Kind].
func (a *Answer) To() string { return a.to }

func (a *Answer) add(part []byte) {
	if len(part) == 0 {
		return
	}
	a.parts = append(a.parts, part)
	a.size += int64(len(part))
}

// addOf adds a part of a document. If the part begins where the last added part ends, it extends that part.
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

// succeed makes the answer a success with the objects that were added. head is the beginning of the answer.
func (a *Answer) succeed(head []byte) {
	if len(a.parts) == 0 {
		a.parts = append(a.parts, nil)
	}
	a.parts[0] = append(head, `"convertedObjects":[`...)
	a.size += int64(len(a.parts[0]))
	a.add(successTail)
}

var successTail = []byte(`],"result":{"status":"Success"}}}`)

// fail makes the answer a failure, and discards all converted objects.
func (a *Answer) fail(r *review, err error) {
	a.err = err
	a.unconverted, a.kept = nil, 0
	text := append(r.head(nil), `"convertedObjects":[],"result":{"status":"Failure","message":`...)
	text = append(raw.AppendString(text, err.Error()), `}}}`...)
	a.parts, a.size = [][]byte{text}, int64(len(text))
}
