package placement

import (
	"maps"
	"slices"
)

// Loss is the loss of all objects of a namespace together. It must not be modified.
type Loss struct {
	// Leaves are the clusters that would have none of the objects any more. Sorted.
	Leaves []string
	// Of is the number of clusters with at least one of the objects.
	Of int
}

// Asked is a request to place an object, and its policy. A nil policy means that the object stays on its clusters.
type Asked struct {
	Policy  *Policy
	Request *Request
}

// Together returns the loss of all objects together if every waiting change were approved; nil if this loss needs no
// approval.
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

// stays returns the targets of the object after an approval.
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

// takes reports whether the loss includes one of the clusters.
func (l *Loss) takes(leaves []string) bool {
	return l != nil && slices.ContainsFunc(leaves, func(name string) bool {
		_, found := slices.BinarySearch(l.Leaves, name)
		return found
	})
}
