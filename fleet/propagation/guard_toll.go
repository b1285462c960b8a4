package propagation

import (
	"maps"
	"slices"
)

// toll has numbers of deletions, each with the number of copies that it is compared with.
type toll struct {
	now, pending int // The copies to be deleted now, and all existing copies.
	lost, most   int // The copies to be deleted now or lost within the window, and all copies that existed in it.
}

func (t *toll) add(o toll) {
	t.now, t.pending, t.lost, t.most = t.now+o.now, t.pending+o.pending, t.lost+o.lost, t.most+o.most
}

func (t *toll) subtract(o toll) {
	t.add(toll{now: -o.now, pending: -o.pending, lost: -o.lost, most: -o.most})
}

// excess returns the groups whose deletions exceed the limits.
//
// Each cause in a namespace is judged by itself. A cause that is [cause.wide] is also judged over the whole member.
//
// Many forgotten copies show that the hub was restored from a backup, so its other statements are unreliable. Then all
// causes wait in each namespace with too many forgotten copies. They wait on the whole member if several namespaces
// together have too many, see [rest] and [shared].
//
// Causes that tenants can bring about are also judged over all namespaces below their own limits together, without the
// one with the largest loss. Small losses in many namespaces are a mistake of a user with rights in all of them, and no
// single tenant can use up the limit of the others.
func (g *guard) excess() map[group]bool {
	spaces, groups := g.tolls()
	excess, full := map[group]bool{}, map[string]bool{}
	exceed := func(which func(group) bool) {
		for of := range groups {
			excess[of] = excess[of] || which(of)
		}
	}
	var member toll
	forgotten, unknown := map[string]toll{}, map[string]bool{}
	for name, of := range spaces {
		member.add(of)
		of.add(groups[group{name, causeForgotten}])
		forgotten[name] = of
	}
	wide := map[cause]toll{}
	for of, t := range groups {
		sum := wide[of.cause]
		sum.add(t)
		wide[of.cause] = sum
		t.add(spaces[of.namespace])
		excess[of] = g.much(t)
		full[of.namespace] = full[of.namespace] || excess[of]
		unknown[of.namespace] = unknown[of.namespace] || (excess[of] && of.cause == causeForgotten)
	}
	for c, t := range wide {
		t.add(member)
		if c.wide() && g.much(t) {
			exceed(func(of group) bool { return of.cause == c })
		}
	}
	everywhere := g.much(rest(forgotten)) || g.much(shared(forgotten))
	exceed(func(of group) bool { return everywhere || unknown[of.namespace] })
	if everywhere {
		return excess
	}
	shares := map[string]toll{}
	for name, of := range spaces {
		if !full[name] {
			shares[name] = of
		}
	}
	for of, t := range groups {
		if share, counts := shares[of.namespace]; counts && !of.cause.wide() {
			share.add(t)
			shares[of.namespace] = share
		}
	}
	if g.much(rest(shares)) {
		exceed(func(of group) bool { _, counts := shares[of.namespace]; return counts && !of.cause.wide() })
	}
	return excess
}

// rest returns the sum of all namespaces except the one with the largest loss.
func rest(shares map[string]toll) toll {
	sum, _ := apart(shares)
	return sum
}

// shared returns the sum of all namespaces. The namespace with the largest loss counts at most as many losses as all
// others together, so that its users alone cannot make the others wait.
func shared(shares map[string]toll) toll {
	sum, most := apart(shares)
	now, lost := max(0, most.now-sum.now), max(0, most.lost-sum.lost)
	sum.add(most)
	sum.subtract(toll{now: now, pending: now, lost: lost, most: lost})
	return sum
}

// apart returns the toll of the namespace with the largest loss, and the sum of all others.
func apart(shares map[string]toll) (others, most toll) {
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		t := shares[name]
		others.add(t)
		if t.lost > most.lost {
			most = t
		}
	}
	others.subtract(most)
	return others, most
}

// tolls returns the numbers of present and former copies for each namespace, and the losses for each group.
func (g *guard) tolls() (spaces map[string]toll, groups map[group]toll) {
	spaces, groups = map[string]toll{}, map[group]toll{}
	has := func(namespace string, t toll) {
		sum := spaces[namespace]
		sum.add(t)
		spaces[namespace] = sum
	}
	loses := func(of group, t toll) {
		sum := groups[of]
		sum.add(t)
		groups[of] = sum
	}
	for namespace, n := range g.copies {
		has(namespace, toll{pending: n, most: n})
	}
	for key := range g.approved { // Approved deletions are no loss.
		has(key.Namespace, toll{pending: -1, most: -1})
	}
	for _, l := range g.lost {
		has(l.namespace, toll{most: 1})
		loses(l.group, toll{lost: 1})
	}
	for _, removals := range []map[Key]removal{g.undecided, g.allowed, g.pending.byKey} {
		for _, r := range removals {
			if !r.needsApproval {
				loses(r.group(), toll{now: 1, lost: 1})
			}
		}
	}
	return spaces, groups
}

// much reports whether a toll exceeds the limits.
func (g *guard) much(t toll) bool {
	return g.over(t.now, guardCopies, t.pending) || g.over(t.lost, guardPasses, t.most)
}

func (g *guard) over(n, least, of int) bool {
	return g.share < 1 && n > least && float64(n) > g.share*float64(of)
}
