package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"refract.dev/tree"
)

// Mismatch is a place where an object is not what an API server takes for its
// type.
type Mismatch struct {
	// Path is a JSON pointer (RFC 6901) into the object. What it names does not exist
	// if a member is missing.
	Path string
	// Message is what is wrong there, without an end mark.
	Message string
	// Hint is advice that comes from having looked; it may be empty.
	Hint string
}

// Messages by which a [Mismatch] says that a field is not known, and that one is not there.
const (
	NoSuchField = "there is no such field"
	IsMissing   = "is missing"
)

// longest is how many characters of a value a message shows.
const longest = 80

// show returns a value as a person would quote it in a sentence. What is secret
// is not shown.
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

// quote returns a value as JSON, shortened if it is long, or the empty string if
// it cannot be JSON.
func quote(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // For people, < is clearer than \u003c.
	if err := encoder.Encode(value); err != nil {
		return ""
	}
	line := strings.TrimSuffix(text.String(), "\n")
	if utf8.RuneCountInString(line) <= longest {
		return line
	}
	return string([]rune(line)[:longest]) + "…"
}

// quoteAll returns the values that there may be, as a list.
func quoteAll(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = quote(v)
	}
	return strings.Join(texts, ", ")
}

// hintType tells how a value is written as what was meant, if that can be seen.
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

// reads reports whether a text would be of a type if it were not quoted.
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
