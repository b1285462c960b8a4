package raw

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// lexer reads the tokens of a document without regard to their nesting. After an error, the effect of its methods is
// undefined.
type lexer struct {
	data []byte
	at   int
	err  error
}

// fail records err, unless an error is already recorded.
func (l *lexer) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *lexer) failf(format string, args ...any) { l.fail(syntaxError(l.at, format, args...)) }

// want records that the expected token is missing.
func (l *lexer) want(what string) { l.failf("want %s, got %s", what, l.next()) }

// next describes the next token.
func (l *lexer) next() string {
	switch c := l.peek(); {
	case l.at >= len(l.data):
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

// peek returns the next byte, or 0 at the end. No token begins with 0.
func (l *lexer) peek() byte {
	if l.at < len(l.data) {
		return l.data[l.at]
	}
	return 0
}

func (l *lexer) space() {
	for l.at < len(l.data) {
		switch l.data[l.at] {
		case ' ', '\t', '\n', '\r':
			l.at++
		default:
			return
		}
	}
}

// key reads the key of a member, and skips the colon and the space before the value.
func (l *lexer) key() []byte {
	l.space()
	if l.peek() != '"' {
		l.want("a key")
		return nil
	}
	key := l.text()
	l.colon()
	return key
}

func (l *lexer) colon() {
	if l.err != nil {
		return
	}
	l.space()
	if l.peek() != ':' {
		l.want("a colon")
		return
	}
	l.at++
	l.space()
}

func (l *lexer) literal(word string) {
	if len(l.data)-l.at < len(word) || string(l.data[l.at:l.at+len(word)]) != word {
		l.failf("want %s", word)
		return
	}
	l.at += len(word)
}

// number skips a number.
//
// Source: RFC 8259, section 6.
func (l *lexer) number() {
	if l.peek() == '-' {
		l.at++
	}
	if l.peek() == '0' {
		l.at++
	} else {
		l.digits()
	}
	if l.peek() == '.' {
		l.at++
		l.digits()
	}
	if c := l.peek(); c == 'e' || c == 'E' {
		l.at++
		if c := l.peek(); c == '+' || c == '-' {
			l.at++
		}
		l.digits()
	}
}

func (l *lexer) digits() {
	start := l.at
	for isDigit(l.peek()) {
		l.at++
	}
	if l.at == start {
		l.want("a digit")
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// text reads a string.
func (l *lexer) text() []byte {
	start := l.at
	escapes := l.quoted()
	if l.err != nil {
		return nil
	}
	if !escapes {
		return l.data[start+1 : l.at-1 : l.at-1]
	}
	var text string
	if err := json.Unmarshal(l.data[start:l.at], &text); err != nil {
		l.failf("%v", err)
		return nil
	}
	return []byte(text)
}

// quoted skips a string, and reports whether it contains escapes.
func (l *lexer) quoted() (escapes bool) {
	l.at++
	for {
		l.at += plainPrefix(l.data[l.at:])
		switch c := l.peek(); {
		case l.at == len(l.data):
			l.failf("want the end of a string, got the end")
			return escapes
		case c == '"':
			l.at++
			return escapes
		case c == '\\':
			escapes = true
			l.escape()
			if l.err != nil {
				return escapes
			}
		default:
			l.failf("control character in a string")
			return escapes
		}
	}
}

// escape skips a backslash and the rest of the escape.
func (l *lexer) escape() {
	l.at++
	switch l.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		l.at++
	case 'u':
		l.at++
		for range 4 {
			if !isHex(l.peek()) {
				l.failf("want four hexadecimal digits behind \\u")
				return
			}
			l.at++
		}
	default:
		l.failf("unknown escape in a string")
	}
}

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

// plainPrefix returns the number of bytes before the first quote, backslash or control character. Most of a document is
// inside strings, so the function examines eight bytes at a time.
//
// Source: https://graphics.stanford.edu/~seander/bithacks.html, "Determine if a word has a byte less than n" and "equal
// to n". These tests may also mark bytes after the first correct match, but none before it.
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
