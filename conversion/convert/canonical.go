package convert

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"refract.dev/tree/raw"
)

// comparer compares JSON values. Its zero value is ready to use. It is not safe for concurrent use.
type comparer struct {
	a, b, sorted []byte
	s            raw.Scanner
	// moved counts the bytes moved by sorting. If it exceeds most, the value is sorted as a tree.
	moved, most int
}

// release frees large buffers.
func (c *comparer) release() {
	c.s.Reset(nil)
	trim(&c.a, &c.b, &c.sorted)
}

// trim frees buffers larger than maxScratch.
func trim(buffers ...*[]byte) {
	for _, b := range buffers {
		if cap(*b) > maxScratch {
			*b = nil
		}
	}
}

// maxScratch is the largest size of a buffer, in bytes, that is kept for the next request.
const maxScratch = 1 << 20

// equal reports whether two JSON values are equal. White space, the order of the members of objects, and the notation
// of strings and numbers do not matter. Two numbers are equal if all their digits are equal; 0 and -0 are different.
func (c *comparer) equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	c.a = c.canonical(c.a[:0], a)
	c.b = c.canonical(c.b[:0], b)
	return bytes.Equal(c.a, c.b)
}

// fingerprint is a hash of a JSON value: 16 hexadecimal digits.
type fingerprint [16]byte

// fingerprint returns the fingerprint of a value. Values that are equal, as in equal, have the same fingerprint.
func (c *comparer) fingerprint(value []byte) (f fingerprint) {
	c.a = c.canonical(c.a[:0], value)
	sum := sha256.Sum256(c.a)
	hex.Encode(f[:], sum[:len(f)/2])
	return f
}

// canonical appends the canonical form of a value. Equal values have the same canonical form.
func (c *comparer) canonical(dst, value []byte) []byte {
	const few = 8
	c.moved, c.most = 0, few*len(value)
	c.s.Reset(value)
	start := len(dst)
	if dst = c.value(dst); c.moved <= c.most {
		return dst
	}
	// Sorting in place moves the members of an inner object again for each object around it, so deep values need a
	// tree.
	t, err := treeOf(value)
	if err != nil { // Cannot happen: the value was read before.
		return append(dst[:start], value...)
	}
	return t.appendCanonical(dst[:start])
}

// value appends the canonical form of the next value of the scanner.
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

// text appends the canonical form of the next string.
func (c *comparer) text(dst []byte) []byte {
	start := c.s.Offset()
	return appendText(dst, c.s.Text(), c.s.Position()-start)
}

// appendText appends a string with as few escapes as possible. length is the length of the string in the document,
// including quotes. If it is the length of text plus the quotes, the string has no escapes.
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

// part has the offsets of a member in dst: the start of the member, the end of its key, and the end of the member.
type part struct{ start, key, end int }

// object appends an object with sorted keys. It appends the members in their original order, and sorts only if
// necessary, because objects that the engine has written are already sorted.
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
		// The scanner is behind the colon, so the length may include white space, and is never too short. With a length
		// that is too long, appendText only checks a key without escapes unnecessarily.
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

// appendNumber appends a number as its digits, without leading and trailing zeros, and an exponent of ten.
func appendNumber(dst, number []byte) []byte {
	mantissa, exponent := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		n, err := strconv.ParseInt(string(number[i+1:]), 10, 32)
		if err != nil {
			return append(dst, number...) // The exponent exceeds 32 bits. Such a number is equal only to a number with the same text.
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
