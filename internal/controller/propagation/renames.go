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
	"refract.dev/internal/member"
	"refract.dev/placement"
)

// A cluster may get another name: what is known under the old name is true of the new one from then on, and its copies are not
// touched. Each replica does this when its watch of FederatedClusters tells it, and the replica that leads writes it into the
// Propagations. So a replica may meet a row of a name that it does not know yet, or knows no more; [decider.ahead] and the
// translation in [records.update] are for that. What could delete copies by mistake is listed in docs/design/0041.

// namedShards are shards that assign the two names of a cluster to one replica, and own no name that was given up.
type namedShards struct {
	Shards

	members *member.Set
}

// Owns implements Shards.
func (s *namedShards) Owns(name string) bool {
	return s.members.Successor(name) == "" && s.Shards.Owns(s.members.Shard(name))
}

// Begin implements Shards.
func (s *namedShards) Begin(ctx context.Context, name string) (_ context.Context, end func(), ok bool) {
	ctx, end, ok = s.Shards.Begin(ctx, s.members.Shard(name))
	if ok && s.members.Successor(name) != "" { // Afterwards: a rename waits for what was begun before it.
		end()
		return ctx, func() {}, false
	}
	return ctx, end, ok
}

// SetMembers implements Shards.
func (s *namedShards) SetMembers(names []string) {
	shards := make([]string, len(names))
	for i, name := range names {
		shards[i] = s.members.Shard(name)
	}
	slices.Sort(shards)
	s.Shards.SetMembers(slices.Compact(shards))
}

// renaming is one change of a name. What it is applied to is not modified.
type renaming struct {
	from, to string
	// rollouts are those that it was applied to: what was one is one still.
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

// names returns sorted names; the same slice if it has nothing to change.
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

// targets returns sorted targets; the same slice if it has nothing to change.
func (n *renaming) targets(all []placement.Target) []placement.Target {
	at, found := find(all, n.from)
	if !found {
		return all
	}
	moved := all[at]
	moved.Cluster = n.to
	rest := without(all, n.from)
	if at, found = find(rest, n.to); found {
		return rest
	}
	return slices.Insert(slices.Clone(rest), at, moved)
}

// keyed returns a map by cluster; the same one if it has nothing to change. Of a cluster that is known under both names, what is
// known under the first is true: nothing was done under the other one.
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

// rollout returns a rollout; the same one if it has nothing to change.
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

// rows returns the rows of a record, sorted; the same slice if it has nothing to change. One that has the new name already says less.
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

// travellers returns what travels with an object; the same map if it has nothing to change. Lists that were one are one still.
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

// governed returns by which rollout an object changes.
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

// desired returns a desired state. It holds until the object is decided about again, and has nothing removed from the cluster
// under the new name that has no place in it.
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

// rename has what is known of a cluster be known under another name, and returns the keys for which that is something. Decisions that
// began before are not recorded any more.
func (s *state) rename(n *renaming) (keys []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.naming++
	for key, e := range s.objects {
		if _, reported := e.statuses[n.from]; reported || e.desired.targets[n.from] != nil {
			keys = append(keys, key)
		} else if _, placed := find(e.previous.placed, n.from); placed {
			keys = append(keys, key)
		}
		s.recount(key.Namespace, e, n, -1)
		e.desired = n.desired(e.desired)
		e.previous.placed = n.targets(e.previous.placed)
		e.followers, e.withheld = n.travellers(e.followers), n.travellers(e.withheld)
		e.statuses = keyed(n, e.statuses)
		if r := e.statuses[n.to]; r.foreign != nil && r.foreign.Name != n.to {
			foreign := *r.foreign
			foreign.Name = n.to
			r.foreign = &foreign
			e.statuses[n.to] = r
		}
		s.recount(key.Namespace, e, n, 1)
		e.count(s.owns)
	}
	return keys
}

// recount counts the copies of an object on a cluster, under both names, that many times more.
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

// names returns how often clusters got other names.
func (s *state) names() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.naming
}

// rename has rows of a cluster be those of another name.
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
		if _, placed := find(k.placed, n.from); placed || now.rollout != k.rollout {
			now.stale = append(slices.Clone(k.stale), n.from)
		}
		r.items[key] = &now
	}
}

// translate has the rows of a record have the names that clusters have now, and returns those that they had.
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

// translateBack has rows have the names that they had before translate, which the replica that leads changes.
func (r *records) translateBack(s *refractv1alpha1.PropagationStatus, stale []string) {
	for _, to := range stale {
		n := newRenaming(r.successor(to), to)
		s.Clusters, s.Rollout = n.rows(s.Clusters), n.rollout(s.Rollout)
	}
}

// moved reports whether no record has a row of the name any more.
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

// renamed has this replica know a cluster by another name. All work under the first one has ended.
func (d *dispatcher) renamed(from, to string) {
	n := newRenaming(from, to)
	d.records.rename(n)
	keys := d.state.rename(n)
	for _, key := range keys {
		d.reporter.later(key)
	}
	d.decider.clustersChanged()
}

// ahead finds out whether a record names a cluster that is not known here yet: watches of records and of FederatedClusters are two, and
// one may be behind the other.
type ahead struct {
	behind func(ctx context.Context, name string) (bool, error)
	now    func() time.Time

	mu   sync.Mutex
	idle map[string]time.Time // Until when nothing more is taken to be known of these clusters.
}

const (
	// mostIdle bounds of how many names it is remembered that nothing more is known, and idleFor for how long.
	mostIdle = 10_000
	idleFor  = 10 * time.Second
)

// knows reports whether all clusters of placed are known here under these names, so that what is decided about them is
// decided with them.
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

// isBehind reports whether more is known of a cluster elsewhere.
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

// forget is told of a cluster that has changed.
func (a *ahead) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.idle, name)
}
