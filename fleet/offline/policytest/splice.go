package policytest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"

	"refract.dev/tree"
)

// replacement is a new value for a value of the text.
type replacement struct {
	at  value
	now any
}

// plan appends the replacements that turn the value into a new value. Each replaces as little as possible.
func plan(at value, now any, found []replacement) []replacement {
	if tree.Equal(at.is, now) {
		return found
	}
	switch n := now.(type) {
	case map[string]any:
		m, ok := at.is.(map[string]any)
		if !ok || len(m) != len(n) {
			break
		}
		before := len(found)
		for _, e := range at.entries() {
			is, there := n[e.key()]
			if !there || e.node == nil {
				return append(found[:before], replacement{at, now})
			}
			found = plan(e, is, found)
		}
		return found
	case []any:
		list, ok := at.is.([]any)
		if !ok || len(list) != len(n) {
			break
		}
		for i := range list {
			found = plan(at.item(i, list[i]), n[i], found)
		}
		return found
	}
	return append(found, replacement{at, now})
}

// edit is a replacement in the text, with all values of the document that it changes: several values if aliases refer
// to the text.
type edit struct {
	means   []replacement // All have the same node; the first determines the notation.
	updated Updated
}

// splice replaces the bytes of exactly these values. It returns false if the place of a value in the text is not known.
// New lines get the line endings of the text.
func splice(text []byte, edits []*edit) ([]byte, bool) {
	type cut struct {
		start, end int
		text       string
	}
	cuts := make([]cut, len(edits))
	s := newSource(text)
	newline := s.newline()
	for i, e := range edits {
		r := &e.means[0]
		if r.at.node == nil {
			return nil, false
		}
		start := s.offset(r.at.node)
		end, ok := s.end(r.at.node, r.at.flow)
		if !ok || end < start {
			return nil, false
		}
		written, below := s.write(r, end)
		if below {
			start = len(bytes.TrimRight(text[:start], " "))
		}
		cuts[i] = cut{start, end, strings.ReplaceAll(written, "\n", newline)}
	}
	slices.SortFunc(cuts, func(a, b cut) int { return cmp.Compare(a.start, b.start) })
	var out []byte
	at := 0
	for _, c := range cuts {
		if c.start < at {
			return nil, false
		}
		out = append(append(out, text[at:c.start]...), c.text...)
		at = c.end
	}
	return append(out, text[at:]...), true
}

// write returns the text for a value. below reports that the text begins on the line below the key.
func (s *source) write(r *replacement, end int) (text string, below bool) {
	node := r.at.node
	collection := isCollection(r.now)
	switch {
	case !collection && !r.at.flow:
		return scalar(r.now, node.Style), false
	case r.at.flow || !collection:
		return inFlow(r.now), false
	case (node.Kind == yaml.MappingNode || node.Kind == yaml.SequenceNode) && node.Style&yaml.FlowStyle == 0:
		return indented(r.now, node.Column-1), false
	}
	rest, _, _ := bytes.Cut(s.text[end:], []byte("\n"))
	if len(bytes.TrimSpace(rest)) > 0 || len(node.Content) > 0 || len(r.at.keys) == 0 {
		return inFlow(r.now), false // A comment follows, or the value was in flow style.
	}
	if _, member := r.at.keys[len(r.at.keys)-1].(string); !member {
		return inFlow(r.now), false
	}
	indent := r.at.indent + 2
	return "\n" + strings.Repeat(" ", indent) + indented(r.now, indent), true
}

// isCollection reports whether a value is a non-empty map or list.
func isCollection(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	default:
		return false
	}
}

// scalar writes a scalar on one line, in the style of quotes that it had.
func scalar(v any, style yaml.Style) string {
	text, isString := v.(string)
	if isString && style&yaml.SingleQuotedStyle != 0 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	if isString && style&yaml.DoubleQuotedStyle != 0 {
		return inFlow(v)
	}
	out, err := kyaml.Marshal(v)
	if line := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return inFlow(v)
}

// inFlow writes a value on one line. Strings are written as JSON, which is valid in every context.
func inFlow(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "" // The result is invalid, and the caller notices that.
	}
	if !isCollection(v) {
		return strings.TrimSuffix(b.String(), "\n")
	}
	var node yaml.Node
	if err := yaml.Unmarshal(b.Bytes(), &node); err != nil || len(node.Content) == 0 {
		return strings.TrimSuffix(b.String(), "\n")
	}
	unquote(node.Content[0])
	out, err := yaml.Marshal(node.Content[0])
	if line := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// unquote removes the quotes, so that the encoder quotes only the keys and strings that need quotes.
func unquote(node *yaml.Node) {
	node.Style &^= yaml.DoubleQuotedStyle
	for _, inside := range node.Content {
		unquote(inside)
	}
}

// indented writes a collection as a block. The first line is not indented.
func indented(v any, indent int) string {
	out, err := kyaml.Marshal(v)
	if err != nil {
		return ""
	}
	text := strings.TrimSuffix(string(out), "\n")
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
			if line != "" {
				b.WriteString(strings.Repeat(" ", indent))
			}
		}
		b.WriteString(line)
	}
	return b.String()
}
