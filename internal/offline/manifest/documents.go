package manifest

import (
	"fmt"
	"io"
	"strings"

	"refract.dev/tree"
)

// Document is an object as it stands in the input. Of what is in it nothing is
// checked, and nothing is added.
type Document struct {
	Place Place
	// Content is the object; integers are int64, other numbers float64.
	Content map[string]any

	lines lines
}

// At is [Object.At] for a document.
func (d *Document) At(field string) Place { return d.lines.at(d.Place, field) }

// Documents reads the files of these paths as [Read] does, for those who judge
// the objects themselves. The items of a list are objects of their own. What is no
// object, or has a key twice, is a problem; so is a path in which there is
// nothing. What never goes to an API server is left out, but a
// CustomResourceDefinition is not. The documents and the problems are in the order
// of the input.
func Documents(paths []string, stdin io.Reader) ([]Document, []*Problem) {
	sources, problems := find(paths, stdin)
	return documentsIn(sources, problems)
}

// One reads a file that is to hold one object, as [Documents] does. Without problems the object is not nil.
func One(file string, data []byte) (map[string]any, []*Problem) {
	documents, problems := documentsIn([]source{{name: file, asked: true, read: func() ([]byte, error) { return data, nil }}}, nil)
	switch {
	case len(problems) > 0:
		return nil, problems
	case len(documents) != 1:
		return nil, []*Problem{{Place: Place{File: file}, Fact: fmt.Sprintf("holds %d objects, want one", len(documents))}}
	}
	return documents[0].Content, nil
}

// Part is a part of a file in which documents stand, up to the next document marker.
type Part struct {
	// Text begins with its marker, if it has one. It shares memory with the file.
	Text []byte
	// Offset of the text in the file, in bytes.
	Offset int
	// Line of the file on which it begins, from 1.
	Line int
}

// Split splits what [Text] returned at its document markers.
func Split(text []byte) []Part {
	var parts []Part
	for _, c := range split(text) {
		parts = append(parts, Part{Text: c.text, Offset: c.offset, Line: c.line})
	}
	return parts
}

// Decode returns the values in the part of a file, and what is wrong with it. Objects, lists and all else are values; integers are int64. More
// than one stands there only as JSON.
func (p *Part) Decode(file string) (values []any, problems []*Problem) {
	d := &decoder{file: file, chunk: chunk{text: p.Text, offset: p.Offset, line: p.Line}}
	d.decode()
	for i := range d.documents {
		values = append(values, d.documents[i].value)
	}
	return values, d.problems
}

func documentsIn(sources []source, problems []*Problem) ([]Document, []*Problem) {
	var documents []Document
	more := decodeAll(sources, func(d *document) {
		var wrong []*Problem
		documents, wrong = appendObjects(documents, d.value, d.place, d.lines)
		problems = append(problems, wrong...)
	})
	return documents, inOrder(sources, append(problems, more...))
}

// appendObjects appends an object, or the items of a list.
func appendObjects(to []Document, value any, place Place, l lines) ([]Document, []*Problem) {
	content, ok := value.(map[string]any)
	if !ok {
		return to, []*Problem{{Place: place, Fact: fmt.Sprintf("is %s, want an object", tree.TypeName(value))}}
	}
	if staysLocal(content) && !explains(content) {
		return to, nil
	}
	items, isList, problem := listItems(content, place, l)
	if problem != nil {
		return to, []*Problem{problem}
	}
	if !isList {
		mergeStringData(content)
		return append(to, Document{Place: place, Content: content, lines: l}), nil
	}
	var problems []*Problem
	for i, item := range items {
		inside := l.item("items", i)
		var more []*Problem
		to, more = appendObjects(to, item, inside.at(place, ""), inside)
		problems = append(problems, more...)
	}
	return to, problems
}

// isEmptyList reports whether an object is a list of one kind whose items are null: it has no name.
func isEmptyList(content map[string]any) bool {
	kind, _ := content["kind"].(string)
	items, has := content["items"]
	metadata, _ := content["metadata"].(map[string]any)
	return strings.HasSuffix(kind, "List") && has && items == nil && metadata["name"] == nil
}

// listItems returns the items of a list, and whether it is one. An API server
// leaves out in a typed list what all items have in common, which is filled in.
// A list without items is one of which something was lost on the way, as of the
// output of a program that failed: a problem.
func listItems(content map[string]any, place Place, l lines) (items []any, isList bool, problem *Problem) {
	kind, _ := content["kind"].(string)
	items, isList = content["items"].([]any)
	if !isList && (kind == "List" || isEmptyList(content)) {
		return nil, false, &Problem{
			Place: l.at(place, "items"), Field: "items", Fact: fmt.Sprintf("is %s, want a list of objects", tree.TypeName(content["items"])),
		}
	}
	if !isList || !strings.HasSuffix(kind, "List") {
		return nil, false, nil
	}
	for _, item := range items {
		if m, ok := item.(map[string]any); ok && kind != "List" && m["kind"] == nil && m["apiVersion"] == nil {
			m["kind"], m["apiVersion"] = strings.TrimSuffix(kind, "List"), content["apiVersion"]
		}
	}
	return items, true, nil
}
