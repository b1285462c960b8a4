package ui

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"refract.dev/internal/output"
	"refract.dev/tree"
)

// Bounds for an object on a page. An API server accepts objects of up to 1.5 MiB.
const (
	mostLines  = 5000
	mostLine   = 1000 // Bytes.
	mostAuthor = 300  // The maximum size of the author of a line, in bytes.
)

// line is a line of an object, with the author who changed it.
type line struct {
	Number int
	Text   string
	// Who is the name of the author; empty if the line is as on the hub.
	Who string
	// Address is the address of the author's page; empty if the author is not a policy.
	Address string
	// Began is true if the line has another author than the line before.
	Began bool
	// Differs is true if the line differs from the other object in a comparison of two objects.
	Differs bool

	place string
}

// linesOf returns an object as lines of YAML. more is the number of lines that were left out.
func linesOf(object map[string]any, changes []tree.Change) (lines []line, more int, err error) {
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	if err := e.Encode(object); err != nil {
		return nil, 0, fmt.Errorf("writing the object as YAML: %w", err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text.Bytes(), &root); err != nil {
		return nil, 0, fmt.Errorf("finding the lines of the object: %w", err)
	}
	places := map[int]string{}
	for _, n := range root.Content {
		placesOf(n, "", places)
	}
	place, before := "", ""
	for i, t := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		if i == mostLines {
			return lines, bytes.Count(text.Bytes(), []byte("\n")) - mostLines, nil
		}
		if is, begins := places[i+1]; begins {
			place = is // The next lines belong to this value until another value begins.
		}
		l := line{Number: i + 1, Text: shortened(t), place: place}
		if by := authorOf(changes, place); by != nil {
			l.Who, l.Address = output.Cut(by.String(), mostAuthor), policyAddress(&by.Policy)
		}
		l.Began, before = l.Who != before, l.Who
		lines = append(lines, l)
	}
	return lines, 0, nil
}

// shortened cuts a line off after mostLine bytes, and then appends the number of omitted bytes.
func shortened(text string) string {
	if len(text) <= mostLine {
		return text
	}
	cut := mostLine
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes more)", text[:cut], len(text)-cut)
}

// placesOf stores, for each line of YAML, the JSON pointer of the value that begins there. If several values begin on
// one line, it stores the pointer of the innermost one that has its own key.
func placesOf(n *yaml.Node, at string, places map[int]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			place := at + "/" + tree.Escape(key.Value)
			places[key.Line] = place
			placesOf(value, place, places)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			place := fmt.Sprintf("%s/%d", at, i)
			if item.Kind == yaml.ScalarNode || len(item.Content) == 0 {
				places[item.Line] = place
			}
			placesOf(item, place, places)
		}
	case yaml.DocumentNode, yaml.ScalarNode, yaml.AliasNode:
	}
}

// authorOf returns the author of the last change of the value at a place, or of a value that contains it. It returns
// nil if nothing was changed.
func authorOf(changes []tree.Change, place string) *tree.Author {
	for i, at := range tree.Trace(changes, place, len(changes)).Touches() {
		if tree.Covers(changes[i].Path, at) {
			return changes[i].By
		}
	}
	return nil
}

// compare sets Differs in the lines of two objects.
func compare(a, b []line) {
	text := func(lines []line) map[string]string {
		all := make(map[string]string, len(lines))
		for i := range lines {
			all[lines[i].place] += lines[i].Text + "\n"
		}
		return all
	}
	ofA, ofB := text(a), text(b)
	mark := func(lines []line, own, other map[string]string) {
		for i := range lines {
			lines[i].Differs = own[lines[i].place] != other[lines[i].place]
		}
	}
	mark(a, ofA, ofB)
	mark(b, ofB, ofA)
}
