package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// maxText is the maximum number of characters of a value in a line of text.
const maxText = 64

// Text returns a value as JSON on one line, cut if it is long.
func Text(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return tree.TypeName(value)
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if utf8.RuneCountInString(text) <= maxText {
		return text
	}
	runes := []rune(text)
	return string(runes[:maxText-1]) + "…"
}

// TextOf returns a change on one line, without its author: "/spec/replicas 1 → 3", "+ /metadata/labels/tier "web"", "-
// /spec/paused true".
func TextOf(c *tree.Change) string {
	switch c.Op {
	case tree.OpAdd:
		return fmt.Sprintf("+ %s %s", c.Path, Text(c.After))
	case tree.OpRemove:
		return fmt.Sprintf("- %s %s", c.Path, Text(c.Before))
	default:
		return fmt.Sprintf("~ %s %s → %s", c.Path, Text(c.Before), Text(c.After))
	}
}

// The masks of the values of a Secret.
const (
	maskedBefore = "*** (before)"
	maskedAfter  = "*** (after)"
	masked       = "***"
)

// Mask returns the change with masks in place of the values of a Secret. A change of an object of another kind is
// returned unmodified.
func Mask(kind schema.GroupKind, c tree.Change) tree.Change {
	if kind != (schema.GroupKind{Kind: "Secret"}) {
		return c
	}
	before, after := masked, masked
	if c.Op == tree.OpReplace {
		before, after = maskedBefore, maskedAfter
	}
	c.Before, c.After = maskAt(c.Path, c.Before, before), maskAt(c.Path, c.After, after)
	return c
}

// MaskObject returns the object with masks in place of the values of a Secret. An object of another kind is returned
// unmodified. The result shares all other parts with the object.
func MaskObject(object map[string]any) map[string]any {
	if object["kind"] != "Secret" || object["apiVersion"] != "v1" {
		return object
	}
	return maskAt("", object, masked).(map[string]any) //nolint:forcetypeassert // A map stays one.
}

// shown are the fields of a Secret that are not secret. All other fields may be, even unknown ones: a misspelled key
// has real values.
var shown = []string{"apiVersion", "kind", "metadata", "type", "immutable"}

// maskAt returns the value at a place of a Secret, with text in place of all parts that may be secret.
func maskAt(at string, value any, text string) any {
	if at != "" {
		key, _, _ := strings.Cut(at[1:], "/")
		inside := tree.MustParse("/" + key)
		return maskMember(inside.Keys()[0], at[1+len(key):], value, text)
	}
	m, ok := value.(map[string]any)
	if !ok {
		return leaves(value, text)
	}
	out := make(map[string]any, len(m))
	for key := range m {
		out[key] = maskMember(key, "", m[key], text)
	}
	return out
}

// maskMember masks the value at a place inside a top-level field of a Secret.
func maskMember(key, at string, value any, text string) any {
	switch {
	case !slices.Contains(shown, key):
		return leaves(value, text)
	case key != "metadata":
		return value
	case tree.Covers("/annotations", at):
		return copies(value, text)
	}
	if m, ok := value.(map[string]any); ok && at == "" && m["annotations"] != nil {
		m = maps.Clone(m)
		m["annotations"] = copies(m["annotations"], text) // Some tools store a copy of the whole object there.
		return m
	}
	return value
}

// harmless is the maximum length in bytes of an annotation that cannot contain a copy of a Secret.
const harmless = 63

// copies returns annotations, or one of them, with text in place of values that may be a copy of the Secret: those that
// are long or look like JSON.
func copies(value any, text string) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inside := range v {
			out[key] = copies(inside, text)
		}
		return out
	case string:
		if len(v) > harmless || strings.ContainsAny(v, "{[") {
			return text
		}
		return v
	default:
		return value
	}
}

// leaves returns the value with text in place of everything except keys and nulls.
func leaves(value any, text string) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inside := range v {
			out[key] = leaves(inside, text)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = leaves(v[i], text)
		}
		return out
	case nil:
		return nil
	default:
		return text
	}
}
