package policytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// document is a YAML document that is decoded to a Test.
type document struct {
	manifest.Part

	place    manifest.Place
	name     string // The name of the test, once known.
	problems []*manifest.Problem
}

// before returns the number of lines in the file before the document.
func (d *document) before() int { return d.Line - 1 }

// value is a value in a document, with its place. Its content is the value that kubectl would read. The node serves
// only to find the place, and is nil if the value comes from a merge key.
type value struct {
	doc    *document
	node   *yaml.Node
	line   int    // The line of the key, or of a value without key.
	indent int    // The number of characters before the key.
	path   string // As in "spec.cases[0].name".
	keys   []any  // The path as keys and indexes.
	flow   bool   // Whether the value is inside a flow collection.
	is     any
}

// place returns the place of the value.
func (v *value) place() manifest.Place {
	p := v.doc.place
	p.Line = v.line
	return p
}

// report records a problem of the value.
func (v *value) report(fact, hint string) {
	v.doc.problems = append(v.doc.problems, &manifest.Problem{
		Place: v.place(), Kind: kind, Name: v.doc.name, Field: v.path, Fact: fact, Hint: hint,
	})
}

// member returns the value of a key of an object; ok is false if it is absent or null.
func (v *value) member(key string) (value, bool) {
	m, ok := v.is.(map[string]any)
	if !ok || m[key] == nil {
		return value{}, false
	}
	return v.entry(key, m[key]), true
}

func (v *value) entry(key string, is any) value {
	e := value{doc: v.doc, line: v.line, path: join(v.path, key), keys: append(slices.Clip(v.keys), key), is: is}
	node := resolve(v.node)
	if node == nil || node.Kind != yaml.MappingNode {
		return e
	}
	e.flow = v.flow || node.Style&yaml.FlowStyle != 0
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			e.node, e.line = node.Content[i+1], v.doc.before()+node.Content[i].Line
			e.indent = node.Content[i].Column - 1
		}
	}
	return e
}

// entries returns the members of an object, in the order of their lines.
func (v *value) entries() []value {
	m, ok := v.is.(map[string]any)
	if !ok {
		v.report(fmt.Sprintf("is %s, want an object", tree.TypeName(v.is)), "")
	}
	all := make([]value, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, v.entry(key, m[key]))
	}
	slices.SortStableFunc(all, func(a, b value) int { return a.line - b.line })
	return all
}

// key returns the last key of the path.
func (v *value) key() string {
	s, _ := v.keys[len(v.keys)-1].(string)
	return s
}

// items returns the elements of an array.
func (v *value) items() []value {
	list, ok := v.is.([]any)
	if !ok {
		v.report(fmt.Sprintf("is %s, want an array", tree.TypeName(v.is)), "")
	}
	all := make([]value, len(list))
	for i := range list {
		all[i] = v.item(i, list[i])
	}
	return all
}

func (v *value) item(i int, is any) value {
	e := value{doc: v.doc, line: v.line, path: fmt.Sprintf("%s[%d]", v.path, i), keys: append(slices.Clip(v.keys), i), is: is}
	node := resolve(v.node)
	if node != nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
		e.node, e.line = node.Content[i], v.doc.before()+node.Content[i].Line
		e.flow = v.flow || node.Style&yaml.FlowStyle != 0
	}
	return e
}

// text returns a non-empty string, or reports a mistake.
func (v *value) text() (string, bool) {
	s, ok := v.is.(string)
	switch {
	case !ok:
		v.report(fmt.Sprintf("is %s, want a string", tree.TypeName(v.is)), "")
	case s == "":
		v.report("is empty", "")
	}
	return s, ok && s != ""
}

// allow reports every key except these. It returns false if the value is not an object, which it also reports.
func (v *value) allow(keys ...string) bool {
	if _, ok := v.is.(map[string]any); !ok {
		v.report(fmt.Sprintf("is %s, want an object", tree.TypeName(v.is)), "")
		return false
	}
	for _, e := range v.entries() {
		if slices.Contains(keys, e.key()) {
			continue
		}
		hint := "the fields are " + strings.Join(keys, ", ")
		if near := nearest.To(e.key(), keys); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		e.report("there is no such field", hint)
	}
	return true
}

// join adds a key to a path, in brackets if the key contains special characters.
func join(path, key string) string {
	switch {
	case path == "":
		return key
	case strings.ContainsAny(key, "./[]"):
		return path + "[" + key + "]"
	default:
		return path + "." + key
	}
}

// resolve follows aliases; it returns nil for nil.
func resolve(node *yaml.Node) *yaml.Node {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}
