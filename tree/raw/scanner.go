package raw

import "fmt"

// Scanner reads a document once, from beginning to end. Its methods read the next value. After the first error they do
// nothing, and [Scanner.Err] returns that error.
type Scanner struct {
	lexer

	depth   int
	stopped bool
}

// New returns a scanner of a document. The scanner does not modify the document.
func New(data []byte) *Scanner { return &Scanner{lexer: lexer{data: data}} }

// Err returns the first error. It wraps [ErrSyntax], unless it comes from [Scanner.Fail].
func (s *Scanner) Err() error { return s.err }

// Fail records err, unless an error is already recorded.
func (s *Scanner) Fail(err error) { s.fail(err) }

// Stop ends the scan; the scanner does not read the rest of the document.
func (s *Scanner) Stop() { s.stopped = true }

// End returns the error of the scan. Unless [Scanner.Stop] was called, anything but white space in the rest of the
// document is an error too.
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

// Offset returns the index of the first byte of the next value or, after the last value, the position of the scanner.
func (s *Scanner) Offset() int {
	s.space()
	return s.at
}

// Since returns the bytes from offset to the position of the scanner, as a part of the document. It returns nil after
// an error.
func (s *Scanner) Since(offset int) []byte {
	if s.err != nil || offset > s.at {
		return nil
	}
	return s.data[offset:s.at:s.at]
}

// Reset prepares the scanner for another document.
func (s *Scanner) Reset(data []byte) { *s = Scanner{lexer: lexer{data: data}} }

// Document returns the document.
func (s *Scanner) Document() []byte { return s.data }

// Position returns the index of the byte after the last token.
func (s *Scanner) Position() int { return s.at }

// Next returns the first byte of the next value. In a valid document this is a bracket, a quote, the first letter of a
// literal, a sign or a digit. Next returns 0 at the end, and after an error.
func (s *Scanner) Next() byte {
	if s.idle() {
		return 0
	}
	s.space()
	return s.peek()
}

// OpenObject reads the start of an object, and reports whether the next value is an object. [Scanner.NextKey] then
// reads the members.
func (s *Scanner) OpenObject() bool { return s.open('{', "an object") }

// NextKey reads the next key of an object that [Scanner.OpenObject] opened; first is true for the first call. It
// returns the unquoted key, and the index of the first byte of the key. The caller must read the value before the next
// call. At the end of the object, NextKey skips the closing bracket and returns false. After an error it returns false.
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

// OpenArray reads the start of an array, and reports whether the next value is an array. [Scanner.NextElement] then
// finds the elements.
func (s *Scanner) OpenArray() bool { return s.open('[', "an array") }

// NextElement reports whether an array that [Scanner.OpenArray] opened has another element; first is true for the first
// call. The caller must read the element before the next call. At the end of the array, NextElement skips the closing
// bracket.
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

// Object reads an object, and calls a function with each unquoted key. The function may read the value; otherwise
// Object skips it.
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

// Array reads an array, and calls a function with each index. The function may read the element; otherwise Array skips
// it.
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

// Value skips a value and returns its bytes, which are a part of the document.
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

// Text reads a string and returns its text. The text is a part of the document, unless it contains escapes.
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

// Null skips the next value and returns true if that value is null. Otherwise it reads nothing and returns false.
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

// open skips the opening bracket of an object or array, and reports whether it was present.
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

// more looks for another member or element. If there is one, it skips the comma before it and returns true. Otherwise
// it skips the closing bracket and returns false.
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

// skip skips a value.
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
