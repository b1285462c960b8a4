package v1alpha1

import (
	"encoding/json"
	"slices"
	"strings"
)

// rowsInFull is the largest number of clusters for which [PropagationStatus.Compact] keeps one row for each cluster.
const rowsInFull = 100

// Compact moves rows of Clusters that differ only in the name to Alike if there are more than 100 rows. So the report
// of an object on a thousand clusters has only some kilobytes. [PropagationStatus.Expand] reverses it.
func (s *PropagationStatus) Compact() {
	if len(s.Clusters) <= rowsInFull {
		return
	}
	of := map[string]int{} // Indices of groups, by encoded row.
	var groups []AlikeClusters
	for i := range s.Clusters {
		row := s.Clusters[i]
		name := row.Name
		row.Name = ""
		key, err := json.Marshal(&row)
		if err != nil {
			return // A row holds only values that can be encoded.
		}
		at, ok := of[string(key)]
		if !ok {
			at = len(groups)
			of[string(key)] = at
			groups = append(groups, AlikeClusters{Row: row})
		}
		groups[at].Names = append(groups[at].Names, name)
	}
	var rows []ClusterStatus
	s.Alike = nil
	for i := range groups {
		if len(groups[i].Names) == 1 {
			row := groups[i].Row
			row.Name = groups[i].Names[0]
			rows = append(rows, row)
			continue
		}
		s.Alike = append(s.Alike, groups[i])
	}
	s.Clusters = rows
}

// mostRows is the maximum number of rows of an expanded report, more than any fleet has. It is necessary because a name
// of a few bytes in Alike becomes a row of a hundred times that size.
const mostRows = 10_000

// Expand gives every cluster a row in Clusters, sorted by name, and empties Alike. Rows of a group share their pointers
// and slices. A report may come from another writer: of rows with the same name Expand keeps the first, and it drops
// all beyond 10,000.
func (s *PropagationStatus) Expand() {
	rows := s.Clusters[:min(len(s.Clusters), mostRows)]
	for i := range s.Alike {
		names := s.Alike[i].Names
		for _, name := range names[:min(len(names), mostRows-len(rows))] {
			row := s.Alike[i].Row
			row.Name = name
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	rows = slices.CompactFunc(rows, func(a, b ClusterStatus) bool { return a.Name == b.Name })
	s.Clusters, s.Alike = rows, nil
}
