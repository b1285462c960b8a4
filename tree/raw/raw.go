// Package raw reads JSON as it stands, without decoding it: what is not asked for is
// passed over, and what is asked for is a part of the document. Numbers of any size,
// unknown members and their order are therefore never at risk.
//
// Everything that is passed over is checked against the grammar of RFC 8259, except
// that strings need not be valid UTF-8. No document, however malformed, makes this
// package panic or recurse deeper than [MaxDepth].
package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxDepth is how deep objects and arrays may be inside each other: as deep as API servers
// read them.
//
// Source: https://pkg.go.dev/encoding/json, whose decoder has this limit.
const MaxDepth = 10_000

// ErrSyntax is wrapped by every error about a document that is not JSON, or has a
// value of another type than was asked for.
var ErrSyntax = errors.New("invalid JSON")

// ErrDepth is wrapped, beside [ErrSyntax], by the error about a document that is deeper
// than [MaxDepth].
var ErrDepth = errors.New("too deep")

// Members calls yield for each member of a JSON object, in their order: with the key
// unquoted and with the bytes of the value, both parts of data unless the key has
// escapes in it. A key that stands there twice comes twice. If yield returns false
// the rest is not looked at, not even whether it is JSON.
//
// Members returns an error that wraps [ErrSyntax] unless data is a JSON object and
// nothing else; yield may have been called before.
func Members(data []byte, yield func(key, value []byte) bool) error {
	s := New(data)
	s.Object(func(key []byte) {
		if value := s.Value(); s.Err() == nil && !yield(key, value) {
			s.Stop()
		}
	})
	return s.End()
}

// Elements calls yield for each element of a JSON array, with its index and its
// bytes, a part of data. If yield returns false the rest is not looked at, not even
// whether it is JSON.
//
// Elements returns an error that wraps [ErrSyntax] unless data is a JSON array and
// nothing else; yield may have been called before.
func Elements(data []byte, yield func(i int, value []byte) bool) error {
	s := New(data)
	s.Array(func(i int) {
		if value := s.Value(); s.Err() == nil && !yield(i, value) {
			s.Stop()
		}
	})
	return s.End()
}

// Field returns the bytes of the member with this key of a JSON object: of the first
// one, and nil if there is none. What is behind it is not looked at. Errors are those
// of [Members].
func Field(data []byte, key string) ([]byte, error) {
	var found []byte
	err := Members(data, func(k, value []byte) bool {
		if string(k) != key {
			return true
		}
		found = value
		return false
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// String returns the text of a JSON string.
func String(value []byte) (string, error) {
	s := New(value)
	text := s.Text()
	if err := s.End(); err != nil {
		return "", err
	}
	return string(text), nil
}

// IsNull reports whether value is null, or is empty because there is no value.
func IsNull(value []byte) bool {
	value = bytes.TrimSpace(value)
	return len(value) == 0 || string(value) == "null"
}

// AppendString appends text to dst as a JSON string. Like encoding/json it escapes
// what HTML gives a meaning, and replaces what is no valid UTF-8.
func AppendString[T ~string | ~[]byte](dst []byte, text T) []byte {
	start := len(dst)
	dst = append(dst, '"')
	done := 0
	for i := range len(text) {
		c := text[i]
		switch {
		case plain(c):
		case c == '"' || c == '\\':
			dst = append(append(dst, text[done:i]...), '\\', c)
			done = i + 1
		default:
			return appendEncoded(dst[:start], string(text))
		}
	}
	return append(append(dst, text[done:]...), '"')
}

// plain reports whether a byte stands for itself in a JSON string. It says no for what
// is not ASCII, of which not every byte does.
func plain(c byte) bool {
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func appendEncoded(dst []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // Cannot be: every string can be encoded.
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}

func syntaxError(at int, format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrSyntax, at, fmt.Sprintf(format, args...))
}
