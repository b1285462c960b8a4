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

// What a page shows of one object at most. An API server takes objects of 1.5 MiB.
const (
	mostLines  = 5000
	mostLine   = 1000 // Bytes.
	mostAuthor = 300  // Bytes of what is said beside a line.
)

// line is a line of an object and who made it what it is.
type line struct {
	Number int
	Text   string
	// Who is behind it; empty for what is as on the hub.
	Who string
	// Address is that of the policy.
	Address string
	// Began is whether the line before has another author.
	Began bool
	// Differs is whether the other side has something else there.
	Differs bool

	place string
}

// linesOf returns an object as YAML, line by line, and how many lines are left out.
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
			place = is // What follows is the rest of its text.
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

// shortened is a line that a page can hold.
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

// placesOf fills in the JSON pointer of what begins on each line: of several things the innermost that has a name of its own there.
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

// authorOf returns who made the last change of what is at a place in the end, or of something around it; nil if nobody did.
func authorOf(changes []tree.Change, place string) *tree.Author {
	for i, at := range tree.Trace(changes, place, len(changes)).Touches() {
		if tree.Covers(changes[i].Path, at) {
			return changes[i].By
		}
	}
	return nil
}

// compare marks what is different in two objects.
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
