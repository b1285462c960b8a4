package inject

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Set is the set of policies of one namespace. It is immutable and safe for concurrent use. The nil Set has no
// policies.
type Set struct {
	policies []*Policy // In the order of application.
	// The fields below have indexes into policies. byLabel has the policies whose selectors require one of some values
	// of a key. byKey has the policies whose selectors require only that a key exists. rest has all other policies. A
	// pod has one value for each key, so it finds a policy at most once.
	byLabel map[label][]int
	byKey   map[string][]int
	rest    []int
}

// label is one label of a pod.
type label struct{ key, value string }

// NewSet returns the set of the given policies, in any order. All must be of one namespace. A policy without items has
// no effect on pods; for example, its Service may have no annotations yet. NewSet retains the policies but not the
// slice.
func NewSet(policies ...*Policy) *Set {
	s := &Set{policies: slices.Clone(policies), byLabel: map[label][]int{}, byKey: map[string][]int{}}
	slices.SortStableFunc(s.policies, Compare)
	for i, p := range s.policies {
		if !p.empty() {
			s.file(i, p.selector)
		}
	}
	return s
}

// empty reports whether the policy injects nothing.
func (p *Policy) empty() bool {
	return len(p.env)+len(p.envFrom)+len(p.volumes)+len(p.mounts) == 0
}

// file adds a policy to byLabel, byKey or rest. It prefers a requirement for values to a requirement for a key.
func (s *Set) file(i int, selector labels.Selector) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return
	}
	key := ""
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			for value := range r.Values() {
				at := label{key: r.Key(), value: value}
				s.byLabel[at] = append(s.byLabel[at], i)
			}
			return
		case selection.Exists:
			key = r.Key()
		default: // The other operators also match pods without the label.
		}
	}
	if key != "" {
		s.byKey[key] = append(s.byKey[key], i)
		return
	}
	s.rest = append(s.rest, i)
}

// Policies returns the policies in the order of application.
func (s *Set) Policies() []*Policy {
	if s == nil {
		return nil
	}
	return slices.Clone(s.policies)
}

// matching returns the policies whose selectors match a pod with these labels, in the order of application.
func (s *Set) matching(of podLabels) []*Policy {
	if s == nil || len(s.policies) == 0 {
		return nil
	}
	var space [32]int
	candidates := space[:0]
	candidates = append(candidates, s.rest...)
	for _, l := range of {
		candidates = append(candidates, s.byLabel[l]...)
		candidates = append(candidates, s.byKey[l.key]...)
	}
	slices.Sort(candidates)
	var chosen []*Policy
	for _, i := range slices.Compact(candidates) { // A label that occurs twice in the JSON finds its policies twice.
		if p := s.policies[i]; p.selector.Matches(of) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

// podLabels are the labels of a pod. The last value of a duplicate key counts.
type podLabels []label

var _ labels.Labels = podLabels(nil)

// Has implements [labels.Labels].
func (p podLabels) Has(key string) bool {
	_, has := p.Lookup(key)
	return has
}

// Get implements [labels.Labels].
func (p podLabels) Get(key string) string {
	value, _ := p.Lookup(key)
	return value
}

// Lookup implements [labels.Labels].
func (p podLabels) Lookup(key string) (string, bool) {
	for _, label := range slices.Backward(p) {
		if label.key == key {
			return label.value, true
		}
	}
	return "", false
}
