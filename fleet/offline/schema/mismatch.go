package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"refract.dev/tree"
)

// Mismatch is a place where an object does not fit its type.
type Mismatch struct {
	// Path is a JSON pointer (RFC 6901) into the object. For a missing member, it points to a place that does not
	// exist.
	Path string
	// Message describes the mistake, without a final period.
	Message string
	// Hint is advice that takes the value or the type into account; it may be empty.
	Hint string
}

// The messages of a [Mismatch] for an unknown field and for a missing field.
const (
	NoSuchField = "there is no such field"
	IsMissing   = "is missing"
)

// longest is the maximum number of characters of a value in a message.
const longest = 80

// show formats a value for a sentence. A secret value is replaced by its type.
func show(value any, secret bool) string {
	switch value.(type) {
	case map[string]any, []any, nil:
		return tree.TypeName(value)
	}
	text := quote(value)
	if secret || text == "" {
		return tree.TypeName(value)
	}
	return fmt.Sprintf("%s (%s)", text, tree.TypeName(value))
}

// quote returns a value as JSON, cut if it is long. It returns the empty string for a value that has no JSON.
func quote(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // For readers, < is clearer than \u003c.
	if err := encoder.Encode(value); err != nil {
		return ""
	}
	line := strings.TrimSuffix(text.String(), "\n")
	if utf8.RuneCountInString(line) <= longest {
		return line
	}
	return string([]rune(line)[:longest]) + "…"
}

// quoteAll returns the possible values as a list.
func quoteAll(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = quote(v)
	}
	return strings.Join(texts, ", ")
}

// hintType suggests the right notation of a value, if its intended type is recognizable.
func hintType(value any, want string) string {
	switch v := value.(type) {
	case string:
		if reads(v, want) {
			return "write it without quotes"
		}
	case map[string]any, []any, nil:
	default:
		if want == "string" {
			return "quote the value"
		}
	}
	return ""
}

// reads reports whether a text without its quotes would be a value of the given type.
func reads(text, want string) bool {
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return false
	}
	switch value := value.(type) {
	case bool:
		return want == "boolean"
	case float64:
		_, whole := integer(value)
		return want == "number" || want == "integer" && whole
	default:
		return false
	}
}
