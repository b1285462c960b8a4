package convert

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"refract.dev/tree/raw"
)

// Limits bound one review. Zero values mean the defaults. The number of objects has no limit: the time and the memory
// for a review grow only with the bytes of the review and of the answer.
type Limits struct {
	// OutputBytes is the maximum size of the answer in bytes, 512 MiB by default.
	OutputBytes int64
}

const defaultOutputBytes = 512 << 20

func (l Limits) orDefaults() Limits {
	if l.OutputBytes <= 0 {
		l.OutputBytes = defaultOutputBytes
	}
	return l
}

// review is a ConversionReview that is being read.
type review struct {
	apiVersion string
	uid        []byte // As JSON.
	desired    string
	answer     *Answer
	limits     Limits
	failed     error
	ours       bool // Whether the body is a ConversionReview.
	// deep is the error for an object with too many levels. The text after such an object cannot be read.
	deep error
}

// The API versions of reviews.
//
// Source:
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response
const (
	reviewV1      = "apiextensions.k8s.io/v1"
	reviewV1beta1 = "apiextensions.k8s.io/v1beta1"
)

var noText = []byte(`""`)

// Review answers a ConversionReview of version v1 or v1beta1, like [Engine.ReviewWith] with the default limits.
func (e *Engine) Review(body []byte) (*Answer, error) { return e.ReviewWith(body, Limits{}) }

// ReviewWith answers a ConversionReview of version v1 or v1beta1. It converts all objects, in order. If one of them
// cannot be converted, the answer is a failure without objects.
//
// ReviewWith returns an error, which wraps [ErrReview], only if body is not a ConversionReview with a request. The HTTP
// status for this error is 400. It does not modify body. The caller must not modify body before the answer has been
// written.
func (e *Engine) ReviewWith(body []byte, l Limits) (*Answer, error) {
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: %w", ErrReview, errUTF8)
	}
	w := e.acquire()
	defer e.recycle(w)
	r := &review{uid: noText, answer: &Answer{parts: make([][]byte, 0, 8)}, limits: l.orDefaults()}
	err := r.read(w, body)
	if err != nil && r.deep != nil && r.ours && r.apiVersion != "" && len(r.uid) > len(noText) {
		r.failed, err = r.deep, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReview, err)
	}
	if r.failed != nil {
		r.answer.fail(r, r.failed)
		return r.answer, nil
	}
	r.answer.succeed(r.head(w.rewriter.arena.room()))
	if r.answer.size > r.limits.OutputBytes {
		r.answer.fail(r, tooLarge(r.answer.size, r.limits))
	}
	return r.answer, nil
}

// Refuse answers a ConversionReview with a failure for this reason, and converts nothing. It is for servers that have
// no [Engine] for the kind. body and the error are as with [Engine.ReviewWith].
func Refuse(body []byte, why error) (*Answer, error) {
	if !utf8.Valid(body) {
		return nil, fmt.Errorf("%w: %w", ErrReview, errUTF8)
	}
	r := &review{uid: noText, answer: &Answer{}, limits: Limits{}.orDefaults(), failed: why}
	if err := r.read(&converter{}, body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReview, err)
	}
	r.answer.fail(r, why)
	return r.answer, nil
}

func tooLarge(size int64, l Limits) error {
	return fmt.Errorf("the answer would have %d bytes, more than %d", size, l.OutputBytes)
}

// read reads the body and converts the objects.
func (r *review) read(w *converter, body []byte) error {
	s := &w.outer
	s.Reset(body)
	seen := 0
	s.Object(func(key []byte) {
		switch string(key) {
		case "apiVersion":
			r.apiVersion = reviewVersion(once(s, &seen, 1))
		case "kind":
			r.ours = string(once(s, &seen, 2)) == "ConversionReview"
		case "request":
			if seen&4 != 0 {
				s.Fail(at("request", errTwice))
				return
			}
			seen |= 4
			if s.Next() == '{' {
				seen |= 8
				r.request(w, s)
			}
		}
	})
	if err := s.End(); err != nil {
		return err
	}
	switch {
	case !r.ours:
		return errors.New("kind: want ConversionReview")
	case r.apiVersion == "":
		return errors.New("apiVersion: want " + reviewV1 + " or " + reviewV1beta1)
	case seen&8 == 0:
		return errors.New("request: want an object")
	}
	return nil
}

// reviewVersion returns the API version of a review; "" if it is unknown.
func reviewVersion(text []byte) string {
	switch string(text) {
	case reviewV1:
		return reviewV1
	case reviewV1beta1:
		return reviewV1beta1
	default:
		return ""
	}
}

// once returns the string value of the present key, and sets the bit of the key in seen. If the bit is set already, the
// key is a duplicate, and the scan fails.
func once(s *raw.Scanner, seen *int, bit int) []byte {
	if *seen&bit != 0 {
		s.Fail(errTwice)
	}
	*seen |= bit
	return s.Text()
}

// request reads the request. It converts the objects after it has read the desired version.
func (r *review) request(w *converter, s *raw.Scanner) {
	var objects *raw.Scanner
	seen := 0
	s.Object(func(key []byte) {
		switch string(key) {
		case "uid":
			start := s.Offset()
			once(s, &seen, 1)
			r.uid = s.Since(start)
		case "desiredAPIVersion":
			if text := once(s, &seen, 2); w.last.to == string(text) {
				r.desired = w.last.to
			} else {
				r.desired = string(text)
			}
		case "objects":
			if seen&4 != 0 {
				s.Fail(at("objects", errTwice))
			}
			seen |= 4
			if r.desired != "" && s.Next() == '[' {
				r.convert(w, s)
				return
			}
			if !s.Null() {
				ahead := *s
				objects = &ahead
				s.Value()
			}
		}
	})
	if s.Err() != nil {
		return
	}
	if r.desired == "" {
		r.failed = errors.New("request.desiredAPIVersion: want GROUP/VERSION")
		return
	}
	if objects != nil {
		r.convert(w, objects)
		if err := objects.Err(); err != nil {
			s.Fail(err)
		}
	}
}

// convert converts the objects of the next array.
func (r *review) convert(w *converter, s *raw.Scanner) {
	a := r.answer
	body := s.Document()
	a.parts = append(a.parts, nil) // Placeholder for the beginning of the answer.
	same := func(start, end int) { a.addOf(body, start, end) }
	done := func(src []byte, start, end int) {
		for _, e := range w.rewriter.changes.edits {
			a.addOf(src, start, e.start)
			a.add(e.text)
			start = e.end
		}
		a.addOf(src, start, end)
	}
	s.OpenArray()
	end := 0 // Of the previous object.
	for first := true; s.NextElement(first); first = false {
		index := a.objects
		a.objects++
		if r.failed != nil {
			s.Value()
			continue
		}
		if !first {
			a.addOf(body, end, s.Offset()) // A comma.
		}
		start := s.Offset()
		o, err := w.object(s, r.desired, same, done)
		if s.Err() != nil {
			if errors.Is(s.Err(), raw.ErrDepth) {
				r.deep = &ObjectError{Index: index, Namespace: o.namespace, Name: o.name, From: o.from, To: r.desired, Err: s.Err()}
			}
			return
		}
		if index < mostNamed {
			a.named = append(a.named, body[start:s.Position()])
		}
		end = s.Position()
		r.count(&o)
		if err == nil && len(o.failures) > 0 {
			r.keep(index, &o)
		}
		if err == nil && a.size > r.limits.OutputBytes {
			r.failed = tooLarge(a.size, r.limits)
		}
		if err != nil {
			r.failed = &ObjectError{Index: index, Namespace: o.namespace, Name: o.name, From: o.from, To: r.desired, Err: err}
		}
	}
}

// keep records an object with parts that could not be converted and are kept.
func (r *review) keep(index int, o *outcome) {
	a := r.answer
	if a.kept++; len(a.unconverted) < mostNamed {
		a.unconverted = append(a.unconverted, &ObjectError{
			Index: index, Namespace: o.namespace, Name: o.name, From: o.from, To: r.desired, Err: joined(o.failures),
		})
	}
}

// count records the kind and the versions of the first object that needs a conversion.
func (r *review) count(o *outcome) {
	if r.answer.kind != "" || o.kind == nil || o.from == r.desired {
		return
	}
	r.answer.kind = o.kind.name
	_, r.answer.from, _ = strings.Cut(o.from, "/")
	_, r.answer.to, _ = strings.Cut(r.desired, "/")
}

// head appends the beginning of the answer.
func (r *review) head(dst []byte) []byte {
	dst = raw.AppendString(append(dst, `{"apiVersion":`...), r.apiVersion)
	return append(append(append(dst, `,"kind":"ConversionReview","response":{"uid":`...), r.uid...), ',')
}
