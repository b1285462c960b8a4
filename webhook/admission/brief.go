package admission

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// An API server cuts warnings where all of them are longer than this many characters.
//
// Source: https://github.com/kubernetes/apiserver/blob/v0.37.1/pkg/endpoints/filters/warning.go
const (
	allWarnings    = 4096
	longestWarning = 256
	mostWarnings   = allWarnings / longestWarning
)

// fitting returns warnings as an API server passes them on.
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

// Brief returns a text as [OneLine] does, and no longer than this many bytes, which
// must be 3 at least: cut at a character, with an ellipsis.
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

// OneLine returns a text without line breaks and other control characters, which no
// header of HTTP can hold, and so no warning.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
