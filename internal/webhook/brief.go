package webhook

import (
	"strings"
	"unicode/utf8"
)

// Brief returns a text as an API server passes warnings on: as [OneLine] does, and no
// longer than this many bytes, cut at a character.
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
// header of HTTP can hold.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
