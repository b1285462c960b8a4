package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v2"
)

// decodeQuickly returns what a YAML document means, and true, if that is beyond
// doubt: it is an object, no key is set twice, and all keys are strings. It leaves
// all others to the slow way, which says what is wrong and where. Both agree, as
// they ask the library that kubectl uses: yes is true, and 010 is 8.
func decodeQuickly(text []byte) (any, bool) {
	if bytes.Contains(text, []byte("<<")) {
		return nil, false // A merge may set a key twice that stands there once.
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.SetStrict(true)
	var value, more any
	if err := dec.Decode(&value); err != nil || !errors.Is(dec.Decode(&more), io.EOF) {
		return nil, false
	}
	if m, isObject := value.(map[any]any); isObject {
		return jsonShaped(m, 0)
	}
	return nil, false // It may be empty, which the slow way knows.
}

// maxDepth is how many objects and arrays of a document may be inside each other, around
// a value. No manifest comes near it.
const maxDepth = 1000

// tooDeep reports whether a value, which is inside so many others, is or has one that is
// inside more than there may be.
func tooDeep(value any, depth int) bool {
	if depth > maxDepth {
		return true
	}
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return tooDeep(item, depth+1) })
	case map[string]any:
		for _, item := range v {
			if tooDeep(item, depth+1) {
				return true
			}
		}
	}
	return false
}

// factTooDeep is what is said of a document that is too deep.
var factTooDeep = fmt.Sprintf("has more than %d objects and arrays inside each other: no API server's objects have", maxDepth)

// jsonShaped returns a value of the YAML library as it comes out of JSON, without
// writing and reading that, and whether it can. It may modify the value.
func jsonShaped(value any, depth int) (any, bool) {
	if depth > maxDepth {
		return nil, false
	}
	switch v := value.(type) {
	case nil, bool, int64:
		return v, true
	case string:
		return v, utf8.ValidString(v)
	case int:
		return int64(v), true
	case uint64:
		return float64(v), true // Too great for an int64, or it would be one.
	case float64:
		return jsonNumber(v)
	case []any:
		for i, item := range v {
			shaped, ok := jsonShaped(item, depth+1)
			if !ok {
				return nil, false
			}
			v[i] = shaped
		}
		return v, true
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			name, isString := key.(string)
			shaped, ok := jsonShaped(item, depth+1)
			if !isString || !ok || !utf8.ValidString(name) {
				return nil, false
			}
			out[name] = shaped
		}
		return out, true
	default:
		return nil, false
	}
}

// jsonNumber returns what a float is after JSON: an integer if it is written as
// one, which is how those below 1e21 are that have no fraction.
//
// Source: https://pkg.go.dev/encoding/json#Marshal; sigs.k8s.io/json preserves
// integers.
func jsonNumber(f float64) (any, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	if f != math.Trunc(f) || math.Abs(f) >= 1e21 {
		return f, true
	}
	if i, err := strconv.ParseInt(strconv.FormatFloat(f, 'f', -1, 64), 10, 64); err == nil {
		return i, true
	}
	return f, true
}

// begin returns the line on which the content of the chunk begins, behind its
// marker and comments, and whether it is certain: YAML knows more ends of lines
// than files do, and byte order marks inside them.
func (c chunk) begin() (int, bool) {
	const odd = "\r\u0085\u2028\u2029\uFEFF"
	line, rest := c.line, bytes.TrimPrefix(c.text, []byte("---"))
	for len(rest) > 0 {
		text, behind, _ := bytes.Cut(rest, []byte("\n"))
		text = bytes.TrimLeft(bytes.TrimSuffix(text, []byte("\r")), " \t")
		first, _ := utf8.DecodeRune(text)
		switch {
		case strings.ContainsRune(odd, first), first == '#' && bytes.ContainsAny(text, odd):
			return 0, false
		case len(text) > 0 && first != '#':
			return line, true
		}
		line, rest = line+1, behind
	}
	return 0, false
}
