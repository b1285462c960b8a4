package tree

import (
	"fmt"
	"slices"
	"strings"
)

// Pattern is a set of places inside a JSON-shaped value. It is a JSON pointer whose segments can have a star: the
// segment * stands for each element of an array and each member of an object, and a segment that ends with * stands for
// each member whose key has that prefix. A Pattern is immutable and may be shared.
type Pattern struct{ pointer Pointer }

// ParsePattern parses a pattern. It rejects a text that is not a JSON pointer, and the pointer of the whole value. The
// error wraps [ErrPointer].
func ParsePattern(s string) (Pattern, error) {
	p, err := Parse(s)
	if err != nil {
		return Pattern{}, err
	}
	if len(p.segments) == 0 {
		return Pattern{}, fmt.Errorf("%w %q: it must name a field", ErrPointer, s)
	}
	return Pattern{p}, nil
}

// MustParsePattern is [ParsePattern] for constants; it panics on an invalid pattern.
func MustParsePattern(s string) Pattern {
	p, err := ParsePattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

// String returns the original text of the pattern.
func (p Pattern) String() string { return p.pointer.text }

// Keys returns the unescaped segments.
func (p Pattern) Keys() []string { return p.pointer.Keys() }

// Equal reports whether p and q are the same pattern.
func (p Pattern) Equal(q Pattern) bool { return p.pointer.Equal(q.pointer) }

// Places returns the existing places of value that match the pattern. Members of objects are ordered by key. Elements
// of arrays are ordered from the last to the first, so that a caller can remove the places one after the other.
func (p Pattern) Places(value any) []Pointer {
	var found []Pointer
	var walk func(value any, at Pointer, segments []segment)
	walk = func(value any, at Pointer, segments []segment) {
		if len(segments) == 0 {
			found = append(found, at)
			return
		}
		s, rest := segments[0], segments[1:]
		prefix, many := strings.CutSuffix(s.key, "*")
		switch v := value.(type) {
		case map[string]any:
			if !many {
				if next, ok := v[s.key]; ok {
					walk(next, at.Member(s.key), rest)
				}
				return
			}
			for _, key := range beginning(v, prefix) {
				walk(v[key], at.Member(key), rest)
			}
		case []any:
			for i, element := range slices.Backward(v) {
				if s.key == "*" || s.index == i {
					walk(element, at.At(i), rest)
				}
			}
		}
	}
	walk(value, Pointer{}, p.pointer.segments)
	return found
}

// beginning returns the keys with this prefix, sorted.
func beginning(object map[string]any, prefix string) []string {
	var keys []string
	for key := range object {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Covers reports whether a place matches the pattern or lies inside a match. The place is given by its unescaped
// segments; its segment * stands for an element of an array with an unknown index.
func (p Pattern) Covers(keys []string) bool {
	if len(keys) < len(p.pointer.segments) {
		return false
	}
	for i, s := range p.pointer.segments {
		prefix, many := strings.CutSuffix(s.key, "*")
		if s.key != keys[i] && (!many || !strings.HasPrefix(keys[i], prefix)) {
			return false
		}
	}
	return true
}
