package raw

import "fmt"

// Scanner goes through a document once, from its beginning to its end. Its methods
// read the value that comes next; after the first error they do nothing, and [Scanner.Err]
// returns it.
type Scanner struct {
	lexer

	depth   int
	stopped bool
}

// New returns a scanner of a document, which it does not modify.
func New(data []byte) *Scanner { return &Scanner{lexer: lexer{data: data}} }

// Err returns the first error, which wraps [ErrSyntax] unless it is one that
// [Scanner.Fail] was given.
func (s *Scanner) Err() error { return s.err }

// Fail makes err the error, unless there is one already.
func (s *Scanner) Fail(err error) { s.fail(err) }

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
func (s *Scanner) Reset(data []byte) { *s = Scanner{lexer: lexer{data: data}} }

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
