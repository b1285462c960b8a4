package render

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"slices"

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
	alike := map[uint64][]int{}         // Indexes in groups, by what they get in short.
	at := make([]int, len(o.Variants)) // Index in groups of each variant.
	for i := range o.Variants {
		v := &o.Variants[i]
		short := digest(v, len(o.Variants))
		j := slices.IndexFunc(alike[short], func(j int) bool { return same(groups[j].Variant, v) })
		if j >= 0 {
			at[i] = alike[short][j]
			continue
		}
		at[i] = len(groups)
		alike[short] = append(alike[short], len(groups))
		groups = append(groups, Group{Variant: v})
	}
	of := make([]int, len(o.Clusters)) // The group of each cluster.
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			of[c] = at[i]
		}
	}
	for c, g := range of {
		if o.Shows(c) {
			groups[g].Clusters = append(groups[g].Clusters, c)
		}
	}
	return slices.DeleteFunc(groups, func(g Group) bool { return len(g.Clusters) == 0 })
}

// fewVariants are compared faster than digested.
const fewVariants = 8

// digest returns a number that is the same for variants that are the same. Where
// there are few it is the same for all.
func digest(v *override.Variant, variants int) uint64 {
	if variants <= fewVariants {
		return 0
	}
	h := fnv.New64a()
	if v.Err != nil {
		io.WriteString(h, v.Err.Error()) //nolint:errcheck // A hash takes everything.
	} else if err := json.NewEncoder(h).Encode(v.Object.Object); err != nil {
		return 0 // What has no JSON is still compared.
	}
	return h.Sum64()
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
