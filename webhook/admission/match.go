package admission

import (
	"bytes"
	"slices"
)

// match says which element of an array comes from which one that was there before.
type match struct {
	// inPlace has for each element the index of the one that it comes from, or -1; the
	// indexes rise.
	inPlace []int
	// moved has for each element that is not in place the index of the one that it comes
	// from nevertheless, or -1.
	moved []int
	// replaced is whether a new array says it shorter; all that matches is in moved then.
	replaced bool
}

// mostPairs is how many pairs of elements are compared to find the best match. Beyond,
// equal ones and those of the same identity are found, and the order is not looked at.
const mostPairs = 1 << 14

// matched compares the elements of two arrays that are not empty.
func matched(was, is [][]byte) *match {
	m := &match{inPlace: fresh(len(is)), moved: fresh(len(is))}
	front := 0
	for front < len(was) && front < len(is) && bytes.Equal(was[front], is[front]) {
		m.inPlace[front] = front
		front++
	}
	back := 0
	for back < len(was)-front && back < len(is)-front && bytes.Equal(was[len(was)-1-back], is[len(is)-1-back]) {
		m.inPlace[len(is)-1-back] = len(was) - 1 - back
		back++
	}
	olds, news := was[front:len(was)-back], is[front:len(is)-back]
	if len(olds)*len(news) > mostPairs {
		m.match(was, is)
		m.pair(was, is)
		m.replace()
		return m
	}
	m.align(olds, news, front)
	m.match(was, is)
	if !m.any() && !anyInside(was) {
		m.replace()
		return m
	}
	m.pair(was, is)
	return m
}

func fresh(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = -1
	}
	return out
}

// replace has the array replaced as a whole.
func (m *match) replace() {
	m.replaced = true
	for j, i := range m.inPlace {
		if i >= 0 {
			m.moved[j] = i
		}
	}
}

// any reports whether anything of the old array is to be found in the new one.
func (m *match) any() bool {
	for j := range m.inPlace {
		if m.inPlace[j] >= 0 || m.moved[j] >= 0 {
			return true
		}
	}
	return false
}

// align finds the pairs in rising order that are most alike in all.
func (m *match) align(before, after [][]byte, offset int) {
	rows, columns := len(before), len(after)
	if rows == 0 || columns == 0 {
		return
	}
	olds, news := described(before), described(after)
	if namedAlike(olds, news) {
		for i := range before {
			m.inPlace[offset+i] = offset + i
		}
		return
	}
	settle(olds, news)
	alike := make([]int, rows*columns)
	best := make([]int, (rows+1)*(columns+1)) // Of what is behind a pair.
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

// match finds the objects that have moved: first those that are equal, then those of the
// same identity.
func (m *match) match(was, is [][]byte) {
	if !slices.Contains(m.inPlace, -1) {
		return
	}
	taken := make([]bool, len(was))
	for _, i := range m.inPlace {
		if i >= 0 {
			taken[i] = true
		}
	}
	for _, key := range []func([]byte) string{whole, identity} {
		where := map[string][]int{}
		for i, v := range was {
			if k := key(v); !taken[i] && isObject(v) && k != "" {
				where[k] = append(where[k], i)
			}
		}
		for j, v := range is {
			if m.inPlace[j] >= 0 || m.moved[j] >= 0 || !isObject(v) {
				continue
			}
			k := key(v)
			if free := where[k]; len(free) > 0 {
				m.moved[j], where[k] = free[0], free[1:]
				taken[free[0]] = true
			}
		}
	}
}

// pair takes what is left between two elements that stay for the same ones changed: if
// there are as many as there were, or none of them is an object.
func (m *match) pair(was, is [][]byte) {
	moved := make([]bool, len(was))
	for _, i := range m.moved {
		if i >= 0 {
			moved[i] = true
		}
	}
	from, start := 0, 0
	for j := 0; j <= len(is); j++ {
		to := len(was)
		if j < len(is) {
			to = m.inPlace[j]
		}
		if to < 0 {
			continue
		}
		olds := left(from, to, func(i int) bool { return moved[i] })
		news := left(start, j, func(k int) bool { return m.moved[k] >= 0 })
		if len(olds) == len(news) || !anyObject(was, olds) && !anyObject(is, news) {
			for k := range min(len(olds), len(news)) {
				m.inPlace[news[k]] = olds[k]
			}
		}
		from, start = to+1, j+1
	}
}

// left returns the indexes that are not taken.
func left(from, to int, taken func(int) bool) []int {
	var out []int
	for i := from; i < to; i++ {
		if !taken(i) {
			out = append(out, i)
		}
	}
	return out
}

// anyObject reports whether there is an object at one of the indexes.
func anyObject(elements [][]byte, at []int) bool {
	return slices.ContainsFunc(at, func(i int) bool { return isObject(elements[i]) })
}

// anyInside reports whether there is something in an element, which may be unknown.
func anyInside(elements [][]byte) bool {
	return slices.ContainsFunc(elements, func(v []byte) bool { return isObject(v) || isArray(v) })
}

// identities are members by which people and API servers tell elements of an array apart;
// the first one that an element has counts.
var identities = []string{"name", "key", "id", "uid", "type", "mountPath", "devicePath", "containerPort", "port", "ip"}

// identity returns what tells an element apart; empty for nothing.
func identity(v []byte) string {
	if !isObject(v) {
		return ""
	}
	is, err := membersOf(v)
	if err != nil {
		return ""
	}
	return is.identity()
}

func (m *members) identity() string {
	for _, key := range identities {
		if v := m.at(key); v != nil && !isObject(v) && !isArray(v) && !isNull(v) {
			return key + ":" + string(v)
		}
	}
	return ""
}

func whole(v []byte) string { return string(v) }

// description is what is known of an element before it is compared.
type description struct {
	raw      []byte
	members  members
	identity string
	settled  bool // It is there as it was, somewhere.
}

// namedAlike reports whether the elements have identities of their own each, and the same
// on both sides.
func namedAlike(olds, news []description) bool {
	if len(olds) != len(news) {
		return false
	}
	seen := make(map[string]bool, len(olds))
	for i := range olds {
		name := olds[i].identity
		if name == "" || name != news[i].identity || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// settle finds the elements that have an equal one each on the other side: they have
// perhaps moved, but none of them has been changed.
func settle(olds, news []description) {
	before, after := map[string]int{}, map[string]int{}
	for i := range olds {
		before[string(olds[i].raw)]++
	}
	for i := range news {
		after[string(news[i].raw)]++
	}
	for i := range olds {
		olds[i].settled = before[string(olds[i].raw)] <= after[string(olds[i].raw)]
	}
	for i := range news {
		news[i].settled = after[string(news[i].raw)] <= before[string(news[i].raw)]
	}
}

func described(elements [][]byte) []description {
	out := make([]description, len(elements))
	for i, v := range elements {
		out[i].raw = v
		if !isObject(v) {
			continue
		}
		if is, err := membersOf(v); err == nil {
			out[i].members, out[i].identity = is, is.identity()
		}
	}
	return out
}

// likeness says how much two elements are alike: 0 if they are not the same one.
func (d *description) likeness(other *description) int {
	const equal, same, most = 1000, 100, 99
	switch {
	case isNull(d.raw) && isNull(other.raw): // There is little in it.
		return 1
	case bytes.Equal(d.raw, other.raw):
		return equal
	case d.settled || other.settled || !isObject(d.raw) || !isObject(other.raw) || d.identity != other.identity:
		return 0
	}
	score := 0
	for i, key := range d.members.keys {
		if v := d.members.values[i]; bytes.Equal(v, other.members.at(key)) && !isNull(v) {
			score++
		}
	}
	score = min(score, most)
	if d.identity != "" {
		score += same
	}
	return score
}
