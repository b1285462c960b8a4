package diff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/offline/render"
	"refract.dev/match"
	"refract.dev/placement"
)

// Compare returns what becomes different for clusters that hold what from asks
// for when the hub comes to hold what to says: placed objects stay where
// maxClusters leaves a choice, what a policy changed that is deleted is taken
// back, an object whose placement policy is deleted stays where it is, as does
// what is on a cluster that leaves.
//
// An object of from that cannot be placed or made is taken to be on clusters in a
// form that is not known. One of to leaves what there is alone. An object without
// a propagation label that follows no other goes nowhere, as the controllers have
// it, if it has one or follows one on the other side; otherwise it is compared on
// all clusters.
//
// Where an autoscaler decides on the number of a workload's pods, it is looked up
// among all objects, be they selected or not.
//
// The result does not depend on the order of what is in the sets. It shares parts
// with them; neither is modified. The error is [render.ErrNoClusters] for a set
// without clusters, [*render.UnknownClusterError], or that of options.Each.
func Compare(from, to *manifest.Set, options Options) (*Diff, error) {
	subjects := subjectsOf(from, to, options.Select)
	needed := func(o *manifest.Object) bool { return subjects[o.Identity()].needed() }
	before, err := evaluate(from, &options, nil, needed)
	if err != nil {
		return nil, fmt.Errorf("before the change: %w", err)
	}
	after, err := evaluate(to, &options, before, needed) // As after all approvals.
	if err != nil {
		return nil, fmt.Errorf("after the change: %w", err)
	}
	if options.Each == nil { // Reviews are in a hurry, and the API server of the hub has checked its own.
		before.CheckTypes(from.Objects)
		after.CheckTypes(to.Objects)
	}
	c := newComparison(before, after)
	c.live = from.Live && to.Live
	c.rollouts = newRollouts(from, to)
	if err := c.show(options.Clusters); err != nil {
		return nil, err
	}
	c.autoscalers(subjects, before, after)
	for _, s := range sorted(subjects) {
		if options.Each != nil {
			if err := options.Each(nil); err != nil {
				return nil, err
			}
		}
		was, is := s.sides(before, after)
		c.subject(s, was, is, waiting(was, after.Find(s.id), after))
	}
	c.noteOfFleet(before.Warnings, after.Warnings)
	if options.Each == nil { // Reviews are in a hurry, and ask about references themselves.
		c.noteOfFleet(before.Unasked(), after.Unasked())
	}
	c.noteOfLeft(to)
	return c.diff(), nil
}

// evaluate evaluates one side. Without FederatedClusters it has those named.
func evaluate(set *manifest.Set, o *Options, before *render.Evaluation, compared func(*manifest.Object) bool) (*render.Evaluation, error) {
	options := render.Options{Before: before, Select: compared, Each: o.Each, Approved: before != nil, Whole: o.Each == nil && o.Select == nil}
	if len(set.Clusters) == 0 {
		options.Clusters = o.Clusters
	}
	return render.Evaluate(set, options)
}

// subject is an object on both sides.
type subject struct {
	id       manifest.Identity
	from, to *manifest.Object // Nil where it is not.
	// Whether it asks to be placed.
	asksBefore, asksAfter bool
	selected              bool // On either side.
}

// sides returns what becomes of the object on each side, nil where it is nowhere:
// an object that asks to be placed, or follows another, on one side only is nowhere
// on the other.
func (s *subject) sides(before, after *render.Evaluation) (was, is *render.Outcome) {
	was, is = before.Find(s.id), after.Find(s.id)
	somewhere := func(o *render.Outcome, asks bool) bool { return asks || (o != nil && len(o.Follows) > 0) }
	asked, asks := somewhere(was, s.asksBefore), somewhere(is, s.asksAfter)
	if asks && !asked {
		was = nil
	}
	if asked && !asks {
		is = nil
	}
	return was, is
}

// needed reports whether the object is selected, or says something of others.
func (s *subject) needed() bool { return s.selected || placement.IsAutoscaler(s.id.GroupKind) }

func subjectsOf(from, to *manifest.Set, chosen func(*manifest.Object) bool) map[manifest.Identity]*subject {
	subjects := make(map[manifest.Identity]*subject, len(to.Objects))
	get := func(o *manifest.Object) *subject {
		id := o.Identity()
		s := subjects[id]
		if s == nil {
			s = &subject{id: id}
			subjects[id] = s
		}
		s.selected = s.selected || chosen == nil || chosen(o)
		return s
	}
	for i := range from.Objects {
		s := get(&from.Objects[i])
		s.from, s.asksBefore = &from.Objects[i], asks(&from.Objects[i])
	}
	for i := range to.Objects {
		s := get(&to.Objects[i])
		s.to, s.asksAfter = &to.Objects[i], asks(&to.Objects[i])
	}
	return subjects
}

// asks reports whether the object asks to be placed, be it by a label that is wrong.
func asks(o *manifest.Object) bool {
	_, asks, _, _ := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace()) //nolint:dogsled // The rest is for render to say.
	return asks
}

func sorted(subjects map[manifest.Identity]*subject) []*subject {
	all := make([]*subject, 0, len(subjects))
	for _, s := range subjects {
		if s.selected {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *subject) int { return compareIDs(&a.id, &b.id) })
	return all
}

func compareIDs(a, b *manifest.Identity) int {
	return cmp.Or(
		strings.Compare(a.Kind, b.Kind), strings.Compare(a.Group, b.Group),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
	)
}

// comparison compares object by object.
type comparison struct {
	clusters []cluster // Of both sides, by name.
	index    map[string]int
	indexes  map[*match.Cluster][]int // By the first of an outcome's clusters: outcomes share them.
	was, is  []int                    // What the object at hand has on each cluster; see spread.

	live  bool                          // Whether both sides are a hub.
	least map[manifest.Identity][]int64 // The fewest pods of what is scaled; see copies.

	groups   *groups
	rollouts *rollouts
	notes    *notes
	unknown  []Unknown
}

// cluster is a cluster of either side.
type cluster struct {
	name         string
	joins, stays bool // Joins: it is new. Stays: it is there after the change.
	shown        bool
}

func newComparison(before, after *render.Evaluation) *comparison {
	c := &comparison{index: map[string]int{}, indexes: map[*match.Cluster][]int{}}
	for i := range before.Clusters {
		c.clusters = append(c.clusters, cluster{name: before.Clusters[i].Name, shown: true})
		c.index[before.Clusters[i].Name] = i
	}
	for i := range after.Clusters {
		name := after.Clusters[i].Name
		if at, ok := c.index[name]; ok {
			c.clusters[at].stays = true
			continue
		}
		c.clusters = append(c.clusters, cluster{name: name, joins: true, stays: true, shown: true})
	}
	slices.SortFunc(c.clusters, func(a, b cluster) int { return strings.Compare(a.name, b.name) })
	for i := range c.clusters {
		c.index[c.clusters[i].name] = i
	}
	c.was, c.is = make([]int, len(c.clusters)), make([]int, len(c.clusters))
	c.groups = &groups{clusters: c.clusters, at: map[string]*group{}}
	c.notes = &notes{clusters: c.clusters, at: map[string]*note{}}
	return c
}

// show limits the comparison to some clusters.
func (c *comparison) show(only []string) error {
	if len(only) == 0 {
		return nil
	}
	for i := range c.clusters {
		c.clusters[i].shown = false
	}
	for _, name := range only {
		i, ok := c.index[name]
		if !ok {
			names := make([]string, len(c.clusters))
			for j := range c.clusters {
				names[j] = c.clusters[j].name
			}
			return &render.UnknownClusterError{Name: name, Near: nearest.To(name, names)}
		}
		c.clusters[i].shown = true
	}
	return nil
}

// What an object may have on a cluster besides a variant, which is an index.
const (
	nothing = -1
	unknown = -2 // The object failed before it was known what the clusters get.
)

// spread writes down which variant each cluster has.
func (c *comparison) spread(o *render.Outcome, has []int) {
	for i := range has {
		has[i] = nothing
	}
	if o == nil || len(o.Clusters) == 0 {
		return
	}
	indexes := c.indexesOf(o.Clusters)
	for v := range o.Variants {
		for _, i := range o.Variants[v].Clusters {
			has[indexes[i]] = v
		}
	}
}

// indexesOf returns where clusters of an outcome are among all.
func (c *comparison) indexesOf(clusters []match.Cluster) []int {
	if indexes, ok := c.indexes[&clusters[0]]; ok {
		return indexes
	}
	indexes := make([]int, len(clusters))
	for i := range clusters {
		indexes[i] = c.index[clusters[i].Name]
	}
	c.indexes[&clusters[0]] = indexes
	return indexes
}

// failure returns why the object as a whole cannot be placed or made, nil if it
// can.
func failure(o *render.Outcome) error {
	if o == nil || len(o.Variants) > 0 {
		return nil
	}
	var errs []string
	for _, f := range o.Errors() {
		f.Object = nil // It is named beside it.
		errs = append(errs, f.String())
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}
