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

// listItems returns the items of a list, and whether it is one. An API server
// leaves out in a typed list what all items have in common, which is filled in.
// A list without items is one of which something was lost on the way, as of the
// output of a program that failed: a problem.
func listItems(content map[string]any, place Place, l lines) (items []any, isList bool, problem *Problem) {
	kind, _ := content["kind"].(string)
	items, isList = content["items"].([]any)
	if kind == "List" && !isList {
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
