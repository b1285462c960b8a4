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
	// Clusters are indexes in the outcome's Clusters, ascending: those shown. They are not to be modified.
	Clusters []int
	// Variants are what led there: one for each set of rules, in the order of their
	// first cluster. Their objects, or their errors, are the same.
	Variants []*override.Variant
}

// Variant returns the first of the variants.
func (g *Group) Variant() *override.Variant { return g.Variants[0] }

// Groups brings together the clusters shown that get the same object, or fail for
// the same reason, whichever rules led there; in the order of their first cluster.
func (o *Outcome) Groups() []Group {
	var groups []Group
	alike := map[uint64][]int{} // Indexes in groups, by what they get in short.
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

// Names returns the names of the clusters with these indexes that are shown.
func (o *Outcome) Names(clusters []int) []string {
	names := make([]string, 0, len(clusters))
	for _, c := range clusters {
		if o.Shows(c) {
			names = append(names, o.Clusters[c].Name)
		}
	}
	return names
}

// fewNames is [Few] of the names of clusters, by index, of those shown.
func (o *Outcome) fewNames(clusters []int) string {
	if o.shown != nil {
		return Few(o.Names(clusters))
	}
	return fewOf(o.Names(clusters[:min(len(clusters), few+1)]), len(clusters))
}
