package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// Byte order marks, which indicate the encoding of a text.
const (
	markUTF8    = "\xEF\xBB\xBF"
	markUTF16LE = "\xFF\xFE"
	markUTF16BE = "\xFE\xFF"
	markUTF32LE = "\xFF\xFE\x00\x00"
	markUTF32BE = "\x00\x00\xFE\xFF"
)

const saveAsUTF8 = "save the file as UTF-8"

// TextError is the reason why a file is not text, with the line of the error.
type TextError struct {
	Line int
	Fact string
}

// Error returns the line and the reason.
func (e *TextError) Error() string { return fmt.Sprintf("line %d %s", e.Line, e.Fact) }

// Text returns the content of a file as UTF-8 without byte order mark. It reads UTF-8, and also UTF-16 with a byte
// order mark, the output of > in PowerShell. It drops byte order marks at the beginning of lines. Any other encoding is
// an error, and so is a carriage return without a line feed: it ends a line in YAML, but not for other readers, which
// would read different documents. All errors are a [*TextError]. The result may share memory with data.
//
// Source: YAML 1.2.2, sections 5.2 (encodings) and 5.4 (line breaks).
func Text(data []byte) ([]byte, error) {
	text, err := decodeText(data)
	if err != nil {
		return nil, err
	}
	// A concatenation of files with marks has marks between the files.
	text = bytes.ReplaceAll(text, []byte("\n"+markUTF8), []byte("\n"))
	for at := 0; ; {
		n := bytes.IndexByte(text[at:], '\r')
		if n < 0 {
			return text, nil
		}
		at += n + 1
		if at == len(text) || text[at] != '\n' {
			return nil, &TextError{
				Line: 1 + bytes.Count(text[:at], []byte("\n")),
				Fact: "ends with a carriage return alone, where readers disagree: save the file with line feeds, or with both (LF or CRLF)",
			}
		}
	}
}

// NotText returns the problem of a file for an error of [Text].
func NotText(file string, err error) *Problem {
	if at, ok := errors.AsType[*TextError](err); ok {
		return &Problem{Place: Place{File: file, Line: at.Line}, Fact: at.Fact}
	}
	return &Problem{Place: Place{File: file}, Fact: err.Error()}
}

func decodeText(data []byte) ([]byte, error) {
	begins := func(mark string) bool { return bytes.HasPrefix(data, []byte(mark)) }
	switch {
	case begins(markUTF32LE), begins(markUTF32BE):
		return nil, &TextError{Line: 1, Fact: "is UTF-32: " + saveAsUTF8}
	case begins(markUTF16LE):
		return fromUTF16(data[len(markUTF16LE):], binary.LittleEndian)
	case begins(markUTF16BE):
		return fromUTF16(data[len(markUTF16BE):], binary.BigEndian)
	}
	data = bytes.TrimPrefix(data, []byte(markUTF8))
	line := func(at int) int { return 1 + bytes.Count(data[:at], []byte("\n")) }
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, &TextError{Line: line(at), Fact: "has a zero byte, so it is not text, or UTF-16 without a byte order mark: " + saveAsUTF8}
	}
	if utf8.Valid(data) {
		return data, nil
	}
	at := 0
	for {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return nil, &TextError{Line: line(at), Fact: fmt.Sprintf("has the byte 0x%02X, which is not UTF-8: %s", data[at], saveAsUTF8)}
		}
		at += size
	}
}

// fromUTF16 decodes UTF-16 after its byte order mark.
func fromUTF16(data []byte, order binary.ByteOrder) ([]byte, error) {
	if len(data)%2 != 0 {
		return nil, &TextError{Line: 1, Fact: "begins UTF-16 that ends with half a character: the file was cut off; " + saveAsUTF8}
	}
	text := make([]byte, 0, len(data)/2)
	line := 1
	for at := 0; at < len(data); at += 2 {
		r := rune(order.Uint16(data[at:]))
		if utf16.IsSurrogate(r) {
			low := rune(utf8.RuneError)
			if at += 2; at < len(data) {
				low = rune(order.Uint16(data[at:]))
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				return nil, &TextError{Line: line, Fact: "is not valid UTF-16: " + saveAsUTF8}
			}
		}
		switch r {
		case 0:
			return nil, &TextError{Line: line, Fact: "has a zero character, so it is not text: " + saveAsUTF8}
		case '\n':
			line++
		}
		text = utf8.AppendRune(text, r)
	}
	return text, nil
}
