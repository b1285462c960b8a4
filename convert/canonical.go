package convert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"refract.dev/tree/raw"
)

// comparer compares JSON values. Its zero value works; it is not safe for concurrent use.
type comparer struct {
	a, b, sorted []byte
	s            raw.Scanner
	// moved is how many bytes were moved to order members, most how many may be.
	moved, most int
}

// release gives memory back that only a large value needed.
func (c *comparer) release() {
	c.s.Reset(nil)
	trim(&c.a, &c.b, &c.sorted)
}

// trim gives large memory back.
func trim(buffers ...*[]byte) {
	for _, b := range buffers {
		if cap(*b) > maxScratch {
			*b = nil
		}
	}
}

// maxScratch is how many bytes a buffer may have that is kept for the next request.
const maxScratch = 1 << 20

// equal reports whether two JSON values are the same but for white space, the order of
// the members of objects, and the ways to write a string or a number. Numbers are the
// same if they are so to the last digit; 0 and -0 are not.
func (c *comparer) equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	c.a = c.canonical(c.a[:0], a)
	c.b = c.canonical(c.b[:0], b)
	return bytes.Equal(c.a, c.b)
}

// fingerprint is 16 hexadecimal digits.
type fingerprint [16]byte

// fingerprint returns what is the same for equal values.
func (c *comparer) fingerprint(value []byte) (f fingerprint) {
	c.a = c.canonical(c.a[:0], value)
	sum := sha256.Sum256(c.a)
	hex.Encode(f[:], sum[:len(f)/2])
	return f
}

// canonical appends the one form of all values that equal this one.
func (c *comparer) canonical(dst, value []byte) []byte {
	const few = 8
	c.moved, c.most = 0, few*len(value)
	c.s.Reset(value)
	start := len(dst)
	if dst = c.value(dst); c.moved <= c.most {
		return dst
	}
	// What is at the bottom would be moved at every level above.
	t, err := treeOf(value)
	if err != nil { // Cannot be: it was read before.
		return append(dst[:start], value...)
	}
	return t.appendCanonical(dst[:start])
}

// value appends the canonical form of the value that comes next.
func (c *comparer) value(dst []byte) []byte {
	switch c.s.Next() {
	case '{':
		return c.object(dst)
	case '[':
		c.s.OpenArray()
		dst = append(dst, '[')
		for first := true; c.s.NextElement(first); first = false {
			if !first {
				dst = append(dst, ',')
			}
			dst = c.value(dst)
		}
		return append(dst, ']')
	case '"':
		return c.text(dst)
	case 't', 'f', 'n':
		return append(dst, c.s.Value()...)
	default:
		return appendNumber(dst, c.s.Value())
	}
}

// text appends a string that comes next.
func (c *comparer) text(dst []byte) []byte {
	start := c.s.Offset()
	return appendText(dst, c.s.Text(), c.s.Position()-start)
}

// appendText appends a string with no more escapes than it needs. Length is how long it
// was with its quotes: without escapes there was nothing that needs any.
func appendText(dst, text []byte, length int) []byte {
	dst = append(dst, '"')
	if length == len(text)+2 {
		return append(append(dst, text...), '"')
	}
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// part is a member in dst: where it begins, where its key ends, and where it ends.
type part struct{ start, key, end int }

// object appends an object with its keys in order. The members are written as they come and then
// moved if they have to be: objects that we have written are in order already.
func (c *comparer) object(dst []byte) []byte {
	c.s.OpenObject()
	dst = append(dst, '{')
	begin := len(dst)
	var room [8]part
	parts := room[:0]
	ordered := true
	for first := true; ; first = false {
		key, start, ok := c.s.NextKey(first)
		if !ok {
			break
		}
		if !first {
			dst = append(dst, ',')
		}
		p := part{start: len(dst)}
		// The scanner is behind the colon: the length is too long rather than too short, so
		// that only keys without escapes and white space are copied as they are.
		dst = appendText(dst, key, c.s.Position()-start-1)
		p.key = len(dst)
		dst = append(dst, ':')
		dst = c.value(dst)
		p.end = len(dst)
		if n := len(parts); n > 0 && bytes.Compare(dst[parts[n-1].start:parts[n-1].key], dst[p.start:p.key]) > 0 {
			ordered = false
		}
		parts = append(parts, p)
	}
	if ordered {
		return append(dst, '}')
	}
	if c.moved += len(dst) - begin; c.moved > c.most {
		return append(dst, '}')
	}
	slices.SortStableFunc(parts, func(a, b part) int { return bytes.Compare(dst[a.start:a.key], dst[b.start:b.key]) })
	c.sorted = c.sorted[:0]
	for i, p := range parts {
		if i > 0 {
			c.sorted = append(c.sorted, ',')
		}
		c.sorted = append(c.sorted, dst[p.start:p.end]...)
	}
	return append(append(dst[:begin], c.sorted...), '}')
}

// appendNumber appends a number as its digits without zeros at the ends, and an exponent
// of ten.
func appendNumber(dst, number []byte) []byte {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		n, err := strconv.ParseInt(string(number[i+1:]), 10, 32)
		if err != nil {
			return append(dst, number...) // No such number can be meant; only its like is the same.
		}
		mantissa, exponent = number[:i], int(n)
	}
	if len(mantissa) > 0 && mantissa[0] == '-' {
		dst, mantissa = append(dst, '-'), mantissa[1:]
	}
	start := len(dst)
	for i, c := range mantissa {
		switch {
		case c == '.':
			exponent -= len(mantissa) - i - 1
		case c == '0' && len(dst) == start:
		default:
			dst = append(dst, c)
		}
	}
	for len(dst) > start && dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
		exponent++
	}
	if len(dst) == start {
		return append(dst, '0')
	}
	if exponent != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
	}
	return dst
}
