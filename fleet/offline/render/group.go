package render

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"slices"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// Group is a group of clusters with the same content.
type Group struct {
	// Clusters are the shown clusters, as ascending indexes in the outcome's Clusters. They must not be modified.
	Clusters []int
	// Variants are the variants of the group: one for each set of rules, in the order of their first cluster. Their
	// objects, or their errors, are equal.
	Variants []*override.Variant
}

// Variant returns the first of the variants.
func (g *Group) Variant() *override.Variant { return g.Variants[0] }

// Groups groups the shown clusters that get the same object, or fail with the same error, whichever rules apply. The
// groups are in the order of their first cluster.
func (o *Outcome) Groups() []Group {
	var groups []Group
	alike := map[uint64][]int{} // Indexes in groups, by the digest of their content.
	of := make([]int, len(o.Clusters))
	for i := range o.Variants {
		v := &o.Variants[i]
		if !slices.ContainsFunc(v.Clusters, o.Shows) {
			continue
		}
		short := digest(v, len(o.Variants))
		at := slices.IndexFunc(alike[short], func(j int) bool { return same(groups[j].Variant(), v) })
		if at < 0 {
			at = len(alike[short])
			alike[short] = append(alike[short], len(groups))
			groups = append(groups, Group{})
		}
		g := alike[short][at]
		groups[g].Variants = append(groups[g].Variants, v)
		for _, c := range v.Clusters {
			of[c] = g
		}
	}
	if o.shown == nil && len(groups) == len(o.Variants) {
		for i := range groups {
			groups[i].Clusters = groups[i].Variant().Clusters
		}
		return groups
	}
	for c, g := range of {
		if o.Shows(c) {
			groups[g].Clusters = append(groups[g].Clusters, c)
		}
	}
	return groups
}

// fewVariants is a number of variants for which comparing all of them is faster than computing digests.
const fewVariants = 8

// digest returns the same number for equal variants. With few variants, it returns the same number for all.
func digest(v *override.Variant, variants int) uint64 {
	if variants <= fewVariants {
		return 0
	}
	h := fnv.New64a()
	if v.Err != nil {
		io.WriteString(h, v.Err.Error()) //nolint:errcheck // A hash takes everything.
	} else if err := json.NewEncoder(h).Encode(v.Object.Object); err != nil {
		return 0 // Content without JSON is still compared.
	}
	return h.Sum64()
}

func same(a, b *override.Variant) bool {
	if a.Err != nil || b.Err != nil {
		return a.Err != nil && b.Err != nil && a.Err.Error() == b.Err.Error()
	}
	return tree.Equal(a.Object.Object, b.Object.Object)
}

// Names returns the names of the shown clusters among those with these indexes.
func (o *Outcome) Names(clusters []int) []string {
	names := make([]string, 0, len(clusters))
	for _, c := range clusters {
		if o.Shows(c) {
			names = append(names, o.Clusters[c].Name)
		}
	}
	return names
}

// fewNames returns [Few] of the names of the shown clusters among those with these indexes.
func (o *Outcome) fewNames(clusters []int) string {
	if o.shown != nil {
		return Few(o.Names(clusters))
	}
	return fewOf(o.Names(clusters[:min(len(clusters), few+1)]), len(clusters))
}
