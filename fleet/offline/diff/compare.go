package diff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
)

// Compare returns the differences on the clusters if the objects on the hub change from one set to another. The
// clusters are assumed to have the copies that the first set describes. The change has the same effect as with the
// controllers:
//
//   - Where maxClusters leaves a choice, objects stay on their clusters.
//   - The changes of a deleted override policy are rolled back.
//   - An object whose propagation policy is deleted stays on its clusters.
//   - Copies on a cluster that leaves the fleet stay there.
//
// If an object of the first set cannot be placed or rendered, its copies are assumed to exist with unknown content. If
// an object of the second set cannot be placed or rendered, the clusters keep their copies. An object is placed if it
// has a propagation label, or travels with another object. If this is so in only one of the sets, the object goes to no
// cluster in the other set, as with the controllers. If it is so in neither, the object is compared on all clusters.
//
// Autoscalers are found among all objects, whether or not they are selected.
//
// The result does not depend on the order within the sets. The result shares parts with the sets, and modifies neither.
// The error is [render.ErrNoClusters] for a set without clusters, [*render.UnknownClusterError], or the error of
// options.Each.
func Compare(from, to *manifest.Set, options Options) (*Diff, error) {
	subjects := subjectsOf(from, to, options.Select)
	needed := func(o *manifest.Object) bool { return subjects[o.Identity()].needed() }
	before, err := evaluate(from, &options, nil, needed)
	if err != nil {
		return nil, fmt.Errorf("before the change: %w", err)
	}
	after, err := evaluate(to, &options, before, needed) // With all pending changes of placements approved.
	if err != nil {
		return nil, fmt.Errorf("after the change: %w", err)
	}
	if options.Each == nil { // Reviews (with Each) have little time, and the API server has checked the hub's objects.
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
	if options.Each == nil { // Reviews have little time, and check references themselves.
		c.noteOfFleet(before.Unasked(), after.Unasked())
	}
	c.noteOfLeft(to)
	return c.diff(), nil
}

// evaluate evaluates one side. If the set has no FederatedClusters, the clusters of the options are used.
func evaluate(set *manifest.Set, o *Options, before *render.Evaluation, compared func(*manifest.Object) bool) (*render.Evaluation, error) {
	options := render.Options{Before: before, Select: compared, Each: o.Each, Approved: before != nil, Whole: o.Each == nil && o.Select == nil}
	if len(set.Clusters) == 0 {
		options.Clusters = o.Clusters
	}
	return render.Evaluate(set, options)
}

// subject is an object of one or both sides.
type subject struct {
	id       manifest.Identity
	from, to *manifest.Object // Nil on a side without the object.
	// Whether the object asks to be placed.
	asksBefore, asksAfter bool
	selected              bool // On either side.
}

// sides returns the outcome of the object before and after the change, or nil where the object goes to no cluster. If
// the object asks to be placed or follows another object on only one side, it goes to no cluster on the other side. The
// exception is an annotation that keeps its copies after the change.
func (s *subject) sides(before, after *render.Evaluation) (was, is *render.Outcome) {
	was, is = before.Find(s.id), after.Find(s.id)
	somewhere := func(o *render.Outcome, asks bool) bool { return asks || (o != nil && len(o.Follows) > 0) }
	asked, asks := somewhere(was, s.asksBefore), somewhere(is, s.asksAfter)
	if asks && !asked {
		was = nil
	}
	if asked && !asks && (is == nil || is.Held == "" || is.Gone != "") {
		is = nil
	}
	return was, is
}

// needed reports whether the object must be evaluated: it is selected, or it is an autoscaler of other objects.
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

// asks reports whether the object has a propagation label, even an invalid one.
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

// comparison compares two evaluations object by object.
type comparison struct {
	clusters []cluster // The clusters of both sides, by name.
	index    map[string]int
	indexes  map[*match.Cluster][]int // The indexes of an outcome's clusters, by its first cluster: outcomes share their clusters.
	was, is  []int                    // The variants of the current object on each cluster; see spread.

	live  bool                          // Whether both sides are states of a hub.
	least map[manifest.Identity][]int64 // The minimum number of pods of scaled workloads; see copies.

	groups   *groups
	rollouts *rollouts
	notes    *notes
	unknown  []Unknown
}

// cluster is a cluster of either side.
type cluster struct {
	name         string
	joins, stays bool // joins: the cluster is new. stays: the cluster exists after the change.
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

// Values in place of the index of a variant.
const (
	nothing = -1
	unknown = -2 // The object failed before the contents for the clusters were known.
)

// spread stores for each cluster the index of its variant.
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

// indexesOf returns the indexes of an outcome's clusters among all clusters.
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

// failure returns the error if the object as a whole cannot be placed or rendered, else nil.
func failure(o *render.Outcome) error {
	if o == nil || len(o.Variants) > 0 {
		return nil
	}
	var errs []string
	for _, f := range o.Errors() {
		f.Object = nil // The message is shown next to the object.
		errs = append(errs, f.String())
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}
