package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"refract.dev/tree/raw"
)

// codec decodes values of one type as API servers do, and encodes them as encoding/json does. It calls the type's own
// JSON methods directly. It is not safe for concurrent use.
type codec[T any] struct {
	shape   *shape
	decoder decoder
	encoder *json.Encoder
	sink    sink
	check   raw.Scanner
	// exact is true if the type has fields for all members of the last decoded value.
	exact bool
}

// sink is a writer that appends to a slice.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// typeShape returns the shape for the codec of a type; nil if the type has no shape.
func typeShape[T any]() *shape {
	var p any = new(T)
	if _, ok := p.(appender); ok {
		return nil
	}
	return shapeOf(reflect.TypeFor[T]())
}

type appender interface {
	AppendJSON(dst []byte) ([]byte, error)
}

func newCodec[T any](s *shape) *codec[T] {
	c := &codec[T]{shape: s}
	c.encoder = json.NewEncoder(&c.sink)
	return c
}

// faithful reports whether decoding the encoded value certainly returns the original value.
func (c *codec[T]) faithful(encoded []byte) bool {
	// Encoding changes invalid UTF-8 to \ufffd. After [] the original value may have been a nil slice.
	return c.shape != nil && c.shape.faithful && !bytes.Contains(encoded, []byte(`\ufffd`)) && string(encoded) != "[]"
}

// decode decodes the value into v. It overwrites the previous content of v.
func (c *codec[T]) decode(value []byte, v *T) error {
	var zero T
	*v = zero
	c.exact = false
	if u, ok := any(v).(json.Unmarshaler); ok {
		return u.UnmarshalJSON(value)
	}
	if c.shape != nil {
		if c.exact = c.decoder.decode(value, c.shape, reflect.ValueOf(v).Elem()); c.exact {
			return nil
		}
		*v = zero
	}
	return explained(kjson.UnmarshalCaseSensitivePreserveInts(value, v))
}

// explained rewrites the error about a value of the wrong type: it names JSON types, and the place inside the value.
func explained(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Type == nil {
		return err
	}
	text := fmt.Errorf("want %s, got %s", wanted(wrong.Type), wrong.Value)
	if wrong.Field == "" {
		return text
	}
	return at(wrong.Field, text)
}

// wanted names the JSON type that a Go type accepts.
func wanted(t reflect.Type) string {
	switch k := knownOf(t); {
	case k == nil:
		return t.String()
	case k.kind == 'm':
		return describe('{')
	case k.kind == '0' && t.Kind() != reflect.Float32 && t.Kind() != reflect.Float64:
		return "an integer of " + t.Kind().String()
	default:
		return describe(k.kind)
	}
}

// knows reports whether the type has fields for all members of a value.
func (c *codec[T]) knows(value []byte) bool {
	t, err := treeOf(value)
	return err == nil && knownOf(reflect.TypeFor[T]()).all(t)
}

// encode appends v as valid JSON. from is the JSON that v was converted from. The result has null members only if from
// contains null or the type has its own JSON method.
func (c *codec[T]) encode(dst []byte, v *T, from []byte) ([]byte, error) {
	start := len(dst)
	switch m := any(v).(type) {
	case appender:
		out, err := m.AppendJSON(dst)
		if err != nil {
			return dst, err
		}
		if len(out) < start {
			return dst, fmt.Errorf("encoding %T: AppendJSON did not append", *v)
		}
		appended := out[start:]
		if len(out) > cap(dst) || len(out) > 0 && &out[0] != &dst[:1][0] {
			// Another owner may use this memory, so the text is copied.
			out = append(slices.Clip(dst), appended...)
		}
		return out, checkJSON(&c.check, appended)
	case json.Marshaler:
		out, err := m.MarshalJSON()
		if err != nil {
			return dst, err
		}
		return append(dst, out...), checkJSON(&c.check, out)
	}
	if empty := emptyOf(reflect.ValueOf(v).Elem()); empty != "" {
		return append(dst, empty...), nil
	}
	c.sink.b = dst
	err := c.encoder.Encode(v)
	out := c.sink.b
	c.sink.b = nil
	if err != nil {
		return dst, err
	}
	out = bytes.TrimSuffix(out, []byte("\n"))
	if !bytes.Contains(out[start:], null) || hasNull(from) {
		return out, nil
	}
	t, err := treeOf(bytes.Clone(out[start:]))
	if err != nil {
		return dst, err
	}
	var m merger
	return m.appendMade(out[:start], t)
}

// emptyOf returns [] for a nil slice, {} for a nil map, and "" for all other values, including slices of bytes. A
// conversion that returns a nil slice or map means an empty value, not null.
func emptyOf(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 && v.IsNil():
		return "[]"
	case v.Kind() == reflect.Map && v.IsNil():
		return "{}"
	default:
		return ""
	}
}

// checkJSON returns an error unless value is one JSON value and valid UTF-8.
func checkJSON(s *raw.Scanner, value []byte) error {
	s.Reset(value)
	s.Value()
	if err := s.End(); err != nil {
		return fmt.Errorf("reading what the conversion made: %w", err)
	}
	if !utf8.Valid(value) {
		return fmt.Errorf("reading what the conversion made: %w: not UTF-8", raw.ErrSyntax)
	}
	return nil
}
