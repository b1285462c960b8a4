// Package manifest reads Kubernetes manifests and tells apart what Refract acts
// on: policies, clusters, and the objects that they are about. It knows where
// each of them stands, and finds every mistake that can be found without an API
// server, in all documents at once.
package manifest

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/override"
	"refract.dev/placement"
)

// Set is what was read, sorted by what it is for. Every list is in the order of
// the input. No two members have the same identity.
type Set struct {
	// Manifests are all of the following, as they were read.
	Manifests []Object

	// Objects are those that policies are about: every kind but ours.
	Objects []Object

	OverridePolicies           []Policy[corev1alpha1.OverridePolicy, override.Policy]
	ClusterOverridePolicies    []Policy[corev1alpha1.ClusterOverridePolicy, override.Policy]
	PropagationPolicies        []Policy[corev1alpha1.PropagationPolicy, placement.Policy]
	ClusterPropagationPolicies []Policy[corev1alpha1.ClusterPropagationPolicy, placement.Policy]
	Clusters                   []Cluster
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
}

// Policy is a policy, decoded and compiled.
type Policy[T, C any] struct {
	Place    Place
	Policy   *T
	Compiled *C
}

// Cluster is a member cluster.
type Cluster struct {
	Place   Place
	Cluster *corev1alpha1.FederatedCluster
}

// Place is where a manifest stands in the input.
type Place struct {
	// File as it was named, or found in a folder that was; "stdin" for stdin.
	File string `json:"file"`
	// Line of the file on which the document begins, from 1.
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
// A document that has a problem is not in the Set; all others are. The problems
// are in the order of the input.
func Read(paths []string, stdin io.Reader) (*Set, []*Problem) {
	return read(find(paths, stdin))
}

// ReadFS is [Read] for a file system, of which it reads all.
func ReadFS(fsys fs.FS) (*Set, []*Problem) {
	return read(findIn(fsys, "", nil, nil))
}

func read(sources []source, problems []*Problem) (*Set, []*Problem) {
	c := newCollector()
	rank := make(map[string]int, len(sources))
	for i, s := range sources {
		rank[s.name] = i
		data, err := s.read()
		if err != nil {
			problems = append(problems, &Problem{Place: Place{File: s.name}, Fact: fmt.Sprintf("cannot be read: %v", reason(err))})
			continue
		}
		documents, more := decode(s.name, data)
		problems = append(problems, more...)
		c.add(documents)
	}
	problems = append(problems, c.finish()...)
	slices.SortStableFunc(problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(rank[a.Place.File], rank[b.Place.File]), cmp.Compare(a.Place.Line, b.Place.Line))
	})
	return c.set, problems
}
