// Package render computes the content for each cluster offline. [Evaluate] applies the policies of a [manifest.Set] to
// its objects, with the engines of the controllers. Other functions write the result as YAML, JSON, files or variants.
package render

import (
	"errors"
	"fmt"

	"refract.dev/fleet/offline/manifest"
)

// Result is the content for each cluster, with errors and warnings.
type Result struct {
	// Clusters are sorted by name, and include clusters without objects.
	Clusters []Cluster `json:"clusters"`
	// Errors concern objects that some or all clusters do not get.
	Errors []Finding `json:"errors"`
	// Warnings concern policies and settings without effect.
	Warnings []Finding `json:"warnings"`
}

// Cluster is the content for one cluster.
type Cluster struct {
	Name string `json:"name"`
	// Objects are in the order of the input. They share parts with the input and with each other, so they must not be
	// modified.
	Objects []map[string]any `json:"objects"`
}

// ErrNoClusters is the error of [Evaluate] if no cluster is known.
var ErrNoClusters = errors.New("there is no FederatedCluster in the input, so no cluster is known")

// UnknownClusterError is the error of [Evaluate] for a cluster that the input does not have.
type UnknownClusterError struct {
	Name string
	// Near is a similar name in the input; it may be empty.
	Near string
}

// Error names the cluster.
func (e *UnknownClusterError) Error() string {
	return fmt.Sprintf("cluster %q is not among the FederatedClusters of the input", e.Name)
}

// Render evaluates the set and returns the result by cluster. If the list only is not empty, the result is limited to
// the clusters in it. The errors are those of [Evaluate].
func Render(set *manifest.Set, only []string) (*Result, error) {
	e, err := Evaluate(set, Options{Clusters: only})
	if err != nil {
		return nil, err
	}
	return e.Result(), nil
}

// Result returns the content for each cluster.
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

// Findings returns all errors and warnings, object by object. Without any, a list is empty and not nil.
func (e *Evaluation) Findings() (errs, warnings []Finding) {
	errs = []Finding{}
	warnings = append(append([]Finding{}, e.Warnings...), e.Unasked()...)
	for i := range e.Outcomes {
		errs = append(errs, e.Outcomes[i].Errors()...)
		warnings = append(warnings, e.Outcomes[i].Warnings()...)
	}
	return errs, warnings
}
