package tree

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Values returns the number of members and elements in a JSON text, plus one for each empty object or list. It
// allocates nothing. For a text that is not JSON, the result is an arbitrary number.
func Values(text []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

// Size returns the size in bytes of the JSON that encoding/json would write for a value. It does not write the JSON.
// The size of a value that JSON cannot represent is 0.
func Size(value any) int {
	switch v := value.(type) {
	case nil:
		return len("null")
	case bool:
		return len(strconv.FormatBool(v))
	case string:
		return sizeOfString(v)
	case int64:
		return len(strconv.AppendInt(make([]byte, 0, 20), v, 10))
	case map[string]any:
		if v == nil {
			return len("null")
		}
		n := len("{}") + max(len(v)-1, 0)
		for key, member := range v {
			n += sizeOfString(key) + len(":") + Size(member)
		}
		return n
	case []any:
		if v == nil {
			return len("null")
		}
		n := len("[]") + max(len(v)-1, 0)
		for _, element := range v {
			n += Size(element)
		}
		return n
	default:
		text, err := json.Marshal(v)
		if err != nil {
			return 0
		}
		return len(text)
	}
}

// sizeOfString includes the escapes that encoding/json writes for control characters, quotes, backslashes, HTML
// characters, the two line separators of JavaScript, and bytes that are not UTF-8.
func sizeOfString(s string) int {
	const short, long = len(`\n`), len(`\u0000`)
	n := len(s) + len(`""`)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t', c == '\b', c == '\f':
			n += short - 1
		case c < ' ', c == '<', c == '>', c == '&':
			n += long - 1
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			if (r == utf8.RuneError && size == 1) || r == '\u2028' || r == '\u2029' {
				n += long - size
			}
			i += size - 1
		}
	}
	return n
}
