package render

import (
	"refract.dev/override"
	"refract.dev/tree"
)

// Group is clusters that get the same.
type Group struct {
	// Clusters are indexes in the outcome's Clusters, ascending: those shown.
	Clusters []int
	// Variant is what they get; where several sets of rules come to the same, the
	// one of the first cluster.
	Variant *override.Variant
}

// Groups brings together the clusters shown that get the same object, or fail for
// the same reason, whichever rules led there; in the order of their first cluster.
func (o *Outcome) Groups() []Group {
	var groups []Group
	at := make([]int, len(o.Variants)) // Index in groups of each variant.
	first := len(groups)
	for i := range o.Variants {
		v := &o.Variants[i]
		at[i] = first
		for j := range groups {
			if same(groups[j].Variant, v) {
				at[i] = j
				break
			}
		}
		if at[i] == first {
			groups = append(groups, Group{Variant: v})
			first++
		}
	}
	of := make([]int, len(o.Clusters)) // The group of each cluster.
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			of[c] = at[i]
		}
	}
	shown := groups[:0]
	for c, g := range of {
		if o.Shows(c) {
			groups[g].Clusters = append(groups[g].Clusters, c)
		}
	}
	for _, g := range groups {
		if len(g.Clusters) > 0 {
			shown = append(shown, g)
		}
	}
	return shown
}

func same(a, b *override.Variant) bool {
	if a.Err != nil || b.Err != nil {
		return a.Err != nil && b.Err != nil && a.Err.Error() == b.Err.Error()
	}
	return tree.Equal(a.Object.Object, b.Object.Object)
}

// Names returns the names of the group's clusters.
func (o *Outcome) Names(g *Group) []string {
	names := make([]string, len(g.Clusters))
	for i, c := range g.Clusters {
		names[i] = o.Clusters[c].Name
	}
	return names
}
