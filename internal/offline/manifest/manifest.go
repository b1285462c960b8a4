// Package manifest reads Kubernetes manifests and tells apart what Refract acts
// on: policies, clusters, and the objects that they are about. It knows where
// each of them stands, and finds every mistake that can be found without an API
// server, in all documents at once.
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
	"refract.dev/inject"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/release"
	"refract.dev/tree"
)

// Set is what was read, sorted by what it is for. Every list is in the order of
// the input. No two members have the same [Identity]. A Set keeps the text that it
// was read from, which is where At looks.
type Set struct {
	// Live is whether the Set is what an API server holds, perhaps with manifests
	// laid over it: nothing is there that is not in it.
	Live bool

	// Manifests are all of the following, as they were read.
	Manifests []Object

	// Objects are those that policies are about: every kind but ours, and
	// ServiceInjectionPolicies, which can be propagated like any object.
	Objects []Object

	OverridePolicies           []Policy[corev1alpha1.OverridePolicy, override.Policy]
	ClusterOverridePolicies    []Policy[corev1alpha1.ClusterOverridePolicy, override.Policy]
	PropagationPolicies        []Policy[corev1alpha1.PropagationPolicy, placement.Policy]
	ClusterPropagationPolicies []Policy[corev1alpha1.ClusterPropagationPolicy, placement.Policy]
	Clusters                   []Cluster

	// RolloutPolicies and ClusterRolloutPolicies say how a change goes out. What one of a live
	// Set is compiled to is nil if it is not valid: it is in force all the same, and has nothing
	// released.
	RolloutPolicies        []Policy[refractv1alpha1.RolloutPolicy, release.Policy]
	ClusterRolloutPolicies []Policy[refractv1alpha1.ClusterRolloutPolicy, release.Policy]

	// InjectionPolicies are those of the Objects, compiled as they stand: what an
	// annotated Service adds is in none but those that an API server has completed.
	InjectionPolicies []Policy[refractv1beta1.ServiceInjectionPolicy, inject.Policy]

	// Definitions are the CustomResourceDefinitions, and Namespaces those that say by which
	// rollout policy their objects change, and all others. One that is annotated with
	// [LocalConfig] is not among the Objects and Manifests.
	Definitions, Namespaces []Object
	// Propagations are what the controllers report about objects.
	Propagations []Propagation

	// Notes are on what was understood, and is no longer written so.
	Notes []*Problem
	// Truncated are the files whose last line has no end, but for JSON: they may have been cut off.
	Truncated []string
}

// Object is a manifest of any kind.
type Object struct {
	Place Place
	// Content is the object. A namespaced one that named no namespace has the
	// namespace default. Integers are int64.
	Content *unstructured.Unstructured
	// Namespaced is whether its kind is. Of a kind that is neither built in nor
	// defined by a CustomResourceDefinition of the input this is an assumption.
	Namespaced bool

	lines lines
}

// At returns the place of a field of the object, whose path is written as that of
// a [Problem], or of the nearest field around it that is there. Without lines it
// is that of the object. The first call for a document takes as long as reading
// it; calls may be made at the same time.
func (o *Object) At(field string) Place { return o.lines.at(o.Place, field) }

// Policies returns the override policies that the object names, in their order of effect, and then the policy that places it. What
// is wrong with its labels is not told.
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

// Policies returns the policies that objects name, of all four kinds, kind by kind
// and without their generations.
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

// Place is where a manifest stands in the input.
type Place struct {
	// File as it was named, or found in a folder that was; "stdin" for stdin.
	File string `json:"file"`
	// Line of the file on which the document begins, from 1; 0 if it is in no file.
	Line int `json:"line,omitempty"`
	// Document counts the documents of the file that are not empty, from 1.
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

// Read reads the files of these paths, and what is in folders and folders inside
// them: the files named *.yaml, *.yml and *.json, sorted, without hidden ones.
// [Stdin] means stdin. A file that is named twice is read once.
//
// A document that has a problem is not in the Set; nor is one that never goes to
// an API server (kustomize's own files, what is annotated with
// config.kubernetes.io/local-config: "true", and tests of policies); all others
// are. The problems are in the order of the input.
func Read(paths []string, stdin io.Reader) (*Set, []*Problem) { return ReadFor(nil, paths, stdin) }

// ReadFor is [Read] for manifests that are meant for an API server, which knows
// of kinds whether they are namespaced.
func ReadFor(namespaced func(schema.GroupKind) (namespaced, known bool), paths []string, stdin io.Reader) (*Set, []*Problem) {
	sources, problems := find(paths, stdin)
	return read(&collector{namespaced: namespaced}, sources, problems)
}

// ReadNew is [Read] for manifests of objects that are yet to be created: those that
// name no namespace are in the one that is given, and an object need not have a
// name if its metadata.generateName says how one is made.
func ReadNew(namespace string, paths []string, stdin io.Reader) (*Set, []*Problem) {
	sources, problems := find(paths, stdin)
	return read(&collector{namespace: namespace, unnamed: true}, sources, problems)
}

// ReadFS is [Read] for a file system, of which it reads all.
func ReadFS(fsys fs.FS) (*Set, []*Problem) {
	sources, problems := findIn(fsys, "", nil, nil)
	return read(&collector{}, sources, problems)
}

func read(c *collector, sources []source, problems []*Problem) (*Set, []*Problem) {
	more := decodeAll(sources, func(d *document) { c.add(d.value, d.place, d.lines) })
	set, found, _ := c.finish(context.Background()) // Which never ends.
	for i := range sources {
		if sources[i].truncated {
			set.Truncated = append(set.Truncated, sources[i].name)
		}
	}
	return set, inOrder(sources, slices.Concat(problems, more, found))
}

// decodeAll gives each document of the sources to add, in their order, and returns
// the problems of reading them. It notes in the sources which of them are truncated.
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
			problems = append(problems, &Problem{Place: Place{File: src.name}, Fact: "no manifest is in it"})
		}
	}
	return problems
}

// truncated reports whether a file may have been cut off: its last line has no end. Values in braces and brackets have
// an end of their own.
func truncated(chunks []chunk) bool {
	if len(chunks) == 0 {
		return false
	}
	last := chunks[len(chunks)-1].text
	value := bytes.TrimSpace(bytes.TrimPrefix(last, []byte("---")))
	return !bytes.HasSuffix(last, []byte("\n")) && !bytes.HasPrefix(value, []byte("{")) && !bytes.HasPrefix(value, []byte("["))
}

// Empty is the problem of a file without a byte.
func Empty(file string) *Problem {
	return &Problem{
		Place: Place{File: file, Line: 1}, Fact: "is empty, as a file is that could not be written",
		Hint: "delete it, or write a comment into it if it is meant to say nothing",
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
