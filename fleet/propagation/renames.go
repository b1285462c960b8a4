package propagation

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

// A cluster may be renamed: all knowledge about the old name then applies to the new one, and its copies stay
// unchanged. Each replica does this when its watch reports the FederatedClusters, and the leading replica writes the
// new name into the Propagations. So a replica may find a row with a name that it does not know yet, or no longer;
// [decider.ahead] and the translation in [records.update] handle that. docs/design/members.md lists the mistakes that
// could delete copies.

// renaming is one change of the name of a cluster. Its methods do not modify their arguments.
type renaming struct {
	from, to string
	// rollouts has the translated rollouts, so that equal pointers stay equal.
	rollouts map[*refractv1alpha1.RolloutStatus]*refractv1alpha1.RolloutStatus
}

func newRenaming(from, to string) *renaming {
	return &renaming{from, to, map[*refractv1alpha1.RolloutStatus]*refractv1alpha1.RolloutStatus{}}
}

func (n *renaming) name(name string) string {
	if name == n.from {
		return n.to
	}
	return name
}

// names renames in a sorted list; it returns the same slice if the list does not have the name.
func (n *renaming) names(all []string) []string {
	if !slices.Contains(all, n.from) {
		return all
	}
	now := make([]string, len(all))
	for i, name := range all {
		now[i] = n.name(name)
	}
	slices.Sort(now)
	return slices.Compact(now)
}

// targets renames in sorted targets; it returns the same slice if they do not have the name.
func (n *renaming) targets(all []placement.Target) []placement.Target {
	at, found := placement.Find(all, n.from)
	if !found {
		return all
	}
	moved := all[at]
	moved.Cluster = n.to
	rest := without(all, n.from)
	if at, found = placement.Find(rest, n.to); found {
		return rest
	}
	return slices.Insert(slices.Clone(rest), at, moved)
}

// keyed renames in a map by cluster; it returns the same map if it does not have the name. If the map has both names,
// it keeps the value of the former name, because no work was done under the new name yet.
func keyed[V any](n *renaming, all map[string]V) map[string]V {
	was, found := all[n.from]
	if !found {
		return all
	}
	now := maps.Clone(all)
	delete(now, n.from)
	now[n.to] = was
	return now
}

// rollout renames in a rollout; it returns the same pointer if the rollout does not have the name.
func (n *renaming) rollout(r *refractv1alpha1.RolloutStatus) *refractv1alpha1.RolloutStatus {
	if r == nil {
		return nil
	}
	if now, done := n.rollouts[r]; done {
		return now
	}
	now := r
	if n.inRollout(r) {
		now = r.DeepCopy()
		for i := range now.Current {
			now.Current[i].Name = n.name(now.Current[i].Name)
		}
		for i := range now.Failed {
			now.Failed[i].Name = n.name(now.Failed[i].Name)
		}
		slices.SortStableFunc(now.Current, func(a, b refractv1alpha1.ReleasedCluster) int { return strings.Compare(a.Name, b.Name) })
		slices.SortStableFunc(now.Failed, func(a, b refractv1alpha1.FailedCluster) int { return strings.Compare(a.Name, b.Name) })
		for _, list := range []*[]string{&now.Done, &now.OnSuperseded, &now.Reverting, &now.Offline} {
			*list = n.names(*list)
		}
	}
	n.rollouts[r] = now
	return now
}

func (n *renaming) inRollout(r *refractv1alpha1.RolloutStatus) bool {
	return slices.ContainsFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return c.Name == n.from }) ||
		slices.ContainsFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return c.Name == n.from }) ||
		slices.ContainsFunc([][]string{r.Done, r.OnSuperseded, r.Reverting, r.Offline}, func(l []string) bool { return slices.Contains(l, n.from) })
}

// rows renames in the rows of a Propagation, and sorts them; it returns the same slice if they do not have the name. A
// row that has the new name already is dropped, because it has less information.
func (n *renaming) rows(all []refractv1alpha1.ClusterStatus) []refractv1alpha1.ClusterStatus {
	named := func(name string) func(refractv1alpha1.ClusterStatus) bool {
		return func(s refractv1alpha1.ClusterStatus) bool { return s.Name == name }
	}
	at := slices.IndexFunc(all, named(n.from))
	if at < 0 {
		return all
	}
	now := slices.Clone(all)
	now[at].Name = n.to
	if other := slices.IndexFunc(all, named(n.to)); other >= 0 {
		now = slices.Delete(now, other, other+1)
	}
	slices.SortFunc(now, func(a, b refractv1alpha1.ClusterStatus) int { return strings.Compare(a.Name, b.Name) })
	return now
}

// travellers renames in a map of followers; it returns the same map if it does not have the name. Keys that share a
// list still share one.
func (n *renaming) travellers(all map[Key][]string) map[Key][]string {
	var now map[Key][]string
	lists := map[*string][]string{}
	for key, list := range all {
		if len(list) == 0 || !slices.Contains(list, n.from) {
			continue
		}
		if now == nil {
			now = maps.Clone(all)
		}
		if lists[&list[0]] == nil {
			lists[&list[0]] = n.names(list)
		}
		now[key] = lists[&list[0]]
	}
	if now == nil {
		return all
	}
	return now
}

// governed renames in the governance of an object.
func (n *renaming) governed(g *governance) *governance {
	if g == nil {
		return nil
	}
	now := *g
	now.recorded = n.rollout(g.recorded)
	if g.led != nil {
		l := *g.led
		l.from = n.rollout(g.led.from)
		now.led = &l
	}
	return &now
}

// desired renames in a desired state. The result applies until the next decision. The considered clusters (among) keep
// the former name, so a copy outside the placement is not removed from the cluster under the new name before that
// decision.
func (n *renaming) desired(p *desiredState) *desiredState {
	now := *p
	now.targets = keyed(n, p.targets)
	now.placed, now.previous.placed = n.targets(p.placed), n.targets(p.previous.placed)
	now.followers, now.withheld = n.travellers(p.followers), n.travellers(p.withheld)
	now.governed = n.governed(p.governed)
	if p.rollout != nil {
		now.rollout = &rolloutPlan{changes: keyed(n, p.rollout.changes), differs: keyed(n, p.rollout.differs)}
	}
	return &now
}

// rename renames a cluster in the state. It returns the keys with a copy on the cluster, present or wanted. The
// results of decisions that began before are not recorded any more.
func (s *state) rename(n *renaming) (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.naming++
	for key, e := range s.objects {
		if _, reported := e.statuses[n.from]; reported || e.desired.targets[n.from] != nil {
			keys = append(keys, key)
		} else if _, placed := placement.Find(e.previous.placed, n.from); placed {
			keys = append(keys, key)
		}
		s.recount(key.Namespace, e, n, -1)
		e.desired = n.desired(e.desired)
		e.previous.placed = n.targets(e.previous.placed)
		e.followers, e.withheld = n.travellers(e.followers), n.travellers(e.withheld)
		e.statuses = keyed(n, e.statuses)
		s.recount(key.Namespace, e, n, 1)
		e.count()
	}
	for c := range s.heard {
		if c.cluster == n.from {
			delete(s.heard, c)
			s.heard[owedCopy{c.Key, n.to}] = true
		}
	}
	return keys
}

// recount adds times to the counts of the copies of an object under both names of a cluster. times is 1 or -1.
func (s *state) recount(namespace string, e *objectState, n *renaming, times int) {
	for _, name := range []string{n.from, n.to} {
		_, reported := e.statuses[name]
		switch {
		case reported:
			s.copies.count(namespace, name, copyCount{reported: times})
		case e.desired.targets[name] != nil:
			s.copies.count(namespace, name, copyCount{missing: times})
		}
	}
}

// names returns how many times clusters were renamed or have left so far.
func (s *state) names() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.naming
}

// rename renames a cluster in the Propagations.
func (r *records) rename(n *renaming) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.items {
		now := *k
		now.placed, now.rollout = n.targets(k.placed), n.rollout(k.rollout)
		if k.status != nil {
			status := *k.status
			status.Clusters, status.Rollout = n.rows(k.status.Clusters), now.rollout
			now.status = &status
		}
		if _, placed := placement.Find(k.placed, n.from); placed || now.rollout != k.rollout {
			now.stale = append(slices.Clone(k.stale), n.from)
		}
		r.items[key] = &now
	}
}

// translate renames the rows of a Propagation to the present names of their clusters. It returns the former names.
func (r *records) translate(s *refractv1alpha1.PropagationStatus) (stale []string) {
	if r.successor == nil {
		return nil
	}
	for i := range s.Clusters {
		if r.successor(s.Clusters[i].Name) != "" {
			stale = append(stale, s.Clusters[i].Name)
		}
	}
	for _, from := range stale {
		n := newRenaming(from, r.successor(from))
		s.Clusters, s.Rollout = n.rows(s.Clusters), n.rollout(s.Rollout)
	}
	return stale
}

// moved reports whether no row of a Propagation has this former name any more.
func (r *records) moved(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, k := range r.items {
		if slices.Contains(k.stale, name) {
			return false
		}
	}
	return true
}

// renamed renames a cluster in this replica. All work under the former name has ended.
func (d *dispatcher) renamed(from, to string) {
	n := newRenaming(from, to)
	d.records.rename(n)
	keys := d.state.rename(n)
	for _, key := range keys {
		d.reporter.later(key)
	}
	d.decider.clustersChanged()
}

// ahead finds out whether a Propagation names a cluster that this replica does not know yet. Propagations and
// FederatedClusters have separate watches, and one may be behind the other.
type ahead struct {
	behind func(ctx context.Context, name string) (bool, error)
	now    func() time.Time

	mu   sync.Mutex
	idle map[string]time.Time // The times until which the watch of these clusters counts as current.
}

const (
	// mostIdle bounds the clusters in idle, and idleFor is the time that they stay there.
	mostIdle = 10_000
	idleFor  = 10 * time.Second
)

// knows reports whether this replica knows all clusters of placed under these names, so that its decisions include
// them.
func (a *ahead) knows(ctx context.Context, members *member.Set, placed []placement.Target) (bool, error) {
	clusters := members.Clusters()
	for i := range placed {
		name := placed[i].Cluster
		_, served := slices.BinarySearchFunc(clusters, name, func(c placement.Cluster, name string) int { return cmp.Compare(c.Name, name) })
		switch {
		case served:
		case members.Known(name) && !members.Hidden(name), members.Successor(name) != "":
		default:
			if behind, err := a.isBehind(ctx, name); behind || err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// isBehind reports whether this replica knows less about a cluster than the hub does.
func (a *ahead) isBehind(ctx context.Context, name string) (bool, error) {
	a.mu.Lock()
	idle := a.now().Before(a.idle[name])
	a.mu.Unlock()
	if idle {
		return false, nil
	}
	if behind, err := a.behind(ctx, name); behind || err != nil {
		return behind, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.idle) >= mostIdle {
		clear(a.idle)
	}
	a.idle[name] = a.now().Add(idleFor)
	return false, nil
}

// forget removes a cluster that has changed from idle.
func (a *ahead) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.idle, name)
}
