package tree

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Pointer is a place inside a JSON-shaped value: a parsed JSON pointer (RFC 6901). The zero Pointer is the whole value.
// A Pointer is immutable and may be shared.
type Pointer struct {
	text     string
	segments []segment
}

// segment is one step of a pointer. In an object it is a key, and in an array an index.
type segment struct {
	key   string
	index int // The index that key stands for in an array, or one of the constants below.
}

const (
	noIndex   = -3 // Not an index.
	endIndex  = -2 // "-": after the last element.
	lastIndex = -1 // "-1": the last element; an addition to RFC 6901.
)

// ErrPointer is wrapped by every error of [Parse].
var ErrPointer = errors.New("invalid JSON pointer")

// Parse parses a JSON pointer. Each segment begins with a slash. Inside a segment, ~0 stands for ~ and ~1 for a slash.
//
// Source: RFC 6901, sections 3 and 4.
func Parse(s string) (Pointer, error) {
	if s == "" {
		return Pointer{}, nil
	}
	if s[0] != '/' {
		return Pointer{}, fmt.Errorf("%w %q: it must begin with a slash", ErrPointer, s)
	}
	segments := make([]segment, 0, strings.Count(s, "/"))
	for part := range strings.SplitSeq(s[1:], "/") {
		key, ok := unescape(part)
		if !ok {
			return Pointer{}, fmt.Errorf("%w %q: ~ must be followed by 0 or 1", ErrPointer, s)
		}
		segments = append(segments, segment{key: key, index: parseIndex(key)})
	}
	return Pointer{text: s, segments: segments}, nil
}

// MustParse is [Parse] for constants; it panics on an invalid pointer.
func MustParse(s string) Pointer {
	p, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return p
}

// At returns the pointer of the element with this index in the array at p.
func (p Pointer) At(index int) Pointer { return p.extend(strconv.Itoa(index)) }

// Member returns the pointer of the member with this key in the object at p.
func (p Pointer) Member(key string) Pointer { return p.extend(key) }

func (p Pointer) extend(key string) Pointer {
	segments := make([]segment, len(p.segments)+1)
	copy(segments, p.segments)
	segments[len(p.segments)] = segment{key: key, index: parseIndex(key)}
	return Pointer{text: p.text + "/" + Escape(key), segments: segments}
}

// String returns the pointer in the syntax of RFC 6901.
func (p Pointer) String() string { return p.text }

// Keys returns the unescaped segments.
func (p Pointer) Keys() []string {
	keys := make([]string, len(p.segments))
	for i, s := range p.segments {
		keys[i] = s.key
	}
	return keys
}

// Equal reports whether p and q are the same place.
func (p Pointer) Equal(q Pointer) bool { return slices.Equal(p.segments, q.segments) }

// Escape returns key as a segment of a JSON pointer.
func Escape(key string) string {
	if !strings.ContainsAny(key, "~/") {
		return key
	}
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

// Covers reports whether the place outer equals or contains the place inner. Both are texts of pointers.
func Covers(outer, inner string) bool {
	return strings.HasPrefix(inner, outer) && (len(inner) == len(outer) || inner[len(outer)] == '/')
}

// prefix returns the text of the first n segments; n is at most the number of segments.
func (p Pointer) prefix(n int) string {
	end := 0
	for range n {
		next := strings.IndexByte(p.text[end+1:], '/')
		if next < 0 {
			return p.text
		}
		end += 1 + next
	}
	return p.text[:end]
}

// unescape returns the key for the escaped segment s, and whether s is well-formed.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, "~") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '~' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i == len(s) || (s[i] != '0' && s[i] != '1') {
			return "", false
		}
		b.WriteByte("~/"[s[i]-'0'])
	}
	return b.String(), true
}

// parseIndex returns the index that key stands for in an array. The grammar is that of RFC 6901: no sign, no leading
// zero. A key of more than nine digits is not an index, because no array has so many elements.
func parseIndex(key string) int {
	switch {
	case key == "-":
		return endIndex
	case key == "-1":
		return lastIndex
	case key == "" || len(key) > 9 || (key[0] == '0' && len(key) > 1):
		return noIndex
	}
	n := 0
	for i := range len(key) {
		if key[i] < '0' || key[i] > '9' {
			return noIndex
		}
		n = n*10 + int(key[i]-'0')
	}
	return n
}
