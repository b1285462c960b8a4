package placement

import (
	"slices"
	"strings"
)

// sorted returns the request, or a sorted copy if the request is not sorted.
func (r *Request) sorted() *Request {
	byName := func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) }
	byCluster := func(a, b Target) int { return strings.Compare(a.Cluster, b.Cluster) }
	inOrder := true
	for i := 1; i < len(r.Clusters) && inOrder; i++ {
		inOrder = r.Clusters[i-1].Name <= r.Clusters[i].Name
	}
	if inOrder && slices.IsSortedFunc(r.Previous, byCluster) {
		return r
	}
	s := *r
	s.Clusters = slices.SortedFunc(slices.Values(r.Clusters), byName)
	s.Previous = slices.SortedFunc(slices.Values(r.Previous), byCluster)
	return &s
}

// each iterates over the clusters, with the previous target of each; nil if the cluster does not have the object.
func (r *Request) each() func(yield func(*Cluster, *Target) bool) {
	return func(yield func(*Cluster, *Target) bool) {
		next := 0
		for i := range r.Clusters {
			c := &r.Clusters[i]
			for next < len(r.Previous) && r.Previous[next].Cluster < c.Name {
				next++
			}
			var was *Target
			if next < len(r.Previous) && r.Previous[next].Cluster == c.Name {
				was = &r.Previous[next]
			}
			if !yield(c, was) {
				return
			}
		}
	}
}

// there returns the previous targets on clusters that still exist.
func (r *Request) there() []Target {
	var targets []Target
	for _, was := range r.each() {
		if was != nil {
			targets = append(targets, *was)
		}
	}
	return targets
}

// missing returns the clusters of a that are not in b.
func missing(a, b []Target) []string {
	var names []string
	for i := range a {
		if _, found := Find(b, a[i].Cluster); !found {
			names = append(names, a[i].Cluster)
		}
	}
	return names
}

func equalTargets(a, b Target) bool {
	if a.Cluster != b.Cluster || (a.Replicas == nil) != (b.Replicas == nil) {
		return false
	}
	return a.Replicas == nil || *a.Replicas == *b.Replicas
}

// sumOf returns the sum of the replicas of all targets, if they are known.
func sumOf(targets []Target) (sum int64, known bool) {
	for i := range targets {
		if targets[i].Replicas == nil {
			return 0, false
		}
		sum += *targets[i].Replicas
	}
	return sum, true
}
