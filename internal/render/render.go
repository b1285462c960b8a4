// Package render answers offline what each cluster gets: it applies the policies
// of a [manifest.Set] to its objects, with the engines that the controllers use,
// and writes the result as YAML, JSON or files.
package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/internal/manifest"
	"refract.dev/internal/manifest/nearest"
	"refract.dev/match"
	"refract.dev/placement"
)

// Result is what each cluster gets, and what there is to say about it.
type Result struct {
	// Clusters are in the order of their names. One that gets nothing is there too.
	Clusters []Cluster `json:"clusters"`
	// Errors are about objects that some clusters, or all, do not get.
	Errors []Finding `json:"errors"`
	// Warnings are about what had no effect.
	Warnings []Finding `json:"warnings"`
}

// Cluster is what one cluster gets.
type Cluster struct {
	Name string `json:"name"`
	// Objects are in the order of the input. They share parts with it and with
	// each other, so they may not be modified.
	Objects []map[string]any `json:"objects"`
}

// Finding is an error or a warning. What does not apply is empty.
type Finding struct {
	// Cluster is the one concerned; empty when all that the object is placed on
	// are.
	Cluster string `json:"cluster,omitempty"`
	// Object is the one concerned.
	Object *Object `json:"object,omitempty"`
	// Policy is the one at fault.
	Policy *Policy `json:"policy,omitempty"`
	// Rule is the index of its rule.
	Rule *int `json:"rule,omitempty"`
	// Path is the JSON pointer of the place in the object.
	Path string `json:"path,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
	// Hint is advice for people that comes from having looked; it may be empty.
	Hint string `json:"-"`
}

// Object names an object.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Policy names a policy.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns CLUSTER: KIND NAMESPACE/NAME: POLICY rule INDEX: MESSAGE, without
// what is empty.
func (f *Finding) String() string {
	var parts []string
	if f.Cluster != "" {
		parts = append(parts, f.Cluster)
	}
	if f.Object != nil {
		parts = append(parts, kindAndName(f.Object.Kind, f.Object.Namespace, f.Object.Name))
	}
	if f.Policy != nil {
		by := kindAndName(f.Policy.Kind, f.Policy.Namespace, f.Policy.Name)
		if f.Rule != nil {
			by += fmt.Sprintf(" rule %d", *f.Rule)
		}
		parts = append(parts, by)
	}
	return strings.Join(append(parts, f.Message), ": ")
}

func kindAndName(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// ErrNoClusters is the error of [Render] when it knows of no cluster.
var ErrNoClusters = errors.New("there is no FederatedCluster in the input, so no cluster is known")

// UnknownClusterError is the error of [Render] for a cluster that is not in the
// input.
type UnknownClusterError struct {
	Name string
	// Near is the name in the input that may have been meant; it may be empty.
	Near string
}

// Error says which cluster.
func (e *UnknownClusterError) Error() string {
	return fmt.Sprintf("cluster %q is not among the FederatedClusters of the input", e.Name)
}

// Render renders every object of the set for the clusters that it is placed on.
// All clusters are taken to be ready; their taints count.
//
// If only names any clusters, the result is about no others. If the set has no
// clusters, those that only names are taken to exist, without labels.
//
// What is wrong with one object or on one cluster is a [Finding] and stops no
// other. Render returns an error, and no result, when the clusters are not known:
// [ErrNoClusters], [*UnknownClusterError].
func Render(set *manifest.Set, only []string) (*Result, error) {
	clusters, err := clustersOf(set, only)
	if err != nil {
		return nil, err
	}
	r := newRenderer(set, clusters, only)
	for i := range set.Objects {
		r.object(&set.Objects[i])
	}
	return r.result, nil
}

// clustersOf returns all clusters that are known, by name.
func clustersOf(set *manifest.Set, only []string) ([]placement.Cluster, error) {
	var clusters []placement.Cluster
	var names []string
	for _, c := range set.Clusters {
		clusters = append(clusters, placement.Cluster{
			Cluster: match.Cluster{Name: c.Cluster.Name, Labels: c.Cluster.Labels},
			Taints:  c.Cluster.Spec.Taints,
			Ready:   true,
		})
		names = append(names, c.Cluster.Name)
	}
	if len(clusters) == 0 {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(only))) {
			clusters = append(clusters, placement.Cluster{Cluster: match.Cluster{Name: name}, Ready: true})
		}
		if len(clusters) == 0 {
			return nil, ErrNoClusters
		}
		return clusters, nil
	}
	slices.SortFunc(clusters, func(a, b placement.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, &UnknownClusterError{Name: name, Near: nearest.To(name, names)}
		}
	}
	return clusters, nil
}
