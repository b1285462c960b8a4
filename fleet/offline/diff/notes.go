package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
)

// notes groups objects with the same remark on the same clusters.
type notes struct {
	clusters []cluster
	at       map[string]*note
	all      []*note
}

type note struct {
	Note

	clusters *set // Nil without clusters.
}

// add adds a remark about an object. clusters may be nil.
func (n *notes) add(about render.Object, clusters *set, message string) {
	key := about.Kind + "\x00" + message + "\x00"
	if clusters != nil {
		key += clusters.key()
	}
	there := n.at[key]
	if there == nil {
		there = &note{Note: Note{Message: message}, clusters: clusters}
		n.at[key] = there
		n.all = append(n.all, there)
	}
	if !slices.Contains(there.Objects[max(0, len(there.Objects)-1):], about) { // Objects are added one after the other.
		there.Objects = append(there.Objects, about)
	}
}

// addOfFleet adds a remark that concerns no object.
func (n *notes) addOfFleet(clusters []string, message string) {
	n.all = append(n.all, &note{Note: Note{Clusters: clusters, Message: message}})
}

// result returns the sorted notes.
func (n *notes) result() []Note {
	var out []Note
	for _, one := range n.all {
		if one.clusters != nil {
			one.Clusters = one.clusters.names(n.clusters)
		}
		out = append(out, one.Note)
	}
	slices.SortStableFunc(out, func(a, b Note) int {
		return cmp.Or(
			slices.CompareFunc(a.Objects, b.Objects, func(x, y render.Object) int { return strings.Compare(x.String(), y.String()) }),
			slices.Compare(a.Clusters, b.Clusters), strings.Compare(a.Message, b.Message),
		)
	})
	return out
}

// noteOfHeld adds a note about the clusters that do not get a change because of an annotation of the object.
func (c *comparison) noteOfHeld(j *judge, about render.Object, all []copies) {
	held := newSet(len(c.clusters))
	for i := range all {
		if _, ok := j.fate(&all[i]); ok {
			held.addAll(&all[i].clusters)
		}
	}
	if held.len() > 0 {
		c.notes.add(about, held, fmt.Sprintf("would change; nothing is written while annotation %s is set", j.after.Held))
	}
}

// noteOfObject adds the warnings about an object that exists after the change, except for those that apply before it,
// too.
func (c *comparison) noteOfObject(j *judge, about render.Object, all []copies) {
	if j.after == nil || j.after.Held != "" {
		return
	}
	if j.before != nil && j.before.Held != "" {
		c.notes.add(about, nil, fmt.Sprintf("annotation %s is removed: the copies on the clusters may be older than those compared here", j.before.Held))
	}
	said := map[string]bool{}
	for _, w := range warningsOfWhole(j.before) {
		said[w.Message] = true
	}
	for _, w := range warningsOfWhole(j.after) {
		if !said[w.Message] {
			w.Object = nil
			c.notes.add(about, nil, w.String())
		}
	}
	for i := range all {
		c.noteOfCopies(j, about, &all[i])
	}
}

// warningsOfWhole returns the warnings about an object that do not depend on the cluster.
func warningsOfWhole(o *render.Outcome) []render.Finding {
	if o == nil {
		return nil
	}
	whole := *o
	whole.Variants = nil
	return whole.Warnings()
}

// noteOfCopies adds the new warnings about overrides without effect.
func (c *comparison) noteOfCopies(j *judge, about render.Object, at *copies) {
	if at.is < 0 {
		return
	}
	var before []override.Warning
	if at.was >= 0 {
		before = j.before.Variants[at.was].Warnings
	}
	for _, w := range j.after.Variants[at.is].Warnings {
		if !slices.Contains(before, w) {
			c.notes.add(about, &at.clusters, w.String())
		}
	}
}

// noteOfFleet adds the new warnings about clusters and policies.
func (c *comparison) noteOfFleet(before, after []render.Finding) {
	said := map[string]bool{}
	for i := range before {
		said[before[i].String()] = true
	}
	for _, w := range after {
		if said[w.String()] || (w.Cluster != "" && !c.clusters[c.index[w.Cluster]].shown) {
			continue
		}
		var clusters []string
		if w.Cluster != "" {
			clusters = []string{w.Cluster}
			w.Cluster = ""
		}
		c.notes.addOfFleet(clusters, w.String())
	}
}
