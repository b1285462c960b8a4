package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Misreading is a scalar that YAML 1.1, which API servers and kubectl read, takes for something else than what
// is written.
type Misreading struct {
	// Field is the path of the value, or of the key.
	Field string
	// Place is where it stands.
	Place Place
	// Written is the scalar as it is written, and Read what it is read as.
	Written, Read string
}

// String says so.
func (m *Misreading) String() string { return fmt.Sprintf("`%s` is read as %s", m.Written, m.Read) }

// Misread returns the keys and values of the object that mean something else than what is written, in their order. It takes
// as long as reading the object.
func (o *Object) Misread() []Misreading {
	var found []Misreading
	root := o.lines.root()
	if root == nil {
		return nil
	}
	o.misreadIn(root, "", "", &found)
	return found
}

func (o *Object) misreadIn(node *yaml.Node, path, key string, found *[]Misreading) {
	switch node.Kind {
	case yaml.ScalarNode:
		if read := misread(node, key); read != "" {
			*found = append(*found, Misreading{Field: path, Place: o.at(node), Written: node.Value, Read: read})
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			o.misreadIn(item, fmt.Sprintf("%s[%d]", path, i), key, found)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			name := node.Content[i]
			at := join(path, name.Value)
			if read := keyOf(name); read != name.Value && name.Kind == yaml.ScalarNode {
				*found = append(*found, Misreading{Field: at, Place: o.at(name), Written: name.Value, Read: strconv.Quote(read)})
			}
			o.misreadIn(node.Content[i+1], at, name.Value, found)
		}
	default: // What an alias stands for is seen where it is defined.
	}
}

func (o *Object) at(node *yaml.Node) Place {
	place := o.Place
	place.Line = o.lines.line(node)
	return place
}

// octal are the keys of modes of files, which are written in octal.
var octal = []string{"mode", "defaultMode"}

// amounts are the keys of resources, which are numbers in whatever way they are written.
var amounts = []string{"cpu", "memory"}

// misread returns what the value of a key is read as; empty if that is what is written.
func misread(node *yaml.Node, key string) string {
	value, ok := plain(node)
	if !ok {
		return ""
	}
	switch v := value.(type) {
	case bool:
		if strings.EqualFold(node.Value, strconv.FormatBool(v)) {
			return ""
		}
		return strconv.FormatBool(v)
	case int:
		if strings.HasPrefix(node.Value, "0x") || slices.Contains(octal, key) || strings.TrimPrefix(node.Value, "+") == strconv.Itoa(v) {
			return ""
		}
		return strconv.Itoa(v)
	case uint64: // JSON has it, but what reads JSON does not.
		return strconv.FormatFloat(float64(v), 'g', -1, 64)
	case float64:
		// Zeros at the end of a fraction are lost, as those of a version, and digits that no float has; 1e3, a part of
		// the hash of a commit perhaps, is a number.
		shown := strconv.FormatFloat(v, 'f', -1, 64)
		if math.Abs(v) >= 1e21 {
			shown = strconv.FormatFloat(v, 'g', -1, 64)
		}
		if slices.Contains(amounts, key) || node.Value == shown || math.IsInf(v, 0) || math.IsNaN(v) {
			return ""
		}
		return shown
	default:
		return ""
	}
}
