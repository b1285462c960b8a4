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

// decodeQuickly returns the content of a YAML document if it is certain: the document is an object, its keys are
// unique, and all of them are strings. Otherwise it returns false, and the slow decoder finds the mistakes and their
// places. Both agree because they use the library of kubectl: yes is true, and 010 is 8.
func decodeQuickly(text []byte) (any, bool) {
	if bytes.Contains(text, []byte("<<")) {
		return nil, false // A merge may set a key that the object also sets.
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
	return nil, false // The document may be empty, which the slow decoder detects.
}

// maxDepth is the maximum number of nested objects and arrays around a value. Real manifests have far fewer.
const maxDepth = 1000

// tooDeep reports whether the value, at the given depth, or a value inside it is nested too deeply.
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

// factTooDeep is the error of a document that is nested too deeply.
var factTooDeep = fmt.Sprintf("has more than %d objects and arrays inside each other: no API server's objects have", maxDepth)

// jsonShaped converts a value of the YAML library to the form of decoded JSON, without writing and parsing JSON. It
// returns false if it cannot. It may modify the value.
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
		return float64(v), true // The value is too large for an int64; otherwise it would be one.
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

// jsonNumber returns the value of a float after a conversion to JSON and back: an integer if JSON has no fraction, as
// for all whole numbers below 1e21.
//
// Source: https://pkg.go.dev/encoding/json#Marshal; sigs.k8s.io/json preserves integers.
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

// begin returns the line where the content of the chunk begins, after its marker and comments. It returns false if the
// line is not certain, because there are line endings that only YAML knows, or byte order marks.
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
