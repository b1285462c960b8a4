package manifest

import (
	"fmt"
	"io"
	"strings"

	"refract.dev/tree"
)

// Document is an object of the input, unchecked and without added defaults.
type Document struct {
	Place Place
	// Content is the object; integers are int64, other numbers float64.
	Content map[string]any

	lines lines
}

// At is [Object.At] for a document.
func (d *Document) At(field string) Place { return d.lines.at(d.Place, field) }

// Documents reads the files of these paths like [Read], for callers that check the objects themselves. The items of a
// list are separate objects. A document that is no object or has a duplicate key is a problem, and so is a path without
// manifests. Objects that never go to an API server are left out, except for CustomResourceDefinitions and Namespaces.
// The documents and the problems are in the order of the input.
func Documents(paths []string, stdin io.Reader) ([]Document, []*Problem) {
	sources, problems := find(paths, stdin)
	return documentsIn(sources, problems)
}

// One reads a file by the rules of [Documents], and returns its only object. Any other number of objects is a problem.
// The object is not nil if there are no problems.
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

// Part is the part of a file up to the next document marker.
type Part struct {
	// Text begins with its marker, if it has one. It shares memory with the file.
	Text []byte
	// Offset of the text in the file, in bytes.
	Offset int
	// Line of the file where the text begins, from 1.
	Line int
}

// Split splits the result of [Text] at its document markers.
func Split(text []byte) []Part {
	var parts []Part
	for _, c := range split(text) {
		parts = append(parts, Part{Text: c.text, Offset: c.offset, Line: c.line})
	}
	return parts
}

// Decode returns the values in the part of a file, and its problems. All kinds of values are returned, not only
// objects; integers are int64. Only JSON can have more than one value.
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

// appendObjects appends an object or, if it is a list, its items.
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

// isEmptyList reports whether an object is a typed list whose items are null. An object with a name is no list.
func isEmptyList(content map[string]any) bool {
	kind, _ := content["kind"].(string)
	items, has := content["items"]
	metadata, _ := content["metadata"].(map[string]any)
	return strings.HasSuffix(kind, "List") && has && items == nil && metadata["name"] == nil
}

// listItems returns the items of a list, and whether the object is a list. In a typed list, an API server omits kind
// and apiVersion of the items, and listItems adds them. A list without items is a problem: the items were lost, for
// example by a failed program.
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
