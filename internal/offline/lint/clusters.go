package lint

import (
	"maps"
	"slices"

	"refract.dev/match"
	"refract.dev/placement"
)

// clusters are those that policies may choose.
type clusters struct {
	// known is whether the input has any. If not, those that policies name are taken
	// to exist, and one without a name or labels.
	known bool
	all   []placement.Cluster // By name.
	// labels are those of the clusters: sorted values by key.
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

// labelKeys returns the keys of all labels of clusters, sorted.
func (c *clusters) labelKeys() []string { return slices.Sorted(maps.Keys(c.labels)) }

// chosen returns the clusters that are chosen.
func (c *clusters) chosen(by *match.Clusters) []*placement.Cluster {
	var chosen []*placement.Cluster
	for i := range c.all {
		if by.Match(&c.all[i].Cluster) {
			chosen = append(chosen, &c.all[i])
		}
	}
	return chosen
}
