package manifest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	yamlv2 "go.yaml.in/yaml/v2"
	yaml "go.yaml.in/yaml/v3"
)

// lines knows on which line of a file each field of a document stands. The zero
// lines knows nothing. Its methods may be called at any time by anyone.
type lines struct {
	nodes  func() *yaml.Node // Parses when it is called first: few documents are asked.
	before int               // Lines of the file before the text that is parsed.
}

// linesOf returns the lines of a document that begins on a line. JSON that is not
// YAML (tabs, or surrogates) has none.
func linesOf(text []byte, line int) lines {
	return lines{before: line - 1, nodes: sync.OnceValue(func() *yaml.Node {
		var node yaml.Node
		if err := yaml.Unmarshal(text, &node); err != nil || len(node.Content) == 0 {
			return nil
		}
		return node.Content[0]
	})}
}

// linesIn returns the lines of a part of a document.
func linesIn(node *yaml.Node, before int) lines {
	return lines{before: before, nodes: func() *yaml.Node { return node }}
}

func (l lines) root() *yaml.Node {
	if l.nodes == nil {
		return nil
	}
	return l.nodes()
}

func (l lines) line(node *yaml.Node) int { return l.before + node.Line }

// at returns the place of the field at path in a document at place.
func (l lines) at(place Place, path string) Place {
	place.Line = l.of(path, place.Line)
	return place
}

// item returns the lines of an element of the list with this key.
func (l lines) item(key string, i int) lines {
	root := l.root()
	if root == nil || root.Kind != yaml.MappingNode {
		return lines{}
	}
	for j := 0; j+1 < len(root.Content); j += 2 {
		list := resolve(root.Content[j+1])
		if root.Content[j].Value == key && list.Kind == yaml.SequenceNode && i < len(list.Content) {
			return linesIn(resolve(list.Content[i]), l.before)
		}
	}
	return lines{}
}

// of returns the line of the field at path, written as by [field.Path], or of
// the nearest field around it that is there; otherwise when nothing is known.
func (l lines) of(path string, otherwise int) int {
	root := l.root()
	if root == nil {
		return otherwise
	}
	if path == "" {
		return l.line(root)
	}
	_, node := deepest(root, "."+path)
	if node == nil {
		return l.line(root)
	}
	return l.line(node)
}

// deepest goes down from node as far as path leads. It returns how much of path
// that was, and the key or element where it ended; nil if it got nowhere. A key
// may hold dots and brackets itself, so more than one may fit.
func deepest(node *yaml.Node, path string) (int, *yaml.Node) {
	node = resolve(node)
	best, at := 0, (*yaml.Node)(nil)
	follow := func(step string, here, inside *yaml.Node) {
		rest, ok := strings.CutPrefix(path, step)
		if !ok || (rest != "" && rest[0] != '.' && rest[0] != '[') {
			return
		}
		n, found := deepest(inside, rest)
		if found == nil {
			found = here
		}
		if len(step)+n > best {
			best, at = len(step)+n, found
		}
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content) && path != ""; i += 2 {
			key := node.Content[i]
			follow("."+key.Value, key, node.Content[i+1])
			follow("["+key.Value+"]", key, node.Content[i+1])
		}
	case yaml.SequenceNode:
		number, _, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(node.Content) {
			follow("["+number+"]", node.Content[i], node.Content[i])
		}
	default: // Nothing is inside.
	}
	return best, at
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// wrongKey is a key that is in its object already, or null.
type wrongKey struct {
	path        string
	line, first int
	// spelling is how the first key is written, if that differs, and key what both mean.
	spelling, key string
	// null is whether the key is null.
	null bool
}

// fact says so.
func (d *wrongKey) fact() string {
	if d.null {
		return fmt.Sprintf("has the key `%s`, which is null and no string: quote it", d.spelling)
	}
	if d.spelling == "" {
		return fmt.Sprintf("is set twice, first on line %d", d.first)
	}
	return fmt.Sprintf("is the same key as `%s` on line %d: YAML reads both as %q; quote the keys, or keep one of them", d.spelling, d.first, d.key)
}

// written is a key as it stands in a file.
type written struct {
	line            int
	value, spelling string
}

// spell returns a scalar as it is written.
func spell(node *yaml.Node) string {
	if node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return strconv.Quote(node.Value)
	}
	return node.Value
}

// plain returns what the library that kubectl uses reads a scalar without quotes as, and true; false for strings
// and for what is no such scalar. It knows YAML 1.1: on is true, and 010 is 8.
func plain(node *yaml.Node) (value any, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Style != 0 {
		return nil, false
	}
	if err := yamlv2.Unmarshal([]byte(node.Value), &value); err != nil {
		return nil, false
	}
	_, isString := value.(string)
	return value, !isString
}

// keyOf returns what a key becomes in JSON.
//
// Source: https://pkg.go.dev/sigs.k8s.io/yaml#YAMLToJSON, which writes keys that are no strings as these.
func keyOf(node *yaml.Node) string {
	value, ok := plain(node)
	if !ok {
		return node.Value
	}
	switch v := value.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 32)
	default: // The library refuses it.
		return node.Value
	}
}

// wrongKeys returns the keys that are set more than once, and those that are null.
func (l lines) wrongKeys() []wrongKey {
	var found []wrongKey
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		if node.Kind == yaml.SequenceNode {
			for i, item := range node.Content {
				walk(item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
		if node.Kind != yaml.MappingNode { // What an alias stands for is seen where it is defined.
			return
		}
		first := make(map[string]written, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := resolve(node.Content[i])
			at, means := join(path, key.Value), keyOf(key)
			if value, ok := plain(key); ok && value == nil {
				found = append(found, wrongKey{path: path, line: l.line(node.Content[i]), spelling: spell(key), null: true})
			}
			if before, ok := first[means]; ok && key.Kind == yaml.ScalarNode {
				again := wrongKey{path: at, line: l.line(node.Content[i]), first: before.line, key: means}
				if before.value != key.Value {
					again.spelling = before.spelling
				}
				found = append(found, again)
			} else {
				first[means] = written{line: l.line(node.Content[i]), value: key.Value, spelling: spell(key)}
			}
			walk(node.Content[i+1], at)
		}
	}
	walk(l.root(), "")
	return found
}

// scalars goes through the values of a document that are neither objects nor lists, with their paths. What an
// alias stands for is seen where it is defined.
func (l lines) scalars() func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if root := l.root(); root != nil {
			scalarsIn(root, "", yield)
		}
	}
}

func scalarsIn(node *yaml.Node, path string, yield func(string, *yaml.Node) bool) bool {
	switch node.Kind {
	case yaml.ScalarNode:
		return yield(path, node)
	case yaml.SequenceNode:
		for i, item := range node.Content {
			if !scalarsIn(item, fmt.Sprintf("%s[%d]", path, i), yield) {
				return false
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if !scalarsIn(node.Content[i+1], join(path, node.Content[i].Value), yield) {
				return false
			}
		}
	default: // An alias.
	}
	return true
}

// join adds a key to a path as [field.Path] writes it: in brackets if it would
// not read as one.
func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./[]") && path != "":
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
