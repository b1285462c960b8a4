// Package raw reads JSON without decoding it. It returns a requested value as a part of the document, and skips all
// other values. So numbers of any size, unknown members and their order stay intact.
//
// The package checks all skipped values against the grammar of RFC 8259, except that strings need not be valid UTF-8. A
// malformed document cannot make this package panic or recurse deeper than [MaxDepth].
package raw

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxDepth is the maximum nesting of objects and arrays. API servers have the same limit.
//
// Source: https://pkg.go.dev/encoding/json, whose decoder has this limit.
const MaxDepth = 10_000

// ErrSyntax is wrapped by the errors about a document that is not JSON, and about a value of another type than the
// requested one.
var ErrSyntax = errors.New("invalid JSON")

// ErrDepth is wrapped by the error about a document that is nested deeper than [MaxDepth]. That error also wraps
// [ErrSyntax].
var ErrDepth = errors.New("too deep")

// Members calls yield for each member of a JSON object, in order, with the unquoted key and the bytes of the value. The
// value, and a key without escapes, are parts of data. Members yields a duplicate key twice. If yield returns false,
// Members neither reads nor checks the rest.
//
// Members returns an error that wraps [ErrSyntax] unless data is a JSON object and nothing else. It may have called
// yield before the error.
func Members(data []byte, yield func(key, value []byte) bool) error {
	s := New(data)
	s.Object(func(key []byte) {
		if value := s.Value(); s.Err() == nil && !yield(key, value) {
			s.Stop()
		}
	})
	return s.End()
}

// Elements calls yield for each element of a JSON array, with its index and its bytes, which are a part of data. If
// yield returns false, Elements neither reads nor checks the rest.
//
// Elements returns an error that wraps [ErrSyntax] unless data is a JSON array and nothing else. It may have called
// yield before the error.
func Elements(data []byte, yield func(i int, value []byte) bool) error {
	s := New(data)
	s.Array(func(i int) {
		if value := s.Value(); s.Err() == nil && !yield(i, value) {
			s.Stop()
		}
	})
	return s.End()
}

// Field returns the bytes of the first member with this key in a JSON object; nil if the key is missing. It does not
// read the rest of the object. Its errors are those of [Members].
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

// IsNull reports whether value is null or empty. The value of a missing member is empty.
func IsNull(value []byte) bool {
	value = bytes.TrimSpace(value)
	return len(value) == 0 || string(value) == "null"
}

// AppendString appends text to dst as a JSON string. Like encoding/json, it escapes HTML characters, and replaces
// invalid UTF-8.
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

// plain reports whether a byte needs no escape in a JSON string. It returns false for all bytes outside ASCII, because
// they may be invalid UTF-8.
func plain(c byte) bool {
	return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func appendEncoded(dst []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil { // Cannot happen: every string can be encoded.
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}

func syntaxError(at int, format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrSyntax, at, fmt.Sprintf(format, args...))
}
