// Package render answers offline what each cluster gets: it applies the policies
// of a [manifest.Set] to its objects, with the engines that the controllers use
// ([Evaluate]), and writes the result as YAML, JSON, files or variants.
package render

import (
	"errors"
	"fmt"

	"refract.dev/internal/offline/manifest"
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

// ErrNoClusters is the error of [Evaluate] when it knows of no cluster.
var ErrNoClusters = errors.New("there is no FederatedCluster in the input, so no cluster is known")

// UnknownClusterError is the error of [Evaluate] for a cluster that is not in the
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

// Render evaluates the set and returns the result cluster by cluster. If only
// names any clusters, the result is about no others. Its errors are those of
// [Evaluate].
func Render(set *manifest.Set, only []string) (*Result, error) {
	e, err := Evaluate(set, Options{Clusters: only})
	if err != nil {
		return nil, err
	}
	return e.Result(), nil
}

// Result returns what each cluster gets.
func (e *Evaluation) Result() *Result {
	r := &Result{Clusters: make([]Cluster, len(e.Clusters))}
	at := make(map[string]*Cluster, len(e.Clusters))
	for i := range e.Clusters {
		r.Clusters[i] = Cluster{Name: e.Clusters[i].Name, Objects: []map[string]any{}}
		at[e.Clusters[i].Name] = &r.Clusters[i]
	}
	for i := range e.Outcomes {
		for _, c := range e.Outcomes[i].byCluster() {
			if c.variant.Err == nil {
				to := at[c.name]
				to.Objects = append(to.Objects, c.variant.Object.Object)
			}
		}
	}
	r.Errors, r.Warnings = e.Findings()
	return r
}

// Findings returns all that there is to say, object by object. None is an empty
// list.
func (e *Evaluation) Findings() (errs, warnings []Finding) {
	errs = []Finding{}
	warnings = append(append([]Finding{}, e.Warnings...), e.Unasked()...)
	for i := range e.Outcomes {
		errs = append(errs, e.Outcomes[i].Errors()...)
		warnings = append(warnings, e.Outcomes[i].Warnings()...)
	}
	return errs, warnings
}
