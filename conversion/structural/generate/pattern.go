package generate

import (
	"regexp/syntax"
	"strings"
)

// repeats is the maximum number of additional repetitions of a part with an unlimited number of repetitions.
const repeats = 3

// matching returns a text that matches a regular expression. It assumes that anchors and boundaries match. If the
// expression cannot be parsed, the text is empty.
func (c choices) matching(pattern string) string {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	c.write(&b, tree.Simplify())
	return b.String()
}

// write appends a text that an expression matches.
func (c choices) write(b *strings.Builder, e *syntax.Regexp) {
	switch e.Op {
	case syntax.OpLiteral:
		b.WriteString(string(e.Rune))
	case syntax.OpCharClass:
		b.WriteRune(c.letter(e.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteRune(pick(c, 'x', 'Z', '0', '-', 'é'))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range e.Sub {
			c.write(b, sub)
		}
	case syntax.OpAlternate:
		c.write(b, pick(c, e.Sub...))
	case syntax.OpStar:
		c.repeat(b, e.Sub[0], 0, repeats)
	case syntax.OpPlus:
		c.repeat(b, e.Sub[0], 1, 1+repeats)
	case syntax.OpQuest:
		c.repeat(b, e.Sub[0], 0, 1)
	case syntax.OpRepeat:
		most := e.Max
		if most < 0 {
			most = e.Min + repeats
		}
		c.repeat(b, e.Sub[0], e.Min, most)
	default: // The part matches the empty text, or only a position.
	}
}

func (c choices) repeat(b *strings.Builder, e *syntax.Regexp, least, most int) {
	for range c.between(least, most) {
		c.write(b, e)
	}
}

// letter returns a letter of a character class. The class is given as the first and last letter of each range. letter
// prefers printable ASCII letters, and often returns the first or the last of them.
func (c choices) letter(ranges []rune) rune {
	var readable []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := max(ranges[i], '!'); r <= min(ranges[i+1], '~'); r++ {
			readable = append(readable, r)
		}
	}
	switch {
	case len(readable) == 0 && len(ranges) == 0:
		return 'x'
	case len(readable) == 0:
		return ranges[0]
	case c.chance(30):
		return pick(c, readable[0], readable[len(readable)-1])
	default:
		return pick(c, readable...)
	}
}
