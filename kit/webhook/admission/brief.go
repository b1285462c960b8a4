package admission

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of warnings. If all warnings together are longer than allWarnings characters, an API server cuts each warning
// to longestWarning characters.
//
// Source: https://github.com/kubernetes/apiserver/blob/v0.37.1/pkg/endpoints/filters/warning.go
const (
	allWarnings    = 4096
	longestWarning = 256
	mostWarnings   = allWarnings / longestWarning
)

// fitting adapts the warnings to the limits of an API server.
func fitting(warnings []string) []string {
	var out []string
	all := 0
	for _, text := range warnings {
		if text = OneLine(text); text != "" && !slices.Contains(out, text) {
			out = append(out, text)
			all += utf8.RuneCountInString(text)
		}
	}
	if all <= allWarnings {
		return out
	}
	if more := len(out) - mostWarnings; more > 0 {
		out = append(out[:mostWarnings-1], fmt.Sprintf("and %d more", more+1))
	}
	for i := range out {
		out[i] = Brief(out[i], longestWarning)
	}
	return out
}

// Brief returns the text on one line, as [OneLine] does, cut to at most this many bytes; the number must be at least 3.
// It does not cut inside a character, and marks a cut by an ellipsis.
func Brief(text string, most int) string {
	const mark = "…"
	text = OneLine(text)
	if len(text) <= most {
		return text
	}
	end := most - len(mark)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// OneLine replaces line breaks and other control characters of a text by spaces. Warnings cannot contain them, because
// they are sent in HTTP headers.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
