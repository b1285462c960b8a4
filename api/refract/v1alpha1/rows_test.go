package v1alpha1

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompact: Compact makes the report of a large fleet small, and loses nothing.
func TestCompact(t *testing.T) {
	var few, many PropagationStatus
	for i := range 1000 {
		row := ClusterStatus{Name: fmt.Sprintf("member-%04d", i), State: StateSynced, Hash: "0123456789abcdef0123456789abcdef", Readiness: ReadinessReady}
		switch {
		case i == 17:
			row.State, row.Message = StateFailed, "refused"
		case i%2 == 1:
			row.Hash = "fedcba9876543210fedcba9876543210"
		}
		many.Clusters = append(many.Clusters, row)
		if i < rowsInFull {
			few.Clusters = append(few.Clusters, row)
		}
	}
	before := few.DeepCopy()
	few.Compact()
	if diff := cmp.Diff(before, &few); diff != "" {
		t.Errorf("Compact() of %d rows: -before, +after:\n%s", rowsInFull, diff)
	}
	before = many.DeepCopy()
	many.Compact()
	if len(many.Clusters) != 1 || many.Clusters[0].Name != "member-0017" || len(many.Alike) != 2 {
		t.Errorf("Compact(): want one row and two groups, got %v and %d groups", many.Clusters, len(many.Alike))
	}
	text, err := json.Marshal(&many)
	if err != nil {
		t.Fatal(err)
	}
	if most := 20_000; len(text) > most {
		t.Errorf("Compact() of 1,000 rows: want at most %d bytes, got %d", most, len(text))
	}
	many.Expand()
	if diff := cmp.Diff(before, &many); diff != "" {
		t.Errorf("Expand() after Compact(): -before, +after:\n%s", diff)
	}
}

// TestExpandForged: the expanded report of another writer has no cluster twice, and a bounded number of rows.
func TestExpandForged(t *testing.T) {
	s := PropagationStatus{
		Clusters: []ClusterStatus{{Name: "b", Hash: "1"}, {Name: "a", Hash: "2"}, {Name: "b", Hash: "3"}},
		Alike:    []AlikeClusters{{Row: ClusterStatus{Name: "x", Hash: "4"}, Names: []string{"c", "a", "c"}}},
	}
	s.Expand()
	want := PropagationStatus{Clusters: []ClusterStatus{{Name: "a", Hash: "2"}, {Name: "b", Hash: "1"}, {Name: "c", Hash: "4"}}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("Expand() of duplicate rows: -want, +got:\n%s", diff)
	}
	var many PropagationStatus
	for i := range 3 {
		many.Alike = append(many.Alike, AlikeClusters{})
		for j := range mostRows {
			many.Alike[i].Names = append(many.Alike[i].Names, fmt.Sprintf("%d-%d", i, j))
		}
	}
	many.Expand()
	if len(many.Clusters) != mostRows || cap(many.Clusters) > 2*mostRows {
		t.Errorf("Expand() of too many rows: want %d, got %d and capacity for %d", mostRows, len(many.Clusters), cap(many.Clusters))
	}
}
