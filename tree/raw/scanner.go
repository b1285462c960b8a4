package raw

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
)

// Scanner goes through a document once, from its beginning to its end. Its methods
// read the value that comes next; after the first error they do nothing, and [Scanner.Err]
// returns it.
type Scanner struct {
	data    []byte
	at      int
	depth   int
	stopped bool
	err     error
}

// New returns a scanner of a document, which it does not modify.
func New(data []byte) *Scanner { return &Scanner{data: data} }

// Err returns the first error, which wraps [ErrSyntax] unless it is one that
// [Scanner.Fail] was given.
func (s *Scanner) Err() error { return s.err }

// Fail makes err the error, unless there is one already.
func (s *Scanner) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// Stop ends the scanning: the rest of the document is not looked at.
func (s *Scanner) Stop() { s.stopped = true }

// End returns the error, which there is also if anything but white space is left of
// the document, and [Scanner.Stop] was not called.
func (s *Scanner) End() error {
	if s.idle() {
		return s.err
	}
	s.space()
	if s.at < len(s.data) {
		s.failf("want nothing more")
	}
	return s.err
}

// Offset returns the index of the byte where the next value begins or, behind the
// last one, where the scanner is.
func (s *Scanner) Offset() int {
	s.space()
	return s.at
}

// Since returns the bytes from an offset to where the scanner is, a part of the
// document; nil after an error.
func (s *Scanner) Since(offset int) []byte {
	if s.err != nil || offset > s.at {
		return nil
	}
	return s.data[offset:s.at:s.at]
}

// Reset makes the scanner begin with another document.
func (s *Scanner) Reset(data []byte) { *s = Scanner{data: data} }

// Document returns the document.
func (s *Scanner) Document() []byte { return s.data }

// Position returns the index of the byte behind what was read last.
func (s *Scanner) Position() int { return s.at }

// Next returns the byte that the next value begins with: a bracket, a quote, the first
// letter of a literal, a sign or a digit, unless the document is broken. It returns 0 at
// the end, and after an error.
func (s *Scanner) Next() byte {
	if s.idle() {
		return 0
	}
	s.space()
	return s.peek()
}

// OpenObject begins to read an object, of which [Scanner.NextKey] reads the members. It
// reports whether there is one.
func (s *Scanner) OpenObject() bool { return s.open('{', "an object") }

// NextKey reads the key of the next member of an object that [Scanner.OpenObject] began:
// first says that it is the first one. It returns the key unquoted and the index of the
// byte where it begins; the value has to be read before the next call. It returns false
// at the end of the object, behind which the scanner is then, and after an error.
func (s *Scanner) NextKey(first bool) (key []byte, at int, ok bool) {
	if s.idle() {
		return nil, 0, false
	}
	if !s.more('}', first) {
		s.depth--
		return nil, 0, false
	}
	s.space()
	at = s.at
	key = s.key()
	return key, at, s.err == nil
}

// OpenArray begins to read an array, of which [Scanner.NextElement] finds the elements.
// It reports whether there is one.
func (s *Scanner) OpenArray() bool { return s.open('[', "an array") }

// NextElement reports whether an element of an array that [Scanner.OpenArray] began comes
// next: first says that it would be the first one. It has to be read before the next call.
// At the end of the array the scanner is behind it.
func (s *Scanner) NextElement(first bool) bool {
	if s.idle() {
		return false
	}
	if !s.more(']', first) {
		s.depth--
		return false
	}
	return true
}

// Object reads an object. It calls member for each of its members, with the key
// unquoted; member may read the value, which is passed over if it does not.
func (s *Scanner) Object(member func(key []byte)) {
	if !s.open('{', "an object") {
		return
	}
	for first := true; s.more('}', first); first = false {
		key := s.key()
		if s.err != nil {
			return
		}
		before := s.at
		member(key)
		if s.idle() {
			return
		}
		if s.at == before {
			s.skip()
		}
	}
	s.depth--
}

// Array reads an array. It calls element for each of its elements, with the index;
// element may read the value, which is passed over if it does not.
func (s *Scanner) Array(element func(i int)) {
	if !s.open('[', "an array") {
		return
	}
	for i := 0; s.more(']', i == 0); i++ {
		s.space()
		before := s.at
		element(i)
		if s.idle() {
			return
		}
		if s.at == before {
			s.skip()
		}
	}
	s.depth--
}

// Value passes over a value and returns its bytes, a part of the document.
func (s *Scanner) Value() []byte {
	if s.idle() {
		return nil
	}
	s.space()
	start := s.at
	s.skip()
	if s.err != nil {
		return nil
	}
	return s.data[start:s.at:s.at]
}

// Text reads a string and returns its text: a part of the document unless there are
// escapes in it.
func (s *Scanner) Text() []byte {
	if s.idle() {
		return nil
	}
	s.space()
	if s.peek() != '"' {
		s.want("a string")
		return nil
	}
	return s.text()
}

// Null passes over null and returns true, if that comes next. Otherwise it does
// nothing.
func (s *Scanner) Null() bool {
	if s.idle() {
		return false
	}
	s.space()
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return s.err == nil
}

func (s *Scanner) idle() bool { return s.stopped || s.err != nil }

func (s *Scanner) failf(format string, args ...any) { s.Fail(syntaxError(s.at, format, args...)) }

// want fails because something else comes next.
func (s *Scanner) want(what string) { s.failf("want %s, got %s", what, s.next()) }

// next names what comes next.
func (s *Scanner) next() string {
	switch c := s.peek(); {
	case s.at >= len(s.data):
		return "the end"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-' || isDigit(c):
		return "a number"
	default:
		return string(rune(c))
	}
}

// peek returns the next byte; 0, which begins nothing, at the end.
func (s *Scanner) peek() byte {
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	return 0
}

func (s *Scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// open passes over the beginning of an object or array.
func (s *Scanner) open(bracket byte, what string) bool {
	if s.idle() {
		return false
	}
	s.space()
	if s.peek() != bracket {
		s.want(what)
		return false
	}
	if s.depth == MaxDepth {
		s.Fail(fmt.Errorf("%w at byte %d: %w: more than %d levels", ErrSyntax, s.at, ErrDepth, MaxDepth))
		return false
	}
	s.depth++
	s.at++
	return true
}

// more passes over what is before the next member or element, and reports whether
// there is one; otherwise over the end.
func (s *Scanner) more(bracket byte, first bool) bool {
	s.space()
	switch c := s.peek(); {
	case c == bracket:
		s.at++
		return false
	case first:
		return true
	case c == ',':
		s.at++
		return true
	default:
		s.want("a comma or " + string(rune(bracket)))
		return false
	}
}

// key reads the key of a member and what is between it and the value.
func (s *Scanner) key() []byte {
	s.space()
	if s.peek() != '"' {
		s.want("a key")
		return nil
	}
	key := s.text()
	s.colon()
	return key
}

func (s *Scanner) colon() {
	if s.err != nil {
		return
	}
	s.space()
	if s.peek() != ':' {
		s.want("a colon")
		return
	}
	s.at++
	s.space()
}

// skip passes over a value.
func (s *Scanner) skip() {
	s.space()
	switch c := s.peek(); {
	case c == '"':
		s.quoted()
	case c == '{':
		s.skipObject()
	case c == '[':
		s.skipArray()
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	case c == 'n':
		s.literal("null")
	case c == '-' || isDigit(c):
		s.number()
	default:
		s.want("a value")
	}
}

func (s *Scanner) skipObject() {
	if !s.open('{', "an object") {
		return
	}
	for first := true; s.more('}', first); first = false {
		s.space()
		if s.peek() != '"' {
			s.want("a key")
			return
		}
		s.quoted()
		s.colon()
		if s.err != nil {
			return
		}
		s.skip()
		if s.err != nil {
			return
		}
	}
	s.depth--
}

func (s *Scanner) skipArray() {
	if !s.open('[', "an array") {
		return
	}
	for first := true; s.more(']', first); first = false {
		s.skip()
		if s.err != nil {
			return
		}
	}
	s.depth--
}

func (s *Scanner) literal(word string) {
	if len(s.data)-s.at < len(word) || string(s.data[s.at:s.at+len(word)]) != word {
		s.failf("want %s", word)
		return
	}
	s.at += len(word)
}

// number passes over a number.
//
// Source: RFC 8259, section 6.
func (s *Scanner) number() {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else {
		s.digits()
	}
	if s.peek() == '.' {
		s.at++
		s.digits()
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		s.digits()
	}
}

func (s *Scanner) digits() {
	start := s.at
	for isDigit(s.peek()) {
		s.at++
	}
	if s.at == start {
		s.want("a digit")
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// text reads a string.
func (s *Scanner) text() []byte {
	start := s.at
	escapes := s.quoted()
	if s.err != nil {
		return nil
	}
	if !escapes {
		return s.data[start+1 : s.at-1 : s.at-1]
	}
	var text string
	if err := json.Unmarshal(s.data[start:s.at], &text); err != nil {
		s.failf("%v", err)
		return nil
	}
	return []byte(text)
}

// quoted passes over a string and reports whether there are escapes in it.
func (s *Scanner) quoted() (escapes bool) {
	s.at++
	for {
		s.at += plainPrefix(s.data[s.at:])
		switch c := s.peek(); {
		case s.at == len(s.data):
			s.failf("want the end of a string, got the end")
			return escapes
		case c == '"':
			s.at++
			return escapes
		case c == '\\':
			escapes = true
			s.escape()
			if s.err != nil {
				return escapes
			}
		default:
			s.failf("control character in a string")
			return escapes
		}
	}
}

// escape passes over a backslash and what belongs to it.
func (s *Scanner) escape() {
	s.at++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at++
	case 'u':
		s.at++
		for range 4 {
			if !isHex(s.peek()) {
				s.failf("want four hexadecimal digits behind \\u")
				return
			}
			s.at++
		}
	default:
		s.failf("unknown escape in a string")
	}
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// plainPrefix returns how many bytes come before the first one that has a meaning in
// a string: a quote, a backslash or a control character. Most of a document is the
// insides of strings, so it looks at eight bytes at a time.
//
// Source: https://graphics.stanford.edu/~seander/bithacks.html, "Determine if a word
// has a byte less than n" and "equal to n". A byte may be reported wrongly only behind
// one that is reported rightly.
func plainPrefix(data []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(data)-n >= 8; n += 8 {
		word := binary.LittleEndian.Uint64(data[n:])
		quotes, backslashes := word^(ones*'"'), word^(ones*'\\')
		found := (word-ones*' ')&^word | (quotes-ones)&^quotes | (backslashes-ones)&^backslashes
		if found &= highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(data) && data[n] >= ' ' && data[n] != '"' && data[n] != '\\' {
		n++
	}
	return n
}
