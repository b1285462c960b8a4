// Package crd reads CustomResourceDefinitions and objects of the kinds that they
// define, and shows what an API server has to say about them.
package crd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/manifest"
	"refract.dev/internal/manifest/nearest"
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
	var invalid *structural.InvalidError
	if !errors.As(err, &invalid) {
		return []*manifest.Problem{problem(d, "", err.Error(), hint)}
	}
	var problems []*manifest.Problem
	for _, f := range invalid.Findings {
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
	if u.GetNamespace() != "" {
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
// prefix of a name gets one. The document is not modified.
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
	if o.Definition.Namespaced() && (metadata["namespace"] == nil || metadata["namespace"] == "") {
		metadata["namespace"] = "default"
	}
	if prefix, ok := metadata["generateName"].(string); ok && prefix != "" && (metadata["name"] == nil || metadata["name"] == "") {
		metadata["name"] = prefix + "xxxxx"
	}
	content = maps.Clone(content)
	content["metadata"] = metadata
	return content
}

// Match finds the definition and version of each document.
// CustomResourceDefinitions are passed over; a document of which there is no
// definition, or not in its version, is a problem.
func Match(documents []manifest.Document, definitions []Definition) ([]Object, []*manifest.Problem) {
	var objects []Object
	var problems []*manifest.Problem
	for i := range documents {
		d := &documents[i]
		if IsDefinition(d) {
			continue
		}
		definition, wrong := find(d, definitions)
		if wrong != nil {
			problems = append(problems, wrong)
			continue
		}
		version, err := definition.VersionOf(d.Content)
		if err != nil {
			problems = append(problems, noVersion(d, definition))
			continue
		}
		objects = append(objects, Object{Document: *d, Definition: definition, Version: version})
	}
	return objects, problems
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
	in := groupOf(d.Content)
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
	return nil, problem(d, "kind", fmt.Sprintf("no CustomResourceDefinition of the input defines %s of %s", kind, in), hint)
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
