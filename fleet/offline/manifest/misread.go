package manifest

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Misreading is a scalar whose value in YAML 1.1, which API servers and kubectl use, differs from its notation.
type Misreading struct {
	// Field is the path of the value, or of the key.
	Field string
	// Place is the place of the scalar.
	Place Place
	// Written is the notation of the scalar, and Read its value.
	Written, Read string
}

// String describes the misreading.
func (m *Misreading) String() string { return fmt.Sprintf("`%s` is read as %s", m.Written, m.Read) }

// Misread returns the keys and values of the object whose value differs from their notation, in their order. The call
// takes as long as reading the object.
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
	default: // The target of an alias is checked at its anchor.
	}
}

func (o *Object) at(node *yaml.Node) Place {
	place := o.Place
	place.Line = o.lines.line(node)
	return place
}

// octal are the keys of file modes, whose notation is octal.
var octal = []string{"mode", "defaultMode"}

// amounts are the keys of resources, which are numbers in any notation.
var amounts = []string{"cpu", "memory"}

// misread returns the value of a scalar with the given key; empty if the value agrees with the notation.
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
	case uint64: // JSON can express the number, but its readers cannot.
		return strconv.FormatFloat(float64(v), 'g', -1, 64)
	case float64:
		// A number loses final zeros of a fraction, which matter in a version, and digits beyond the precision of a
		// float. 1e3 is a number as well, although it may be a part of the hash of a commit.
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
