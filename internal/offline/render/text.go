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

// maxText is how many characters of a value a line of text shows.
const maxText = 64

// Text returns a value as a line of text shows it: JSON, cut where it is long.
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

// TextOf returns a change as a line of text shows it, without its author:
// "/spec/replicas 1 → 3", "+ /metadata/labels/tier "web"", "- /spec/paused true".
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

// Values that stand for those of a Secret.
const (
	maskedBefore = "*** (before)"
	maskedAfter  = "*** (after)"
	masked       = "***"
)

// Mask returns the change with stand-ins for what the values of a Secret say; a
// change of an object of another kind it returns as it is.
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

// MaskObject returns the object with stand-ins for what the values of a Secret
// say; an object of another kind it returns as it is. It shares what it does not
// replace.
func MaskObject(object map[string]any) map[string]any {
	if object["kind"] != "Secret" || object["apiVersion"] != "v1" {
		return object
	}
	return maskAt("", object, masked).(map[string]any) //nolint:forcetypeassert // A map stays one.
}

// shown are the members of a Secret that are no secret. All others may be, even
// those that no Secret has: a misspelt key has real values.
var shown = []string{"apiVersion", "kind", "metadata", "type", "immutable"}

// maskAt returns the value at a place of a Secret, with text in place of what is or
// may be secret of it.
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

// maskMember masks the value at a place inside a member of a Secret.
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
		m["annotations"] = copies(m["annotations"], text) // Where tools leave a copy of the whole.
		return m
	}
	return value
}

// harmless is how long an annotation may be that surely is no copy of a Secret.
const harmless = 63

// copies returns annotations, or one of them, with text in place of what may be a
// copy of the Secret: what is long, or looks like JSON.
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

// leaves returns the value with text in place of everything but keys.
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
