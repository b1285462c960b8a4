package admission

import (
	"bytes"
	"slices"
)

// match maps the elements of a new array to elements of the old array.
type match struct {
	// inPlace has, for each new element, the index of the old element that stays and becomes the new one, or that it
	// replaces; -1 for none. The indexes rise.
	inPlace []int
	// other has, for each element in place, whether it replaces a different old element.
	other []bool
	// moved has, for each element that is not in place, the index of the old element that moved here; -1 for none.
	moved []int
	// replaced is whether the patch replaces the whole array because that is shorter. moved then has all matches.
	replaced bool
}

// Limits for the comparison of all pairs of elements, which finds the best match of elements without identity.
// mostPairs limits the pairs of one array, mostCompared the pairs and their members of one patch. Beyond these limits
// only equal elements and those with the same identity match.
const (
	mostPairs    = 1 << 14
	mostCompared = 1 << 20
)

// mostMoves is the largest number of elements of an array that are removed and added one by one.
const mostMoves = 128

// matched compares the elements of two arrays that are not empty.
func (d *differ) matched(was, is []node) *match {
	m := &match{inPlace: fresh(len(is)), other: make([]bool, len(is)), moved: fresh(len(is))}
	front := 0
	for front < len(was) && front < len(is) && same(&was[front], &is[front]) {
		m.inPlace[front] = front
		front++
	}
	back := 0
	for back < len(was)-front && back < len(is)-front && same(&was[len(was)-1-back], &is[len(is)-1-back]) {
		m.inPlace[len(is)-1-back] = len(was) - 1 - back
		back++
	}
	olds, news := described(was[front:len(was)-back]), described(is[front:len(is)-back])
	d.spend(len(olds) + len(news))
	if (!apart(olds) || !apart(news)) && d.affords(olds, news) {
		m.align(olds, news, front)
	} else {
		m.follow(olds, news, front)
	}
	m.match(olds, news, front)
	if !m.any() && !slices.ContainsFunc(was, func(n node) bool { return n.isObject() || n.isArray() }) {
		m.replace()
		return m
	}
	m.pair(olds, news, front)
	kept := 0
	for _, i := range m.inPlace {
		if i >= 0 {
			kept++
		}
	}
	if len(was)-kept+len(is)-kept > mostMoves {
		m.replace()
	}
	return m
}

func fresh(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = -1
	}
	return out
}

// affords reports whether the comparison of all pairs is within the limits.
func (d *differ) affords(olds, news []description) bool {
	pairs := len(olds) * len(news)
	if pairs > mostPairs {
		return false
	}
	cost := pairs
	for i := range olds {
		cost += len(olds[i].node.inside) * len(news)
	}
	if d.compared+cost > mostCompared {
		return false
	}
	d.compared += cost
	return d.spend(cost)
}

// replace makes the patch replace the whole array.
func (m *match) replace() {
	m.replaced = true
	for j, i := range m.inPlace {
		if i >= 0 && !m.other[j] {
			m.moved[j] = i
		}
	}
}

// any reports whether any old element is in the new array.
func (m *match) any() bool {
	for j := range m.inPlace {
		if m.inPlace[j] >= 0 || m.moved[j] >= 0 {
			return true
		}
	}
	return false
}

// align finds the sequence of pairs in rising order with the highest total likeness.
func (m *match) align(olds, news []description, offset int) {
	rows, columns := len(olds), len(news)
	settle(olds, news)
	alike := make([]int, rows*columns)
	best := make([]int, (rows+1)*(columns+1)) // Highest total of the pairs from here on.
	at := func(i, j int) int { return i*(columns+1) + j }
	for i := rows - 1; i >= 0; i-- {
		for j := columns - 1; j >= 0; j-- {
			score := olds[i].likeness(&news[j])
			alike[i*columns+j] = score
			best[at(i, j)] = max(best[at(i+1, j)], best[at(i, j+1)])
			if score > 0 {
				best[at(i, j)] = max(best[at(i, j)], score+best[at(i+1, j+1)])
			}
		}
	}
	for i, j := 0, 0; i < rows && j < columns; {
		score := alike[i*columns+j]
		switch {
		case score > 0 && best[at(i, j)] == score+best[at(i+1, j+1)]:
			m.inPlace[offset+j] = offset + i
			i++
			j++
		case best[at(i, j)] == best[at(i+1, j)]:
			i++
		default:
			j++
		}
	}
}

// follow finds for each new element the equal old element, or else one with the same identity. Of these pairs it keeps
// the sequence in rising order with the highest weight. An equal pair counts ten, any other pair one.
func (m *match) follow(olds, news []description, offset int) {
	source := fresh(len(news))
	link(olds, news, make([]bool, len(olds)), func(j int) bool { return source[j] < 0 }, func(j, i int) { source[j] = i }, true)
	// before has, for each element, the preceding element of the best sequence that ends in it. ends is a Fenwick tree
	// over the old indexes: it gives the last element of the best sequence whose old indexes are below an index.
	weight, before, ends := make([]int, len(news)), fresh(len(news)), fresh(len(olds)+1)
	last := -1
	for j, i := range source {
		if i < 0 {
			continue
		}
		for at := i; at > 0; at &= at - 1 {
			if end := ends[at]; end >= 0 && (before[j] < 0 || weight[end] > weight[before[j]]) {
				before[j] = end
			}
		}
		weight[j] = 1
		if same(olds[i].node, news[j].node) {
			weight[j] = 10
		}
		if before[j] >= 0 {
			weight[j] += weight[before[j]]
		}
		for at := i + 1; at <= len(olds); at += at & -at {
			if ends[at] < 0 || weight[j] > weight[ends[at]] {
				ends[at] = j
			}
		}
		if last < 0 || weight[j] > weight[last] {
			last = j
		}
	}
	for ; last >= 0; last = before[last] {
		m.inPlace[offset+last] = offset + source[last]
	}
}

// link finds an old element that is not taken for each wanted new element: first equal elements, then those with the
// same identity. Unless all is set, it looks for equal elements only among objects.
func link(olds, news []description, taken []bool, wanted func(j int) bool, found func(j, i int), all bool) {
	equal, named := map[uint64][]int{}, map[string][]int{}
	for i := range olds {
		if !taken[i] && (all || olds[i].node.isObject()) {
			equal[olds[i].node.hash] = append(equal[olds[i].node.hash], i)
		}
	}
	for j := range news {
		if free := equal[news[j].node.hash]; wanted(j) && len(free) > 0 && same(olds[free[0]].node, news[j].node) {
			equal[news[j].node.hash], taken[free[0]] = free[1:], true
			found(j, free[0])
		}
	}
	for i := range olds {
		if name := olds[i].identity; name != "" && !taken[i] {
			named[name] = append(named[name], i)
		}
	}
	for j := range news {
		name := news[j].identity
		if free := named[name]; name != "" && wanted(j) && len(free) > 0 {
			named[name], taken[free[0]] = free[1:], true
			found(j, free[0])
		}
	}
}

// match finds the objects that have moved.
func (m *match) match(olds, news []description, offset int) {
	taken := make([]bool, len(olds))
	for j := range news {
		if i := m.inPlace[offset+j]; i >= 0 {
			taken[i-offset] = true
		}
	}
	wanted := func(j int) bool { return m.inPlace[offset+j] < 0 && m.moved[offset+j] < 0 }
	link(olds, news, taken, wanted, func(j, i int) { m.moved[offset+j] = offset + i }, false)
}

// pair matches the remaining elements between two elements in place by their position, if there are equally many old
// and new ones, or if none of them is an object. A pair is one changed element, unless its identity differs.
func (m *match) pair(olds, news []description, offset int) {
	moved := make([]bool, len(olds))
	for j := range news {
		if i := m.moved[offset+j]; i >= 0 {
			moved[i-offset] = true
		}
	}
	from, start := 0, 0
	for j := 0; j <= len(news); j++ {
		to := len(olds)
		if j < len(news) {
			to = m.inPlace[offset+j] - offset
			if m.inPlace[offset+j] < 0 {
				continue
			}
		}
		before := left(from, to, func(i int) bool { return moved[i] })
		after := left(start, j, func(k int) bool { return m.moved[offset+k] >= 0 })
		if len(before) == len(after) || !anyObject(olds, before) && !anyObject(news, after) {
			for k := range min(len(before), len(after)) {
				m.inPlace[offset+after[k]] = offset + before[k]
				m.other[offset+after[k]] = !olds[before[k]].becomes(&news[after[k]])
			}
		}
		from, start = to+1, j+1
	}
}

// left returns the indexes of a range that are not taken.
func left(from, to int, taken func(int) bool) []int {
	var out []int
	for i := from; i < to; i++ {
		if !taken(i) {
			out = append(out, i)
		}
	}
	return out
}

// anyObject reports whether the element at one of the indexes is an object.
func anyObject(elements []description, at []int) bool {
	return slices.ContainsFunc(at, func(i int) bool { return elements[i].node.isObject() })
}

// identities returns the members that identify elements of arrays for users and API servers. The first that an element
// has counts.
func identities() [10]string {
	return [...]string{"name", "key", "id", "uid", "type", "mountPath", "devicePath", "containerPort", "port", "ip"}
}

// description is what a comparison needs to know about an element.
type description struct {
	node *node
	// by is the member that identifies the element, and identity its name and value; both are empty without such a member.
	by       string
	identity string
	settled  bool // An equal element exists on the other side.
}

func described(elements []node) []description {
	out := make([]description, len(elements))
	for i := range elements {
		out[i].node = &elements[i]
		for _, key := range identities() {
			if v := elements[i].at([]byte(key)); v.tells() {
				out[i].by, out[i].identity = key, key+":"+string(v.raw)
				break
			}
		}
	}
	return out
}

// tells reports whether a member with this value can identify its element.
func (n *node) tells() bool {
	return n != nil && n.inside == nil && n.says && !n.isArray() && string(n.raw) != `""` && string(n.raw) != "0"
}

// apart reports whether each element has a distinct identity.
func apart(elements []description) bool {
	seen := make(map[string]bool, len(elements))
	for i := range elements {
		name := elements[i].identity
		if name == "" || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// settle marks the elements for which the other side has enough equal ones: they may have moved, but are not changed.
func settle(olds, news []description) {
	before, after := map[uint64]int{}, map[uint64]int{}
	for i := range olds {
		before[olds[i].node.hash]++
	}
	for i := range news {
		after[news[i].node.hash]++
	}
	for i := range olds {
		olds[i].settled = before[olds[i].node.hash] <= after[olds[i].node.hash]
	}
	for i := range news {
		news[i].settled = after[news[i].node.hash] <= before[news[i].node.hash]
	}
}

// becomes reports whether other may be this element after a change: the identifying member has the same value. An
// element without identity may get one.
func (d *description) becomes(other *description) bool {
	if d.identity == "" {
		return true
	}
	v := other.node.at([]byte(d.by))
	return v != nil && bytes.Equal(v.raw, d.node.at([]byte(d.by)).raw)
}

// likeness returns how much two elements are alike; 0 if they cannot be the same element.
func (d *description) likeness(other *description) int {
	const equal, named, most = 1000, 100, 99
	a, b := d.node, other.node
	switch {
	case a.isNull() && b.isNull(): // Two nulls prove little.
		return 1
	case a.hash == b.hash:
		return equal
	case d.settled || other.settled || !a.isObject() || !b.isObject() || d.identity != other.identity:
		return 0
	}
	score := 0
	for i := range a.inside {
		in := &a.inside[i]
		if v := b.at(in.key); v != nil && v.hash == in.hash && !in.isNull() {
			score++
		}
	}
	score = min(score, most)
	if d.identity != "" {
		score += named
	}
	return score
}
