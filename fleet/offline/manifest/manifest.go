// Package manifest reads Kubernetes manifests and divides them into policies, clusters, and the objects that the
// policies apply to. It records the place of each, and finds every mistake that can be found without an API server, in
// all documents at once.
package manifest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/injection/inject"
	"refract.dev/tree"
)

// Set is the content of the input, divided by purpose. Every list is in the order of the input. No two members have the
// same [Identity]. A Set keeps the text of the input, because At needs it.
type Set struct {
	// Live reports that the Set is the complete state of an API server, perhaps with manifests applied to it.
	Live bool

	// Manifests are all of the following objects together, as in the input.
	Manifests []Object

	// Objects are the objects that policies can apply to: all kinds except Refract's own, and also
	// ServiceInjectionPolicies, which can be propagated like any object.
	Objects []Object

	OverridePolicies           []Policy[corev1alpha1.OverridePolicy, override.Policy]
	ClusterOverridePolicies    []Policy[corev1alpha1.ClusterOverridePolicy, override.Policy]
	PropagationPolicies        []Policy[corev1alpha1.PropagationPolicy, placement.Policy]
	ClusterPropagationPolicies []Policy[corev1alpha1.ClusterPropagationPolicy, placement.Policy]
	Clusters                   []Cluster

	// RolloutPolicies and ClusterRolloutPolicies determine the waves of changes. In a live Set, the field Compiled of
	// an invalid policy is nil: such a policy is in force and releases nothing.
	RolloutPolicies        []Policy[refractv1alpha1.RolloutPolicy, rollout.Policy]
	ClusterRolloutPolicies []Policy[refractv1alpha1.ClusterRolloutPolicy, rollout.Policy]

	// InjectionPolicies are the injection policies among the Objects, compiled without their Services: the data of an
	// annotated Service is included only if an API server has added it to the status.
	InjectionPolicies []Policy[refractv1beta1.ServiceInjectionPolicy, inject.Policy]

	// Definitions are the CustomResourceDefinitions. Namespaces are the Namespaces, which may name a rollout policy for
	// their objects. If they have the annotation [LocalConfig], they are only in these lists, and not among the Objects
	// and Manifests.
	Definitions, Namespaces []Object
	// Propagations are the reports of the controllers on objects.
	Propagations []Propagation

	// Notes concern input that is valid but in an outdated form.
	Notes []*Problem
	// Truncated are the files without a newline at the end, except JSON: they may have been cut off.
	Truncated []string
}

// Object is a manifest of any kind.
type Object struct {
	Place Place
	// Content is the object. A namespaced object without a namespace gets the namespace "default". Integers are int64.
	Content *unstructured.Unstructured
	// Namespaced reports whether the kind is namespaced. For a kind that is neither built in nor defined by a
	// CustomResourceDefinition of the input, this is an assumption.
	Namespaced bool

	lines lines
}

// At returns the place of a field of the object, or of the nearest existing field around it. The path has the format of
// [Problem]. Without lines, it returns the place of the object. The first call for a document takes as long as reading
// it. At is safe for concurrent use.
func (o *Object) At(field string) Place { return o.lines.at(o.Place, field) }

// Policies returns the override policies that the object names, in their order of effect, and then its propagation
// policy. Invalid labels are ignored.
func (o *Object) Policies() []tree.Policy {
	refs, _, _ := override.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	if ref, ok, _, _ := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace()); ok {
		refs = append(refs, ref)
	}
	return refs
}

// Policy is a policy, decoded and compiled.
type Policy[T, C any] struct {
	Place    Place
	Policy   *T
	Compiled *C

	lines lines
}

// At is [Object.At] for a policy.
func (p *Policy[T, C]) At(field string) Place { return p.lines.at(p.Place, field) }

// Cluster is a member cluster.
type Cluster struct {
	Place   Place
	Cluster *corev1alpha1.FederatedCluster

	lines lines
}

// At is [Object.At] for a cluster.
func (c *Cluster) At(field string) Place { return c.lines.at(c.Place, field) }

// Policies returns the override and propagation policies, grouped by their four kinds and without generations.
func (s *Set) Policies() []tree.Policy {
	var refs []tree.Policy
	add := func(ref tree.Policy) {
		ref.Generation = 0
		refs = append(refs, ref)
	}
	for i := range s.OverridePolicies {
		add(s.OverridePolicies[i].Compiled.Ref)
	}
	for i := range s.ClusterOverridePolicies {
		add(s.ClusterOverridePolicies[i].Compiled.Ref)
	}
	for i := range s.PropagationPolicies {
		add(s.PropagationPolicies[i].Compiled.Ref)
	}
	for i := range s.ClusterPropagationPolicies {
		add(s.ClusterPropagationPolicies[i].Compiled.Ref)
	}
	return refs
}

// Place is the place of a manifest in the input.
type Place struct {
	// File is the path of the file: as given by the caller, or found in a given folder; "stdin" for stdin.
	File string `json:"file"`
	// Line is the line of the file where the document begins, from 1; 0 without a file.
	Line int `json:"line,omitempty"`
	// Document is the number of the document among the non-empty ones of the file, from 1.
	Document int `json:"document,omitempty"`
}

// String returns FILE:LINE: document NUMBER.
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Document == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	default:
		return fmt.Sprintf("%s:%d: document %d", p.File, p.Line, p.Document)
	}
}

// Stdin is the path that means stdin.
const Stdin = "-"

// Read reads the files of these paths. In folders and their subfolders, it reads the files named *.yaml, *.yml and
// *.json, sorted, without hidden ones. [Stdin] means stdin. A file that is named twice is read once.
//
// The Set contains all documents except those with a problem and those that never go to an API server (kustomize's own
// files, objects with the annotation config.kubernetes.io/local-config: "true", and tests of policies). The problems
// are in the order of the input.
func Read(paths []string, stdin io.Reader) (*Set, []*Problem) { return ReadFor(nil, paths, stdin) }

// ReadFor is [Read] for manifests for an API server. namespaced returns the scopes of its kinds.
func ReadFor(namespaced func(schema.GroupKind) (namespaced, known bool), paths []string, stdin io.Reader) (*Set, []*Problem) {
	sources, problems := find(paths, stdin)
	return read(&collector{namespaced: namespaced}, sources, problems)
}

// ReadNew is [Read] for manifests of objects that do not exist yet. Objects without a namespace get the given one, and
// an object may have metadata.generateName instead of a name.
func ReadNew(namespace string, paths []string, stdin io.Reader) (*Set, []*Problem) {
	sources, problems := find(paths, stdin)
	return read(&collector{namespace: namespace, unnamed: true}, sources, problems)
}

// ReadFS is [Read] for all files of a file system.
func ReadFS(fsys fs.FS) (*Set, []*Problem) {
	sources, problems := findIn(fsys, "", nil, nil)
	return read(&collector{}, sources, problems)
}

func read(c *collector, sources []source, problems []*Problem) (*Set, []*Problem) {
	more := decodeAll(sources, func(d *document) { c.add(d.value, d.place, d.lines) })
	set, found, _ := c.finish(context.Background()) // The context never ends.
	for i := range sources {
		if sources[i].truncated {
			set.Truncated = append(set.Truncated, sources[i].name)
		}
	}
	return set, inOrder(sources, slices.Concat(problems, more, found))
}

// decodeAll passes each document of the sources to add, in order, and returns the problems of reading them. It sets
// truncated in the sources.
func decodeAll(sources []source, add func(*document)) []*Problem {
	var problems []*Problem
	var decoders []*decoder
	for i := range sources {
		s := &sources[i]
		data, err := s.read()
		if err != nil {
			problems = append(problems, &Problem{Place: Place{File: s.name}, Fact: fmt.Sprintf("cannot be read: %v", reason(err))})
			continue
		}
		text, err := Text(data)
		if err != nil {
			problems = append(problems, NotText(s.name, err))
			continue
		}
		if len(data) == 0 && s.complete {
			problems = append(problems, Empty(s.name))
		}
		chunks := split(text)
		s.truncated = truncated(chunks)
		for _, c := range chunks {
			decoders = append(decoders, &decoder{file: s.name, chunk: c})
		}
	}
	concurrently(context.Background(), len(decoders), func(i int) { decoders[i].decode() }, func(i int, err error) { decoders[i].fail(err) })
	documents := make(map[string]int, len(sources)) // By file.
	for _, d := range decoders {
		d.moveBy(documents[d.file])
		documents[d.file] += d.number
		problems = append(problems, d.problems...)
		for i := range d.documents {
			add(&d.documents[i])
		}
	}
	for _, src := range sources {
		if src.asked && documents[src.name] == 0 && !slices.ContainsFunc(problems, func(p *Problem) bool { return p.Place.File == src.name }) {
			problems = append(problems, &Problem{Place: Place{File: src.name}, Fact: "has no manifest"})
		}
	}
	return problems
}

// truncated reports whether a file may have been cut off, because it has no newline at the end. Values in braces and
// brackets have an unambiguous end.
func truncated(chunks []chunk) bool {
	if len(chunks) == 0 {
		return false
	}
	last := chunks[len(chunks)-1].text
	value := bytes.TrimSpace(bytes.TrimPrefix(last, []byte("---")))
	return !bytes.HasSuffix(last, []byte("\n")) && !bytes.HasPrefix(value, []byte("{")) && !bytes.HasPrefix(value, []byte("["))
}

// Empty returns the problem of a file without content.
func Empty(file string) *Problem {
	return &Problem{
		Place: Place{File: file, Line: 1}, Fact: "is empty, as after a failed write",
		Hint: "delete it, or write a comment into it if this is intended",
	}
}

// inOrder sorts problems by the order of the sources, and by line.
func inOrder(sources []source, problems []*Problem) []*Problem {
	rank := make(map[string]int, len(sources))
	for i, s := range sources {
		rank[s.name] = i
	}
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(rank[a.Place.File], rank[b.Place.File]), cmp.Compare(a.Place.Line, b.Place.Line))
	})
	return problems
}
