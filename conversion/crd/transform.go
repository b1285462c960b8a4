package crd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/tree"
)

// Transformed is the result of a transformation of objects.
type Transformed struct {
	// Objects are the transformed objects, in the order of the input.
	Objects []map[string]any
	// Lines describe the changes, one change on each line: PLACE: OBJECT: CHANGE (VERSION).
	Lines []string
	// Refused has a problem for each object that could not be transformed, for example because decoding failed.
	Refused []*manifest.Problem
}

// Transform applies a function to each of the objects.
func Transform(objects []Object, do func(*structural.Version, map[string]any) (*structural.Result, error)) *Transformed {
	t := &Transformed{Objects: []map[string]any{}}
	for i := range objects {
		o := &objects[i]
		result, err := do(o.Version, o.Document.Content)
		if err != nil {
			t.Refused = append(t.Refused, problem(&o.Document, "", err.Error(), ""))
			continue
		}
		t.Objects = append(t.Objects, result.Object)
		for j := range result.Changes {
			change := &result.Changes[j]
			at := o.Document.At(fieldOf(change, o.Document.Content, result.Object))
			t.Lines = append(t.Lines, fmt.Sprintf("%s:%d: %s: %s (%s of %s)", at.File, at.Line, o,
				changeText(change, o.Document.Content, result.Object), o.Version.Name(), o.Definition.Name()))
		}
	}
	return t
}

// WriteYAML writes the objects as YAML documents for kubectl apply.
func (t *Transformed) WriteYAML(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, object := range t.Objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		fmt.Fprintf(out, "---\n%s", text)
	}
	return out.Flush()
}

// WriteJSON writes the objects as one List.
func (t *Transformed) WriteJSON(w io.Writer) error {
	return writeJSON(w, struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}{"v1", "List", t.Objects})
}

// fieldOf returns the path of a change in the notation of an API server.
func fieldOf(c *tree.Change, before, after map[string]any) string {
	if c.Op == tree.OpRemove {
		return manifest.FieldOf(before, c.Path)
	}
	return manifest.FieldOf(after, c.Path)
}

// changeText formats a change: "- PATH VALUE" for a removed value, "+ PATH VALUE" for an added value, and "~ PATH VALUE
// → VALUE" for a changed value.
func changeText(c *tree.Change, before, after map[string]any) string {
	path := fieldOf(c, before, after)
	switch c.Op {
	case tree.OpRemove:
		return fmt.Sprintf("- %s %s", path, valueText(c.Before))
	case tree.OpAdd:
		return fmt.Sprintf("+ %s %s", path, valueText(c.After))
	default:
		return fmt.Sprintf("~ %s %s → %s", path, valueText(c.Before), valueText(c.After))
	}
}

// valueText formats a value as JSON on one line.
func valueText(value any) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return fmt.Sprint(value) // A value of a manifest can always be encoded.
	}
	return strings.TrimSuffix(text.String(), "\n")
}
