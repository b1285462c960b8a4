package placement

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// divide determines the shares. If the argument all is true, clusters without a replica are targets, too.
func (p *Policy) divide(parts []part, total int64, all bool) Decision {
	var d Decision
	pack := p.binpack
	if short(parts, total) {
		// With too few replicas for all minimums, the first clusters get their full minimum.
		pack = true
		for i := range parts {
			parts[i].lo, parts[i].hi = 0, min(parts[i].lo, total)
		}
		if total > 0 {
			d.Warnings = append(d.Warnings, fmt.Sprintf("minReplicas add up to more than the %d replicas of the object", total))
		}
	}
	fill(parts, total, pack)
	for i := range parts {
		parts[i].anew = parts[i].share
	}
	if !p.disrupts {
		stay(parts, total, pack)
	}
	d.Targets = targets(parts, total, all)
	d.Warnings = append(d.Warnings, unplaced(parts, total)...)
	d.Warnings = append(d.Warnings, undisturbed(parts)...)
	for i := range parts {
		if parts[i].share == 0 && parts[i].anew > 0 {
			d.Waiting, d.Kept = append(d.Waiting, parts[i].cluster), "avoidDisruption"
		}
	}
	return d
}

// short reports whether the minimums add up to more than the total.
func short(parts []part, total int64) bool {
	left := total
	for i := range parts {
		if parts[i].lo > left {
			return true
		}
		left -= parts[i].lo
	}
	return false
}

// stay determines shares. It moves only as many replicas as the bounds and the change of the total require.
func stay(parts []part, total int64, pack bool) {
	left, over, placed := total, false, false
	for i := range parts {
		s := &parts[i]
		placed = placed || s.current > 0
		s.share = min(max(s.current, s.lo), s.hi)
		over = over || s.share > left
		left = max(0, left-s.share)
	}
	switch {
	case !placed:
		for i := range parts {
			parts[i].share = parts[i].anew
		}
	case over:
		fillWithin(parts, total, pack, func(s *part) { s.hi = s.share })
	case left > 0:
		fillWithin(parts, total, pack, func(s *part) { s.lo = s.share })
	}
}

// fillWithin determines shares within other bounds.
func fillWithin(parts []part, total int64, pack bool, bound func(*part)) {
	other := slices.Clone(parts)
	for i := range other {
		bound(&other[i])
	}
	fill(other, total, pack)
	for i := range parts {
		parts[i].share = other[i].share
	}
}

// fill determines shares within the bounds. The minimums must not add up to more than the total.
func fill(parts []part, total int64, pack bool) {
	if pack {
		binpack(parts, total)
		return
	}
	left := spread(parts, total)
	if left == 0 {
		return
	}
	// All clusters with a weight are full. The others have room only for their current replicas.
	for i := range parts {
		parts[i].open = parts[i].share < parts[i].hi
	}
	for left > 0 {
		i := slices.IndexFunc(parts, func(s part) bool { return s.open })
		if i < 0 {
			return
		}
		s := &parts[i]
		more := min(left, s.hi-s.share)
		s.share, s.open = s.share+more, false
		left -= more
	}
}

// binpack fills one cluster after the other, in the order of rank.
func binpack(parts []part, total int64) {
	left := total
	order := make([]int, len(parts))
	for i := range parts {
		order[i] = i
		parts[i].share = parts[i].lo
		left -= parts[i].lo
	}
	slices.SortFunc(order, func(a, b int) int { return byRank(&parts[a], &parts[b]) })
	for _, i := range order {
		more := min(left, parts[i].hi-parts[i].share)
		parts[i].share += more
		left -= more
	}
}

// spread divides in proportion to the weights, and returns the remaining replicas if all clusters with a weight are
// full. If a bound limits a share, the other clusters divide the difference. In one round, minimums may limit some
// shares and maximums others. Then only the side with the larger total difference is applied, because the other side
// may no longer be limited in the next round.
func spread(parts []part, total int64) int64 {
	left := uint64(total)
	for i := range parts {
		parts[i].open = true
	}
	for {
		weights := uint64(0)
		for i := range parts {
			if parts[i].open {
				weights += parts[i].weight
			}
		}
		if weights == 0 {
			break
		}
		closed, cut := cutOff(parts, left, weights)
		if !cut {
			round(parts, left, weights)
			return 0
		}
		left -= closed
	}
	for i := range parts {
		if s := &parts[i]; s.open {
			left -= s.close(s.lo)
		}
	}
	return int64(left)
}

// cutOff closes open parts with quotas beyond a bound: either all below their minimum, or all above their maximum. It
// chooses the side with the larger total difference. It returns the sum of the closed shares; cut is false if no quota
// is beyond a bound.
func cutOff(parts []part, left, weights uint64) (closed uint64, cut bool) {
	var beyond, atBounds uint64 // Sums of weights and of bounds.
	for i := range parts {
		s := &parts[i]
		switch whole := s.quota(left, weights); {
		case !s.open:
		case whole < uint64(s.lo):
			beyond, atBounds, cut = beyond+s.weight, atBounds+uint64(s.lo), true
		case s.over(whole):
			beyond, atBounds, cut = beyond+s.weight, atBounds+uint64(s.hi), true
		}
	}
	more := compareProducts(atBounds, weights, left, beyond)
	for i := range parts {
		s := &parts[i]
		switch whole := s.quota(left, weights); {
		case !s.open:
		case whole < uint64(s.lo) && more >= 0:
			closed += s.close(s.lo)
		case s.over(whole) && more <= 0:
			closed += s.close(s.hi)
		}
	}
	return closed, cut
}

// quota returns the part's share of the remaining replicas, rounded down, and stores the remainder.
func (s *part) quota(left, weights uint64) uint64 {
	if !s.open {
		return 0
	}
	hi, lo := bits.Mul64(left, s.weight)
	whole, rest := bits.Div64(hi, lo, weights) // Div64 cannot overflow: the weight is at most the sum of weights.
	s.rest = rest
	return whole
}

// over reports whether a quota exceeds the maximum of the part.
func (s *part) over(whole uint64) bool {
	most := uint64(s.hi)
	return whole > most || (whole == most && s.rest > 0)
}

func (s *part) close(share int64) uint64 {
	s.open, s.share = false, share
	return uint64(share)
}

// compareProducts compares a×b with c×d.
func compareProducts(a, b, c, d uint64) int {
	hi1, lo1 := bits.Mul64(a, b)
	hi2, lo2 := bits.Mul64(c, d)
	return cmp.Or(cmp.Compare(hi1, hi2), cmp.Compare(lo1, lo2))
}

// round gives the open parts their quotas. The replicas that remain after rounding down go to the parts with the
// largest remainders.
func round(parts []part, left, weights uint64) {
	order := make([]int, 0, len(parts))
	rest := left
	for i := range parts {
		s := &parts[i]
		if s.open {
			rest -= s.close(int64(s.quota(left, weights)))
			order = append(order, i)
		}
	}
	if rest == 0 {
		return
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(parts[b].rest, parts[a].rest), cmp.Compare(a, b))
	})
	for _, i := range order[:rest] {
		parts[i].share++
	}
}

// targets returns the parts that get replicas.
func targets(parts []part, total int64, all bool) []Target {
	shares := make([]int64, 0, len(parts))
	found := make([]Target, 0, len(parts))
	for i := range parts {
		if s := &parts[i]; s.share > 0 || total == 0 || all {
			shares = append(shares, s.share)
			found = append(found, Target{Cluster: s.cluster, Replicas: &shares[len(shares)-1]})
		}
	}
	return found
}

// unplaced warns of replicas that no cluster has room for.
func unplaced(parts []part, total int64) []string {
	left := total
	for i := range parts {
		left -= parts[i].share
	}
	if left == 0 || len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("only %d of %d replicas are placed: the clusters that fit have no room for more", total-left, total)}
}

// undisturbed warns of shares that differ, by more than rounding, from a new division in which all replicas may move.
// Clusters with no replicas are listed as Waiting instead.
func undisturbed(parts []part) []string {
	var others []string
	for i := range parts {
		if s := &parts[i]; s.share > s.anew+1 || (s.share < s.anew-1 && s.share > 0) {
			others = append(others, fmt.Sprintf("%s would have %d instead of %d", s.cluster, s.anew, s.share))
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []string{"avoidDisruption keeps replicas where they are: in a new division, " + list(others)}
}
