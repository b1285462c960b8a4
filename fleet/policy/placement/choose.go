package placement

import (
	"slices"
	"strings"
)

// choose returns at most maxClusters of the clusters that fit: first those that have the object, then others, by name.
// It may modify fitting.
func (p *Policy) choose(fitting, previous []Target) []Target {
	if p.max < 0 || len(fitting) <= p.max {
		return fitting
	}
	placed := 0
	for i := range fitting {
		if _, is := Find(previous, fitting[i].Cluster); is {
			placed++
		}
	}
	placed = min(placed, p.max)
	others := p.max - placed
	return slices.DeleteFunc(fitting, func(t Target) bool {
		left := &others
		if _, is := Find(previous, t.Cluster); is {
			left = &placed
		}
		*left--
		return *left < 0
	})
}

// chooseParts is [Policy.choose] for an object that is divided: after the clusters that have the object, greater
// weights or priorities come first.
func (p *Policy) chooseParts(parts []part) []part {
	if p.max < 0 || len(parts) <= p.max {
		return parts
	}
	slices.SortFunc(parts, func(a, b part) int {
		if a.placed != b.placed {
			if a.placed {
				return -1
			}
			return 1
		}
		return byRank(&a, &b)
	})
	parts = parts[:p.max]
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.cluster, b.cluster) })
	return parts
}
