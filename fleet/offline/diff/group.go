package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
)

// set is a set of clusters, one bit for each.
type set struct{ words []uint64 }

func newSet(n int) *set { return &set{words: make([]uint64, (n+63)/64)} }

func (s *set) add(i int) { s.words[i/64] |= 1 << (i % 64) }

func (s *set) addAll(o *set) {
	for i := range s.words {
		s.words[i] |= o.words[i]
	}
}

func (s *set) has(i int) bool { return s.words[i/64]&(1<<(i%64)) != 0 }

func (s *set) len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// key returns the same text for equal sets.
func (s *set) key() string { return fmt.Sprintf("%x", s.words) }

// names returns the names of the clusters in the set, sorted.
func (s *set) names(of []cluster) []string {
	names := make([]string, 0, s.len())
	for i := range of {
		if s.has(i) {
			names = append(names, of[i].name)
		}
	}
	return names
}

// groups collects copies with the same difference in two steps: first the copies of one object on several clusters,
// then (in flush) objects with the same difference on the same clusters.
type groups struct {
	clusters []cluster
	at       map[string]*group
	of       *subject // The current object.
	pending  []*group // The groups of the current object.
}

type group struct {
	Group

	key      string
	variant  int
	clusters set
	first    *subject
}

// add adds copies of an object. The copies of one object must be added consecutively.
func (g *groups) add(s *subject, about render.Object, clusters *set, f fate) {
	if g.of != s {
		g.flush()
		g.of = s
	}
	key := f.key(s)
	rolls := f.rolls.times(clusters.len())
	for _, p := range g.pending {
		if p.key == key && p.variant == f.variant {
			p.clusters.addAll(clusters)
			p.Rolls = p.Rolls.plus(rolls)
			return
		}
	}
	all := *newSet(len(g.clusters))
	all.addAll(clusters)
	g.pending = append(g.pending, &group{
		Group: Group{
			Status: f.status, Reason: f.reason, Changes: f.changes, Impacts: f.impacts, Rolls: rolls,
			Objects: []Object{{Object: about, Before: f.before, After: f.after}},
		},
		key: key, variant: f.variant, clusters: all, first: s,
	})
}

func (g *groups) flush() {
	for _, p := range g.pending {
		key := p.key + p.clusters.key()
		if there := g.at[key]; there != nil {
			there.Objects = append(there.Objects, p.Objects...)
			there.Rolls = there.Rolls.plus(p.Rolls)
			continue
		}
		g.at[key] = p
	}
	g.pending = nil
}

// key returns the same text for objects of one kind with the same difference.
func (f *fate) key(s *subject) string {
	data, err := json.Marshal([]any{s.id.GroupKind, f.status, f.reason, f.changes, f.impacts})
	if err != nil {
		data = fmt.Append(nil, s.id, f.changes) // If the content has no JSON form, the key is unique to the object.
	}
	return string(data)
}

// times returns the sum for n copies.
func (r Rolls) times(n int) Rolls {
	return Rolls{Workloads: r.Workloads * n, Pods: r.Pods * int64(n), DaemonSets: r.DaemonSets * n, Autoscaled: r.Autoscaled * n}
}

func (r Rolls) plus(o Rolls) Rolls {
	return Rolls{
		Workloads: r.Workloads + o.Workloads, Pods: r.Pods + o.Pods,
		DaemonSets: r.DaemonSets + o.DaemonSets, Autoscaled: r.Autoscaled + o.Autoscaled,
	}
}

// order is the order of groups.
var order = map[Status]int{Deleted: 0, Failing: 1, Changed: 2, Recovered: 3, Created: 4}

// result returns the sorted groups and their totals.
func (g *groups) result() ([]Group, Totals) {
	g.flush()
	all := make([]*group, 0, len(g.at))
	for _, one := range g.at {
		one.Clusters = one.clusters.names(g.clusters)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *group) int {
		return cmp.Or(
			cmp.Compare(order[a.Status], order[b.Status]), compareIDs(&a.first.id, &b.first.id),
			slices.Compare(a.Clusters, b.Clusters), strings.Compare(a.key, b.key),
		)
	})
	var out []Group
	var totals Totals
	objects, clusters := map[render.Object]bool{}, *newSet(len(g.clusters))
	for _, one := range all {
		out = append(out, one.Group)
		totals.add(&one.Group)
		clusters.addAll(&one.clusters)
		for i := range one.Objects {
			objects[one.Objects[i].Object] = true
		}
	}
	totals.Objects, totals.Clusters = len(objects), clusters.len()
	return out, totals
}

func (t *Totals) add(g *Group) {
	copies := len(g.Objects) * max(len(g.Clusters), 1)
	switch g.Status {
	case Changed:
		t.Changed += copies
	case Created:
		t.Created += copies
	case Deleted:
		t.Deleted += copies
	case Failing:
		t.Failing += copies
	case Recovered:
		t.Recovered += copies
	}
	t.Rolls = t.Rolls.plus(g.Rolls)
	if g.has(Approving) {
		t.AwaitingApproval += copies
	}
	switch {
	case g.has(Refused):
		t.Refused += copies
	case g.has(ScalingUp):
		t.ScaledUp += copies
	case g.has(ScalingDown):
		t.ScaledDown += copies
	}
}

func (g *Group) has(e Effect) bool {
	return slices.ContainsFunc(g.Impacts, func(i Impact) bool { return i.Effect == e })
}

func (c *comparison) diff() *Diff {
	groups, totals := c.groups.result()
	totals.Unknown = len(c.unknown)
	return &Diff{Totals: totals, Groups: groups, Rollouts: c.goingOut(), Notes: c.notes.result(), Unknown: c.unknown}
}

// reference names an object, with its API version after the change.
func reference(s *subject) render.Object {
	o := s.to
	if o == nil {
		o = s.from
	}
	return objectOf(o)
}

func objectOf(o *manifest.Object) render.Object {
	return render.Object{
		APIVersion: o.Content.GetAPIVersion(), Kind: o.Content.GetKind(),
		Namespace: o.Content.GetNamespace(), Name: o.Content.GetName(),
	}
}
