package manifest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	yamlv2 "go.yaml.in/yaml/v2"
	yaml "go.yaml.in/yaml/v3"
)

// lines knows the line of each field of a document. The zero value knows no lines. Its methods are safe for concurrent
// use.
type lines struct {
	nodes  func() *yaml.Node // Parses the document on the first call, because few documents need lines.
	before int               // The number of lines in the file before the parsed text.
}

// linesOf returns the lines of a document that begins on the given line. JSON that is not valid YAML (tabs, or
// surrogates) has no lines.
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

// at returns the place of a field, from the place of the document and the path of the field.
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

// of returns the line of the field with this path (in the notation of [field.Path]), or of the nearest existing field
// around it. If no lines are known, it returns the argument otherwise.
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

// deepest descends from node along path as far as possible. It returns the length of the matched part of path, and the
// key or element where the match ends; nil if nothing matches. Keys may contain dots and brackets, so several may
// match; the longest match wins.
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
	default: // The node has no nodes inside.
	}
	return best, at
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// wrongKey is a duplicate key, or a key that is not a string.
type wrongKey struct {
	path        string
	line, first int
	// spelling is the notation of a key that cannot be a string, or of the first of two duplicate keys if the notations
	// differ. key is the value that both notations have.
	spelling, key string
	// unfit describes a key that cannot be a string; empty for a duplicate key.
	unfit string
}

// fact describes the mistake.
func (d *wrongKey) fact() string {
	switch {
	case d.unfit != "" && d.spelling == "":
		return fmt.Sprintf("has %s as a key: a key is a string", d.unfit)
	case d.unfit != "":
		return fmt.Sprintf("has the key `%s`, which is %s and no string: quote it", d.spelling, d.unfit)
	case d.spelling == "":
		return fmt.Sprintf("is set twice, first on line %d", d.first)
	default:
		return fmt.Sprintf("is the same key as `%s` on line %d: YAML reads both as %q; quote the keys, or keep one of them", d.spelling, d.first, d.key)
	}
}

// written is a key as it is spelled in the file, with its line.
type written struct {
	line     int
	spelling string
}

// spell returns the notation of a scalar in the file.
func spell(node *yaml.Node) string {
	text := node.Value
	if node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		text = strconv.Quote(node.Value)
	}
	if node.Style&yaml.TaggedStyle != 0 {
		text = node.Tag + " " + text
	}
	return text
}

// meaning returns the value of a scalar for the library of kubectl, and whether the library can read it. The library
// follows YAML 1.1: on is true, and 010 is 8. A tag determines the type of a quoted scalar, too.
func meaning(node *yaml.Node) (value any, ok bool) {
	text := node.Value
	switch {
	case node.Kind != yaml.ScalarNode:
		return nil, false
	case node.Style&yaml.TaggedStyle != 0:
		text = node.Tag + " " + strconv.Quote(node.Value)
	case node.Style != 0:
		return text, true
	}
	err := yamlv2.Unmarshal([]byte(text), &value)
	return value, err == nil
}

// plain returns the [meaning] of a scalar that is not a string; ok is false for all other nodes.
func plain(node *yaml.Node) (value any, ok bool) {
	value, ok = meaning(node)
	_, isString := value.(string)
	return value, ok && !isString
}

// keyOf returns the JSON form of a key.
//
// Source: https://pkg.go.dev/sigs.k8s.io/yaml#YAMLToJSON, which converts keys that are not strings in this way.
func keyOf(node *yaml.Node) string {
	value, _ := meaning(node)
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		if v == 0 { // A map has one key for 0 and -0.
			return "0"
		}
		return strconv.FormatFloat(v, 'g', -1, 32)
	default: // The library rejects the key.
		return node.Value
	}
}

// anObject describes a key that is itself an object. YAML parses an unrendered template, {{ .Name }}, as such a key.
const anObject = "an object"

// unfit describes a key that the library rejects; empty for all others.
func unfit(key *yaml.Node) string {
	value, ok := plain(key)
	_, great := value.(uint64)
	switch {
	case key.Kind == yaml.MappingNode:
		return anObject
	case key.Kind == yaml.SequenceNode:
		return "a list"
	case ok && value == nil:
		return "null"
	case great:
		return "a number too great for a key"
	default:
		return ""
	}
}

// wrongKeys returns the duplicate keys, and the keys that are not strings.
func (l lines) wrongKeys() []wrongKey {
	var found []wrongKey
	var walk func(node *yaml.Node, path string)
	walk = func(node *yaml.Node, path string) {
		if node.Kind == yaml.SequenceNode {
			for i, item := range node.Content {
				walk(item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
		if node.Kind != yaml.MappingNode { // The target of an alias is checked at its anchor.
			return
		}
		first := make(map[string]written, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := resolve(node.Content[i])
			at, means := join(path, key.Value), keyOf(key)
			before, again := first[means]
			switch what := unfit(key); {
			case what != "":
				found = append(found, wrongKey{path: path, line: l.line(node.Content[i]), spelling: spell(key), unfit: what})
			case again:
				wrong := wrongKey{path: at, line: l.line(node.Content[i]), first: before.line, key: means}
				if before.spelling != spell(key) {
					wrong.spelling = before.spelling
				}
				found = append(found, wrong)
			default:
				first[means] = written{line: l.line(node.Content[i]), spelling: spell(key)}
			}
			walk(node.Content[i+1], at)
		}
	}
	walk(l.root(), "")
	return found
}

// mergedKey is a key of an object, or of an object that is merged into it.
type mergedKey struct {
	written

	means string
	value any
}

// merging finds keys that a merge sets in another notation.
type merging struct {
	lines

	known map[*yaml.Node][]mergedKey // By object.
	found []wrongKey
}

// wrongMerges returns the keys that objects have in two notations, by a merge and directly, or by two merges. The
// library keeps both until it writes JSON, and then a random one of them. A direct key in the same notation is correct:
// it overrides the merged one.
func (l lines) wrongMerges() []wrongKey {
	m := &merging{lines: l, known: map[*yaml.Node][]mergedKey{}}
	m.walk(l.root(), "")
	return m.found
}

func (m *merging) walk(node *yaml.Node, path string) {
	for i, inside := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode:
			m.walk(inside, fmt.Sprintf("%s[%d]", path, i))
		case i%2 == 0 && merges(inside):
			m.keys(node, path)
		case i%2 == 1:
			m.walk(inside, join(path, node.Content[i-1].Value))
		}
	}
}

// keys returns the keys of an object, first its own ones and then the merged ones.
func (m *merging) keys(node *yaml.Node, path string) []mergedKey {
	if keys, ok := m.known[node]; ok {
		return keys
	}
	m.known[node] = nil // Ends the recursion for an object that contains itself. The library rejects such objects.
	var all []mergedKey
	index := map[string]int{}
	add := func(key mergedKey) {
		at, again := index[key.means]
		switch {
		case !again:
			index[key.means] = len(all)
			all = append(all, key)
		case all[at].value != key.value:
			m.found = append(m.found, wrongKey{path: join(path, key.means), line: key.line, first: all[at].line, spelling: all[at].spelling, key: key.means})
		}
	}
	var from []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		if merges(node.Content[i]) {
			from = append(from, merged(node.Content[i+1])...)
			continue
		}
		key := resolve(node.Content[i])
		if value, ok := meaning(key); ok {
			add(mergedKey{written: written{line: m.line(node.Content[i]), spelling: spell(key)}, means: keyOf(key), value: value})
		}
	}
	for _, object := range from {
		for _, key := range m.keys(object, path) {
			add(key)
		}
	}
	m.known[node] = all
	return all
}

// merges reports whether a key merges its value into the object.
func merges(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" }

// merged returns the objects in the value of a merge.
func merged(value *yaml.Node) []*yaml.Node {
	value = resolve(value)
	if value.Kind != yaml.SequenceNode {
		return []*yaml.Node{value}
	}
	objects := make([]*yaml.Node, 0, len(value.Content))
	for _, item := range value.Content {
		objects = append(objects, resolve(item))
	}
	return objects
}

// scalars iterates over the scalars of a document, with their paths. The target of an alias is visited at its anchor.
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

// join adds a key to a path in the notation of [field.Path]: in brackets if the key contains special characters.
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
