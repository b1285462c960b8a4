package match

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndex verifies that an index finds the same selectors as the evaluation of each selector, for any number and kind
// of selectors.
func TestIndex(t *testing.T) {
	targets := []string{
		"",
		"{clusters: [c1, c2]}",
		"{clusters: [c1], clusterSelector: {region: sh}}",
		"{clusters: [c1, c3], clusterAffinity: [{matchExpressions: [{key: region, operator: Exists}]}]}",
		"{clusterSelector: {region: bj}}",
		"{clusterSelector: {region: bj, zone: z9}}",
		"{clusterSelector: {region: sh}, clusterAffinity: [{matchExpressions: [{key: provider, operator: NotIn, values: [p]}]}]}",
		"{clusterSelector: {region: ''}}",
		"{clusterSelector: {zone: z1}}",
		"{clusterSelector: {zone: z1}}",
		"{clusterAffinity: [{}]}",
		"{clusterAffinity: [{matchFields: [{key: metadata.name, operator: NotIn, values: [c2]}]}]}",
		"{}",
	}
	clusters := slices.Clone(fleet)
	for i := range 3 * few { // An index with this many values of a label uses a map.
		targets = append(targets, fmt.Sprintf("{clusterSelector: {ring: r%d}}", i))
		clusters = append(clusters, Cluster{Name: fmt.Sprintf("r%d", i), Labels: map[string]string{"ring": fmt.Sprintf("r%d", 2*i)}})
	}
	for n := range targets {
		selectors := make([]Clusters, n)
		for i := range selectors {
			selectors[i], _ = CompileTarget(parseTarget(t, targets[i]), nil)
		}
		x := NewIndex(selectors)
		const first = 3 // An arbitrary number.
		for c := range clusters {
			want, got := make(Marks, (first+n)/8+1), make(Marks, (first+n)/8+1)
			for i := range selectors {
				if selectors[i].Match(&clusters[c]) {
					want.Set(first + i)
				}
			}
			for _, i := range x.Every() {
				got.Set(first + i)
			}
			x.Some(&clusters[c], got, first)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%d selectors, cluster %s: -want, +got:\n%s", n, clusters[c].Name, diff)
			}
		}
	}
}

// BenchmarkIndex looks up one cluster among a thousand selectors that choose one cluster each.
func BenchmarkIndex(b *testing.B) {
	selectors := make([]Clusters, 1000)
	for i := range selectors {
		selectors[i] = Clusters{names: map[string]struct{}{fmt.Sprintf("c%d", i): {}}}
	}
	c := &Cluster{Name: "c500"}
	b.Run("index", func(b *testing.B) {
		x := NewIndex(selectors)
		marks := make(Marks, len(selectors)/8)
		for b.Loop() {
			x.Some(c, marks, 0)
		}
		if marks[500/8] != 1<<(500%8) {
			b.Fatalf("found %v", marks)
		}
	})
	b.Run("each", func(b *testing.B) {
		n := 0
		for b.Loop() {
			for i := range selectors {
				if selectors[i].Match(c) {
					n++
				}
			}
		}
		if n == 0 {
			b.Fatal("found none")
		}
	})
}
