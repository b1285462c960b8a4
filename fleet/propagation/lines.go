package propagation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"refract.dev/fleet/policy/override"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// The bounds of the text that a desired state keeps about the changes and warnings of an object, for its report. A
// desired state lives as long as its object. So it keeps changes as text, because a [tree.Change] refers to the
// replaced value and would keep that in memory.
const (
	maxVariants   = 16       // Variants whose changes are kept.
	maxChanges    = 64       // Changes of a variant.
	maxText       = 64 << 10 // Bytes of all changes, and of all warnings about variants.
	maxPath       = 256      // Bytes.
	maxValueRunes = 60
	maxWarnings   = 16  // Warnings of the object, and of each variant.
	maxWarning    = 500 // Bytes.
)

// lines renders the first changes, up to maxChanges and the given number of bytes.
func lines(changes []tree.Change, secret bool, bytes int) []string {
	var out []string
	for i := range changes[:min(len(changes), maxChanges)] {
		c := &changes[i]
		before, after := value(c.Before, c.Op != tree.OpAdd, secret), value(c.After, c.Op != tree.OpRemove, secret)
		line := fmt.Sprintf("%s: %s → %s (%s)", output.Cut(c.Path, maxPath), before, after, c.By)
		bytes -= len(line)
		if bytes < 0 {
			break
		}
		out = append(out, line)
	}
	return out
}

func value(v any, there, secret bool) string {
	switch {
	case !there:
		return "(nothing)"
	case secret:
		return "***"
	}
	var e excerpt
	e.write(v)
	if utf8.RuneCount(e.text) <= maxValueRunes {
		return string(e.text)
	}
	return string([]rune(string(e.text))[:maxValueRunes]) + "…"
}

// excerpt is the JSON of a value, or only its beginning. A value may be a whole object, and each rule may change it,
// so the rest is not encoded.
type excerpt struct{ text []byte }

// enough is a number of bytes that certainly holds more than maxValueRunes characters.
const enough = (maxValueRunes + 1) * utf8.UTFMax

func (e *excerpt) write(value any) {
	switch v := value.(type) {
	case map[string]any:
		e.text = append(e.text, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if len(e.text) >= enough {
				return
			}
			if i > 0 {
				e.text = append(e.text, ',')
			}
			e.write(key)
			e.text = append(e.text, ':')
			e.write(v[key])
		}
		e.text = append(e.text, '}')
	case []any:
		e.text = append(e.text, '[')
		for i := range v {
			if len(e.text) >= enough {
				return
			}
			if i > 0 {
				e.text = append(e.text, ',')
			}
			e.write(v[i])
		}
		e.text = append(e.text, ']')
	case string:
		v = v[:min(len(v), enough)]
		if tree.Size(v) > len(v)+len(`""`) { // The JSON has escapes.
			e.marshal(v)
			return
		}
		e.text = append(append(append(e.text, '"'), v...), '"')
	case int64:
		e.text = strconv.AppendInt(e.text, v, 10)
	default:
		e.marshal(v)
	}
}

func (e *excerpt) marshal(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte("?")
	}
	e.text = append(e.text, text...)
}

// warned renders the first warnings about a variant, up to maxWarnings and the given number of bytes.
func warned(warnings []override.Warning, bytes int) []string {
	var out []string
	for i := range warnings[:min(len(warnings), maxWarnings)] {
		text := output.Cut(warnings[i].String(), maxWarning)
		bytes -= len(text)
		if bytes < 0 {
			break
		}
		out = append(out, text)
	}
	return more(out, len(warnings))
}

// sizeOf returns the total length of the lines in bytes.
func sizeOf(lines []string) int {
	n := 0
	for _, line := range lines {
		n += len(line)
	}
	return n
}

// fewer returns the first maxWarnings warnings, shortened, and the number of the others.
func fewer(warnings []string) []string {
	var out []string
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		out = append(out, output.Cut(w, maxWarning))
	}
	return more(out, len(warnings))
}

// more appends the number of the remaining warnings.
func more(first []string, of int) []string {
	if n := of - len(first); n > 0 {
		return append(first, fmt.Sprintf("and %d more warnings", n))
	}
	return first
}
