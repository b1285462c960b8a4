package placement

import (
	"maps"
	"slices"
)

// Loss is what the objects of a namespace would leave together. Nobody modifies it.
type Loss struct {
	// Leaves are the clusters that all of the objects would leave that are there. Sorted.
	Leaves []string
	// Of is the number of clusters that one of the objects is on.
	Of int
}

// Asked is an object that is placed, and by which policy; nil if it stays where it is.
type Asked struct {
	Policy  *Policy
	Request *Request
}

// Together returns what objects would leave together, each from where it is, were all changes
// approved that wait; nil if they may.
func Together(all []Asked) *Loss {
	before, after := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		for _, name := range missing(a.Request.there(), nil) {
			before[name] = true
		}
		for _, target := range a.stays() {
			after[target.Cluster] = true
		}
		for _, name := range a.Request.Besides {
			after[name] = true
		}
	}
	l := &Loss{Of: len(before)}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !after[name] {
			l.Leaves = append(l.Leaves, name)
		}
	}
	if !LosesMuch(len(l.Leaves), l.Of) {
		return nil
	}
	return l
}

// stays returns where the object would be.
func (a *Asked) stays() []Target {
	there := a.Request.there()
	if a.Policy == nil {
		return there
	}
	d, err := a.Policy.Place(a.Request)
	if err != nil || a.Policy.scaledDown(a.Request, there) {
		return there
	}
	if d.Held != nil {
		return d.Held.approved.Targets
	}
	return d.Targets
}

// takes reports whether one of the clusters is among those that the objects would leave together.
func (l *Loss) takes(leaves []string) bool {
	return l != nil && slices.ContainsFunc(leaves, func(name string) bool {
		_, found := slices.BinarySearch(l.Leaves, name)
		return found
	})
}
