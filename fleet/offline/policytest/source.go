package policytest

import (
	"bytes"
	"strings"
	"unicode/utf8"

	yaml "go.yaml.in/yaml/v3"
)

// source is the text of a document.
type source struct {
	text  []byte
	lines []int // The offset of each line.
}

func newSource(text []byte) *source {
	s := &source{text: text, lines: []int{0}}
	for i, b := range text {
		if b == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// newline returns the line ending of the first line; all lines of a file usually have the same one.
func (s *source) newline() string {
	if first, _, more := bytes.Cut(s.text, []byte("\n")); more && bytes.HasSuffix(first, []byte("\r")) {
		return "\r\n"
	}
	return "\n"
}

// offset returns the offset of a node. The column of a node counts characters.
func (s *source) offset(node *yaml.Node) int {
	if node.Line < 1 || node.Line > len(s.lines) {
		return len(s.text)
	}
	at := s.lines[node.Line-1]
	for range node.Column - 1 {
		_, size := utf8.DecodeRune(s.text[at:])
		at += size
	}
	return at
}

// end returns the offset of the end of a node. It returns false for nodes whose end is not easily found.
func (s *source) end(node *yaml.Node, flow bool) (int, bool) {
	start := s.offset(node)
	if node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 || start >= len(s.text) {
		return 0, false
	}
	switch {
	case node.Kind == yaml.MappingNode || node.Kind == yaml.SequenceNode:
		if node.Style&yaml.FlowStyle != 0 {
			return s.closing(start)
		}
		if len(node.Content) == 0 {
			return 0, false
		}
		return s.end(node.Content[len(node.Content)-1], false)
	case node.Kind != yaml.ScalarNode:
		return 0, false
	case node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return s.quoted(start)
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s.block(node.Line), true
	default:
		return s.plain(start, flow)
	}
}

// quoted returns the end of the string that begins at start.
func (s *source) quoted(start int) (int, bool) {
	mark := s.text[start]
	for i := start + 1; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\\' && mark == '"':
			i++
		case s.text[i] != mark:
		case mark == '\'' && i+1 < len(s.text) && s.text[i+1] == mark:
			i++
		default:
			return i + 1, true
		}
	}
	return 0, false
}

// closing returns the end of the flow collection that begins at start.
func (s *source) closing(start int) (int, bool) {
	depth := 0
	for i := start; i < len(s.text); i++ {
		switch b := s.text[i]; {
		case b == '[' || b == '{':
			depth++
		case b == ']' || b == '}':
			if depth--; depth == 0 {
				return i + 1, true
			}
		case (b == '"' || b == '\'') && strings.IndexByte(" \t\n,[{:", s.text[i-1]) >= 0:
			end, ok := s.quoted(i)
			if !ok {
				return 0, false
			}
			i = end - 1
		case b == '#' && (s.text[i-1] == ' ' || s.text[i-1] == '\n'):
			i += max(bytes.IndexByte(s.text[i:], '\n'), 0)
		}
	}
	return 0, false
}

// plain returns the end of a scalar without quotes. The scalar is assumed to end on its line.
func (s *source) plain(start int, flow bool) (int, bool) {
	rest := s.text[start:]
	if n := bytes.IndexByte(rest, '\n'); n >= 0 {
		rest = rest[:n]
	}
	if n := bytes.Index(rest, []byte(" #")); n >= 0 {
		rest = rest[:n]
	}
	if flow {
		if n := bytes.IndexAny(rest, ",[]{}"); n >= 0 {
			rest = rest[:n]
		}
	}
	rest = bytes.TrimRight(rest, " \t\r")
	return start + len(rest), len(rest) > 0
}

// block returns the end of the block scalar whose header is on the given line: the end of the last line with at least
// the indentation of the first.
func (s *source) block(line int) int {
	indent, end := -1, len(s.text)
	for i := line; i < len(s.lines); i++ {
		text := s.text[s.lines[i]:]
		if n := bytes.IndexByte(text, '\n'); n >= 0 {
			text = text[:n]
		}
		trimmed := bytes.TrimLeft(text, " ")
		if len(bytes.TrimSpace(trimmed)) == 0 {
			continue
		}
		if indent < 0 {
			indent = len(text) - len(trimmed)
		}
		if len(text)-len(trimmed) < indent {
			break
		}
		end = s.lines[i] + len(bytes.TrimSuffix(text, []byte("\r")))
	}
	return end
}
