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
func hintType(value any, s *shape) string {
	switch v := value.(type) {
	case string:
		var bare any
		if json.Unmarshal([]byte(v), &bare) == nil && bare != nil && s.wants(bare) == "" {
			return "write it without quotes"
		}
	case int64, float64, bool:
		if s.Type == "string" {
			return "quote the value"
		}
	}
	return ""
}
