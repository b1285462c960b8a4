// Package crd reads CustomResourceDefinitions and objects of the kinds that they
// define, and shows what an API server has to say about them.
package crd

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/structural"
	"refract.dev/tree"
)

// Kind is that of CustomResourceDefinitions.
const Kind = "CustomResourceDefinition"

// group is that of CustomResourceDefinitions.
const group = "apiextensions.k8s.io"

// IsDefinition reports whether a document is a CustomResourceDefinition, of
// whichever version.
func IsDefinition(d *manifest.Document) bool {
	return d.Content["kind"] == Kind && groupOf(d.Content) == group
}

// NameOf returns the metadata.name of a document; empty if there is none.
func NameOf(d *manifest.Document) string {
	return (&unstructured.Unstructured{Object: d.Content}).GetName()
}

func groupOf(content map[string]any) string {
	version, _ := content["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return "" // Not one that can be meant.
	}
	return gv.Group
}

// Definition is a CustomResourceDefinition of the input.
type Definition struct {
	*structural.Definition

	Document manifest.Document
}

// Compile compiles the CustomResourceDefinitions among the documents. What keeps
// one from being compiled are problems; so is a second one of the same name.
func Compile(documents []manifest.Document) ([]Definition, []*manifest.Problem) {
	var definitions []Definition
	var problems []*manifest.Problem
	at := map[string]manifest.Place{}
	for i := range documents {
		d := &documents[i]
		if !IsDefinition(d) {
			continue
		}
		if first, ok := at[NameOf(d)]; ok {
			problems = append(problems, problem(d, "", fmt.Sprintf("is there already, at %s", first), ""))
			continue
		}
		at[NameOf(d)] = d.Place
		compiled, err := structural.New(d.Content)
		if err != nil {
			problems = append(problems, uncompiled(d, err)...)
			continue
		}
		definitions = append(definitions, Definition{Definition: compiled, Document: *d})
	}
	return definitions, problems
}

// uncompiled lists what keeps a definition from being compiled.
func uncompiled(d *manifest.Document, err error) []*manifest.Problem {
	hint := "refract crd check says all that is wrong with it"
	var findings []structural.Finding
	if invalid, ok := errors.AsType[*structural.InvalidError](err); ok {
		findings = invalid.Findings
	} else {
		findings = undecodable(d.Content, err)
	}
	var problems []*manifest.Problem
	for _, f := range findings {
		if f.Severity == structural.Error {
			problems = append(problems, problem(d, f.Path, f.Message, hint))
		}
	}
	return problems
}

// problem is one with a document, at one of its fields.
func problem(d *manifest.Document, field, fact, hint string) *manifest.Problem {
	place := d.Place
	if field != "" {
		place = d.At(field)
	}
	kind, _ := d.Content["kind"].(string)
	u := &unstructured.Unstructured{Object: d.Content}
	return &manifest.Problem{Place: place, Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName(), Field: field, Fact: fact, Hint: hint}
}

// Object is one of a kind that a definition has.
type Object struct {
	Document   manifest.Document
	Definition *Definition
	Version    *structural.Version
}

// String returns KIND NAMESPACE/NAME, without what is empty.
func (o *Object) String() string {
	u := &unstructured.Unstructured{Object: o.Document.Content}
	name := u.GetName()
	if name == "" {
		name = u.GetGenerateName()
	}
	if u.GetNamespace() != "" && o.Definition.Namespaced() {
		name = u.GetNamespace() + "/" + name
	}
	return strings.TrimSpace(u.GetKind() + " " + name)
}

// id is what tells objects apart.
func (o *Object) id() [4]string {
	u := &unstructured.Unstructured{Object: o.sent()}
	return [4]string{o.Definition.Group(), o.Definition.Kind(), u.GetNamespace(), u.GetName()}
}

// sent returns the object as it reaches an API server: one of a namespaced kind
// that names no namespace is in the namespace default, and one that has only a
// prefix of a name gets one. One of another kind is in no namespace. The document is not
// modified.
func (o *Object) sent() map[string]any {
	content := o.Document.Content
	metadata, ok := content["metadata"].(map[string]any)
	if !ok && content["metadata"] != nil {
		return content // For the API server to refuse.
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	switch {
	case !o.Definition.Namespaced():
		delete(metadata, "namespace") // As the server does.
	case metadata["namespace"] == nil || metadata["namespace"] == "":
		metadata["namespace"] = "default"
	}
	if prefix, ok := metadata["generateName"].(string); ok && prefix != "" && (metadata["name"] == nil || metadata["name"] == "") {
		metadata["name"] = prefix + "xxxxx"
	}
	content = maps.Clone(content)
	content["metadata"] = metadata
	return content
}

// Matched are documents for which definitions were looked for. All lists are in the
// order of the input.
type Matched struct {
	// Objects are those of which there is a definition, in their version.
	Objects []Object
	// Foreign are documents of groups that no definition is of. A file that was named
	// and has nothing else is a problem.
	Foreign []manifest.Document
	// Problems are of documents that are meant to be of a definition and are not: its
	// group has no such kind, or no such version.
	Problems []*manifest.Problem
}

// Match finds the definition and version of each document, which were read from these
// paths. CustomResourceDefinitions are passed over.
func Match(documents []manifest.Document, definitions []Definition, paths []string) *Matched {
	m := &Matched{}
	used := map[string]bool{} // By file.
	for i := range documents {
		if _, wrong := find(&documents[i], definitions); wrong == nil {
			used[documents[i].Place.File] = true
		}
	}
	for i := range documents {
		d := &documents[i]
		if IsDefinition(d) {
			continue
		}
		definition, wrong := find(d, definitions)
		switch {
		case wrong == nil:
			m.match(d, definition)
		case IsPolicy(d): // As a definition, it is about objects.
		case !foreign(d, definitions), named(d.Place.File, paths) && !used[d.Place.File]:
			m.Problems = append(m.Problems, wrong)
		default:
			m.Foreign = append(m.Foreign, *d)
		}
	}
	return m
}

func (m *Matched) match(d *manifest.Document, definition *Definition) {
	version, err := definition.VersionOf(d.Content)
	if err != nil {
		m.Problems = append(m.Problems, noVersion(d, definition))
		return
	}
	m.Objects = append(m.Objects, Object{Document: *d, Definition: definition, Version: version})
}

// named reports whether a file is one of the paths, and not just in one.
func named(file string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == manifest.Stdin && file == "stdin" || filepath.Clean(p) == file
	})
}

// foreign reports whether a document, which no definition is of, is not meant to be of
// one: its group is another, or it has none and a kind that is not among those defined.
func foreign(d *manifest.Document, definitions []Definition) bool {
	version, _ := d.Content["apiVersion"].(string)
	return !slices.ContainsFunc(definitions, func(one Definition) bool {
		return version == "" && d.Content["kind"] == one.Kind() || version != "" && groupOf(d.Content) == one.Group()
	})
}

// find finds the definition of a document.
func find(d *manifest.Document, definitions []Definition) (*Definition, *manifest.Problem) {
	for _, key := range []string{"apiVersion", "kind"} {
		switch value := d.Content[key].(type) {
		case nil:
			return nil, problem(d, key, "is missing", "")
		case string:
		default:
			return nil, problem(d, key, fmt.Sprintf("is %s, want a string", tree.TypeName(value)), "")
		}
	}
	kind, _ := d.Content["kind"].(string)
	version, _ := d.Content["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, problem(d, "apiVersion", fmt.Sprintf("is %q, want GROUP/VERSION", version), "")
	}
	in := gv.Group
	var there, kinds []string
	for i := range definitions {
		if definitions[i].Group() == in && definitions[i].Kind() == kind {
			return &definitions[i], nil
		}
		kinds = append(kinds, definitions[i].Kind())
		there = append(there, fmt.Sprintf("%s of %s", definitions[i].Kind(), definitions[i].Group()))
	}
	hint := "there is " + strings.Join(there, ", ")
	if near := nearest.To(kind, kinds); near != "" {
		hint = fmt.Sprintf("did you mean %s?", there[slices.Index(kinds, near)])
	}
	what := kind + " of " + in
	if in == "" {
		what = kind + " of the core group"
	}
	return nil, problem(d, "kind", "no CustomResourceDefinition of the input defines "+what, hint)
}

// noVersion is the problem of a document whose kind has another version.
func noVersion(d *manifest.Document, definition *Definition) *manifest.Problem {
	names := VersionNames(definition.Definition)
	version, _ := d.Content["apiVersion"].(string)
	_, version, _ = strings.Cut(version, "/")
	hint := "it has " + strings.Join(names, ", ")
	if near := nearest.To(version, names); near != "" {
		hint = fmt.Sprintf("did you mean %s/%s?", definition.Group(), near)
	}
	return problem(d, "apiVersion", fmt.Sprintf("%s has no version %q", definition.Name(), version), hint)
}

// VersionNames returns the names of the versions of a definition, in their order.
func VersionNames(d *structural.Definition) []string {
	names := make([]string, len(d.Versions()))
	for i, v := range d.Versions() {
		names[i] = v.Name()
	}
	return names
}
