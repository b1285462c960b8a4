package v1alpha1

import (
	"encoding/json"
	"slices"
	"strings"
)

// rowsInFull is how many clusters have a row of their own each, whatever it says.
const rowsInFull = 100

// Compact moves rows of Clusters that differ in nothing but the name to Alike, if
// there are many: an object on a thousand clusters has a report of some kilobytes
// then. [PropagationStatus.Expand] undoes it.
func (s *PropagationStatus) Compact() {
	if len(s.Clusters) <= rowsInFull {
		return
	}
	of := map[string]int{} // Index in groups.
	var groups []AlikeClusters
	for i := range s.Clusters {
		row := s.Clusters[i]
		name := row.Name
		row.Name = ""
		key, err := json.Marshal(&row)
		if err != nil {
			return // A row holds nothing that cannot be encoded.
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

// mostRows is how many clusters have a row when a report is expanded: more than there are in
// any fleet, as a name of a few bytes in Alike takes a hundred times that.
const mostRows = 10_000

// Expand gives every cluster a row in Clusters, by name, and leaves Alike empty. What
// rows have in common they share. A report may have been written by somebody else: of rows
// of one name the first counts, and of more than 10,000 the rest is left out.
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
