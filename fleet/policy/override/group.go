package override

import "refract.dev/fleet/policy/match"

// ruleSet is the set of rules that apply to a cluster: one bit for each rule of each policy, in the order of effect. It
// is a string so that it can be the key of a map.
type ruleSet string

func (s ruleSet) has(i int) bool { return s[i/8]&(1<<(i%8)) != 0 }

type clusterGroup struct {
	rules    ruleSet
	size     int
	clusters []int // Indexes.
}

// group groups the clusters by the set of rules that apply to them.
func group(clusters []match.Cluster, policies []*Policy) []clusterGroup {
	h := newHolding(policies)
	var g grouping
	of := make([]int, len(clusters)) // By cluster: its index in g.groups.
	at := 0
	for i := range clusters {
		bits := h.rules(&clusters[i])
		if i == 0 || string(bits) != string(g.groups[at].rules) { // Adjacent clusters often have the same rules.
			at = g.find(bits)
		}
		of[i] = at
		g.groups[at].size++
	}
	rest := make([]int, len(clusters))
	for i := range g.groups {
		size := g.groups[i].size
		g.groups[i].clusters, rest = rest[:0:size], rest[size:]
	}
	for i, at := range of {
		g.groups[at].clusters = append(g.groups[at].clusters, i)
	}
	return g.groups
}

// Groups caches the groups of clusters for a caller that renders many objects with the same policies for the same
// clusters. With a thousand clusters, grouping takes longer than rendering. The zero value is an empty cache. A Groups
// is for one goroutine.
type Groups struct {
	of map[grouped][]clusterGroup
}

// grouped is the key of the cache: at most [mostGrouped] policies, and the slice of clusters.
type grouped struct {
	policies [mostGrouped]*Policy
	first    *match.Cluster
	clusters int
}

// mostGrouped is the largest number of policies whose groups are cached. An object names at most two.
const mostGrouped = 2

// group returns the result of the function [group], from the cache after the first call.
func (g *Groups) group(clusters []match.Cluster, policies []*Policy) []clusterGroup {
	if g == nil || len(clusters) == 0 || len(policies) > mostGrouped {
		return group(clusters, policies)
	}
	key := grouped{first: &clusters[0], clusters: len(clusters)}
	copy(key.policies[:], policies)
	groups, known := g.of[key]
	if !known {
		groups = group(clusters, policies)
		if g.of == nil {
			g.of = map[grouped][]clusterGroup{}
		}
		g.of[key] = groups
	}
	return groups
}

// holding computes the set of rules that apply to a cluster.
type holding struct {
	every match.Marks // The rules that apply to every cluster.
	some  []some
	all   match.Marks
}

// some has the rules of a policy that do not apply to every cluster.
type some struct {
	targets *match.Index
	first   int // The bit of the policy's first rule.
}

func newHolding(policies []*Policy) *holding {
	n := 0
	for _, p := range policies {
		n += len(p.rules)
	}
	size := (n + 7) / 8
	bits := make(match.Marks, 2*size)
	h := &holding{every: bits[:size], all: bits[size:]}
	first := 0
	for _, p := range policies {
		for _, i := range p.targets.Every() {
			h.every.Set(first + i)
		}
		if len(p.targets.Every()) < len(p.rules) {
			h.some = append(h.some, some{targets: &p.targets, first: first})
		}
		first += len(p.rules)
	}
	return h
}

// rules returns one bit for each rule. The result is valid until the next call.
func (h *holding) rules(c *match.Cluster) []byte {
	if len(h.some) == 0 {
		return h.every
	}
	copy(h.all, h.every)
	for _, s := range h.some {
		s.targets.Some(c, h.all, s.first)
	}
	return h.all
}

type grouping struct {
	groups []clusterGroup
	at     map[ruleSet]int // Index in groups; nil below fewGroups groups.
}

// For fewer groups than fewGroups, a comparison with each group is faster than a map.
const fewGroups = 8

// find returns the index of the group with these rules, and creates the group if necessary.
func (g *grouping) find(bits []byte) int {
	if g.at == nil {
		for i := range g.groups {
			if string(bits) == string(g.groups[i].rules) {
				return i
			}
		}
	} else if i, ok := g.at[ruleSet(bits)]; ok {
		return i
	}
	g.groups = append(g.groups, clusterGroup{rules: ruleSet(bits)})
	if len(g.groups) == fewGroups {
		g.at = make(map[ruleSet]int, 2*fewGroups)
		for i := range g.groups {
			g.at[g.groups[i].rules] = i
		}
	} else if g.at != nil {
		g.at[ruleSet(bits)] = len(g.groups) - 1
	}
	return len(g.groups) - 1
}
