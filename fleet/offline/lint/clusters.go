package lint

import (
	"maps"
	"slices"

	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
)

// clusters are the clusters that policies can choose.
type clusters struct {
	// known reports whether the input has clusters. If not, the clusters that policies name are assumed to exist, and
	// in addition one cluster without name and labels.
	known bool
	all   []placement.Cluster // By name.
	// labels are the sorted values of cluster labels, by key.
	labels map[string][]string
}

func clustersOf(all []placement.Cluster, known bool) *clusters {
	values := map[string]map[string]bool{}
	for i := range all {
		for key, value := range all[i].Labels {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
		}
	}
	c := &clusters{known: known, all: all, labels: make(map[string][]string, len(values))}
	for key := range values {
		c.labels[key] = slices.Sorted(maps.Keys(values[key]))
	}
	return c
}

// names returns the names of all clusters, sorted.
func (c *clusters) names() []string {
	names := make([]string, len(c.all))
	for i := range c.all {
		names[i] = c.all[i].Name
	}
	return names
}

// labelKeys returns the keys of all cluster labels, sorted.
func (c *clusters) labelKeys() []string { return slices.Sorted(maps.Keys(c.labels)) }

// chosen returns the clusters that match.
func (c *clusters) chosen(by *match.Clusters) []*placement.Cluster {
	var chosen []*placement.Cluster
	for i := range c.all {
		if by.Match(&c.all[i].Cluster) {
			chosen = append(chosen, &c.all[i])
		}
	}
	return chosen
}
