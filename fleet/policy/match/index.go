package match

import "slices"

// Index finds the selectors that choose a cluster, without evaluating each selector, because a policy may have a rule
// for every cluster. The zero Index is empty. It is immutable.
type Index struct {
	selectors []Clusters
	every     []int                  // Selectors that choose every cluster.
	byName    map[string][]candidate // Selectors that choose by name, and possibly by other criteria.
	byLabel   []labelIndex           // Selectors that choose by label and possibly by other criteria, but not by name.
	others    []int                  // Selectors that must be evaluated.
}

// labelIndex contains the selectors that require one value of a label.
type labelIndex struct {
	key    string
	values []string
	chosen [][]candidate // For each of values.
	at     map[string]int
}

// candidate is a selector that may choose a cluster.
type candidate struct {
	selector int
	more     bool // Whether the selector has further criteria.
}

// NewIndex returns an index of the selectors. It keeps the slice.
func NewIndex(selectors []Clusters) Index {
	x := Index{selectors: selectors}
	for i := range selectors {
		s := &selectors[i]
		affinity := len(s.affinity) > 0
		switch {
		case s.names != nil:
			x.addNames(s, candidate{selector: i, more: len(s.labels) > 0 || affinity})
		case len(s.labels) > 0:
			x.addLabel(&s.labels[0], candidate{selector: i, more: len(s.labels) > 1 || affinity})
		case affinity:
			x.others = append(x.others, i)
		default:
			x.every = append(x.every, i)
		}
	}
	return x
}

// Selector returns the selector with this index. It must not be modified.
func (x *Index) Selector(i int) *Clusters { return &x.selectors[i] }

func (x *Index) addNames(s *Clusters, c candidate) {
	if x.byName == nil {
		x.byName = map[string][]candidate{}
	}
	for name := range s.names {
		x.byName[name] = append(x.byName[name], c)
	}
}

// addLabel adds a selector by the first label of its clusterSelector, whose requirement has one value.
func (x *Index) addLabel(r *requirement, c candidate) {
	i := slices.IndexFunc(x.byLabel, func(l labelIndex) bool { return l.key == r.key })
	if i < 0 {
		i = len(x.byLabel)
		x.byLabel = append(x.byLabel, labelIndex{key: r.key, at: map[string]int{}})
	}
	l := &x.byLabel[i]
	j, ok := l.at[r.values[0]]
	if !ok {
		j = len(l.values)
		l.at[r.values[0]] = j
		l.values = append(l.values, r.values[0])
		l.chosen = append(l.chosen, nil)
	}
	l.chosen[j] = append(l.chosen[j], c)
}

// few: for up to this many values, a comparison with each value is faster than a map.
const few = 8

func (l *labelIndex) candidates(labels map[string]string) []candidate {
	value, there := labels[l.key]
	if !there {
		return nil
	}
	i := -1
	if len(l.values) <= few {
		i = slices.Index(l.values, value)
	} else if at, ok := l.at[value]; ok {
		i = at
	}
	if i < 0 {
		return nil
	}
	return l.chosen[i]
}

// Every returns the indexes of the selectors that choose every cluster. The slice must not be modified.
func (x *Index) Every() []int { return x.every }

// Some sets a bit in marks for each selector that chooses c but not every cluster. The selector with index i has bit
// first+i.
func (x *Index) Some(c *Cluster, marks Marks, first int) {
	if x.byName != nil {
		x.ask(c, x.byName[c.Name], marks, first)
	}
	for i := range x.byLabel {
		x.ask(c, x.byLabel[i].candidates(c.Labels), marks, first)
	}
	for _, i := range x.others {
		if x.selectors[i].Match(c) {
			marks.Set(first + i)
		}
	}
}

func (x *Index) ask(c *Cluster, candidates []candidate, marks Marks, first int) {
	for _, k := range candidates {
		if !k.more || x.selectors[k.selector].Match(c) {
			marks.Set(first + k.selector)
		}
	}
}

// Marks is a set of bits, eight in each byte.
type Marks []byte

// Set sets bit i.
func (m Marks) Set(i int) { m[i/8] |= 1 << (i % 8) }
