package generate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// builder assembles a fleet.
type builder struct {
	choices

	fleet  Fleet
	layout layout
}

// layout returns the file name for a document.
type layout func(kind, namespace, name string) string

// layouts are the usual ways to distribute manifests over files.
var layouts = []layout{
	func(_, _, _ string) string { return "all.yaml" },
	func(kind, _, _ string) string { return group(kind) + ".yaml" },
	func(kind, _, _ string) string { return group(kind) + ".json" },
	func(kind, namespace, name string) string {
		return path.Join(group(kind), namespace, strings.ToLower(kind)+"-"+name+".yaml")
	},
	func(kind, namespace, _ string) string {
		if namespace == "" {
			return group(kind) + ".yml"
		}
		return path.Join("apps", namespace, "manifests.yml")
	},
}

func group(kind string) string {
	switch {
	case kind == corev1alpha1.KindFederatedCluster:
		return "clusters"
	case isPolicy(kind):
		return "policies"
	default:
		return "objects"
	}
}

func isOverride(kind string) bool {
	return kind == corev1alpha1.KindOverridePolicy || kind == corev1alpha1.KindClusterOverridePolicy
}

func isPropagation(kind string) bool {
	return kind == corev1alpha1.KindPropagationPolicy || kind == corev1alpha1.KindClusterPropagationPolicy
}

func isPolicy(kind string) bool { return isOverride(kind) || isPropagation(kind) }

func isCluster(kind string) bool { return kind == corev1alpha1.KindFederatedCluster }

func isObject(kind string) bool { return !isPolicy(kind) && !isCluster(kind) }

// place is the position of a document in the fleet.
type place struct {
	file  string
	index int
}

// find returns the places of all documents whose kind the function accepts.
func (b *builder) find(kind func(string) bool) []place {
	var found []place
	for _, file := range b.fleet.Paths() {
		for i, d := range b.fleet[file] {
			if kind(kindOf(d)) {
				found = append(found, place{file, i})
			}
		}
	}
	return found
}

func (b *builder) at(p place) Document { return b.fleet[p.file][p.index] }

// all returns all documents whose kind the function accepts.
func (b *builder) all(kind func(string) bool) []Document {
	found := b.find(kind)
	out := make([]Document, len(found))
	for i, p := range found {
		out[i] = b.at(p)
	}
	return out
}

// add adds a copy of the document to the fleet and returns the copy.
func (b *builder) add(d Document) Document {
	d = copied(d)
	file := b.layout(kindOf(d), namespaceOf(d), nameOf(d))
	b.fleet[file] = append(b.fleet[file], d)
	return d
}

func (b *builder) remove(p place) {
	b.fleet[p.file] = slices.Delete(b.fleet[p.file], p.index, p.index+1)
	if len(b.fleet[p.file]) == 0 {
		delete(b.fleet, p.file)
	}
}

// name returns a name that no document of that kind in the namespace has.
func (b *builder) name(kind, namespace, stem string) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s-%d", stem, i)
		taken := slices.ContainsFunc(b.all(func(k string) bool { return k == kind }), func(d Document) bool {
			return nameOf(d) == name && namespaceOf(d) == namespace
		})
		if !taken {
			return name
		}
	}
}

func kindOf(d Document) string { return stringAt(d, "kind") }

func nameOf(d Document) string { return stringAt(member(d, "metadata"), "name") }

// namespaceOf returns the namespace of a document; empty if the document has none and relies on the default.
func namespaceOf(d Document) string { return stringAt(member(d, "metadata"), "namespace") }

func labelsOf(d Document) Document { return member(member(d, "metadata"), "labels") }

func stringAt(d Document, key string) string {
	s, _ := d[key].(string)
	return s
}

// member returns a member that is an object, or nil.
func member(d Document, key string) Document {
	m, _ := d[key].(Document)
	return m
}

// items returns a member that is an array of objects.
func items(d Document, key string) []Document {
	list, _ := d[key].([]any)
	var out []Document
	for _, v := range list {
		if m, ok := v.(Document); ok {
			out = append(out, m)
		}
	}
	return out
}
