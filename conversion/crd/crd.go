// Package crd reads CustomResourceDefinitions and objects of the defined kinds, and reports the errors that an API
// server would report.
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

	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// Kind is the kind of CustomResourceDefinitions.
const Kind = "CustomResourceDefinition"

// group is the API group of CustomResourceDefinitions.
const group = "apiextensions.k8s.io"

// IsDefinition reports whether a document is a CustomResourceDefinition of any version.
func IsDefinition(d *manifest.Document) bool {
	return d.Content["kind"] == Kind && groupOf(d.Content) == group
}

// NameOf returns the metadata.name of a document; empty if the document has no name.
func NameOf(d *manifest.Document) string {
	return (&unstructured.Unstructured{Object: d.Content}).GetName()
}

func groupOf(content map[string]any) string {
	version, _ := content["apiVersion"].(string)
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return "" // An invalid apiVersion has no group.
	}
	return gv.Group
}

// Definition is a CustomResourceDefinition of the input.
type Definition struct {
	*structural.Definition

	Document manifest.Document
}

// Compile compiles the CustomResourceDefinitions among the documents. The problems are the errors of definitions that
// cannot be compiled, and each definition that has the same name as an earlier one.
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

// uncompiled returns the errors that prevent the compilation of a definition.
func uncompiled(d *manifest.Document, err error) []*manifest.Problem {
	hint := "refract crd check reports all its errors"
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

// problem returns a problem of a document. Its place is the field or, if field is empty, the document.
func problem(d *manifest.Document, field, fact, hint string) *manifest.Problem {
	place := d.Place
	if field != "" {
		place = d.At(field)
	}
	kind, _ := d.Content["kind"].(string)
	u := &unstructured.Unstructured{Object: d.Content}
	return &manifest.Problem{Place: place, Kind: kind, Namespace: u.GetNamespace(), Name: u.GetName(), Field: field, Fact: fact, Hint: hint}
}

// Object is an object of a defined kind.
type Object struct {
	Document   manifest.Document
	Definition *Definition
	Version    *structural.Version
}

// String returns KIND NAMESPACE/NAME. Empty parts are omitted.
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

// id returns the identity of an object: group, kind, namespace and name.
func (o *Object) id() [4]string {
	u := &unstructured.Unstructured{Object: o.sent()}
	return [4]string{o.Definition.Group(), o.Definition.Kind(), u.GetNamespace(), u.GetName()}
}

// sent returns the object as an API server receives it. An object of a namespaced kind that has no namespace gets the
// namespace default. An object that has only a generateName gets a name. An object of a cluster-scoped kind loses its
// namespace. The document is not modified.
func (o *Object) sent() map[string]any {
	content := o.Document.Content
	metadata, ok := content["metadata"].(map[string]any)
	if !ok && content["metadata"] != nil {
		return content // The API server rejects such an object.
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	switch {
	case !o.Definition.Namespaced():
		delete(metadata, "namespace") // The API server drops it as well.
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

// Matched divides documents into objects of the definitions, documents of other API groups, and problems. All lists are
// in the order of the input.
type Matched struct {
	// Objects are the documents whose kind and version are defined.
	Objects []Object
	// Foreign are documents of API groups that no definition has. Exception: if a file is itself one of the paths and
	// has no object of a definition, its documents are Problems.
	Foreign []manifest.Document
	// Problems are about documents whose group is defined, but not their kind or version.
	Problems []*manifest.Problem
}

// Match finds the definition and the version of each document. paths are the files and folders of the input.
// CustomResourceDefinitions and ConversionPolicies are skipped.
func Match(documents []manifest.Document, definitions []Definition, paths []string) *Matched {
	m := &Matched{}
	used := map[string]bool{} // Keys are files.
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
		case IsPolicy(d): // Policies are input of the command, like definitions, and not objects to match.
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

// named reports whether a file is itself one of the paths. It returns false for a file that is only inside a folder of
// the paths.
func named(file string, paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == manifest.Stdin && file == "stdin" || filepath.Clean(p) == file
	})
}

// foreign reports whether a document belongs to an API group that no definition has. Without an apiVersion, it reports
// whether no definition has the kind.
func foreign(d *manifest.Document, definitions []Definition) bool {
	version, _ := d.Content["apiVersion"].(string)
	return !slices.ContainsFunc(definitions, func(one Definition) bool {
		return version == "" && d.Content["kind"] == one.Kind() || version != "" && groupOf(d.Content) == one.Group()
	})
}

// find returns the definition of the group and kind of a document. If the input does not have it, find returns a
// problem.
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

// noVersion returns the problem of a document whose kind is defined, but whose version is not.
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

// VersionNames returns the names of the versions of a definition, in the order of the manifest.
func VersionNames(d *structural.Definition) []string {
	names := make([]string, len(d.Versions()))
	for i, v := range d.Versions() {
		names[i] = v.Name()
	}
	return names
}
