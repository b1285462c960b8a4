package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
	"refract.dev/internal/output"
)

// An object leads a follower, an object that travels with it, if the follower obeys no rollout policy itself: the
// rollout of the leader decides which cluster has which content of both. Such a follower has no rollout of its own, and
// the revisions of the leader name its revisions.

// maxLed is the maximum number of followers that an object leads. Further followers change at once, and the Propagation
// of the object has a warning.
const maxLed = 30

// followerDelay is the delay before a copy that waits for a follower is tried again.
const followerDelay = 50 * time.Millisecond

// led is the leader of a follower, and the rollout of this leader.
type led struct {
	by   Key
	from *refractv1alpha1.RolloutStatus // The rollout when it was read; read-only. Nil if it is not recorded yet.
}

// revisionsIn returns the revisions that a rollout names, the target first.
func revisionsIn(s *refractv1alpha1.RolloutStatus) []*refractv1alpha1.Revision {
	if s == nil {
		return nil
	}
	all := []*refractv1alpha1.Revision{&s.Target, &s.LastGood}
	if s.Superseded != nil {
		all = append(all, s.Superseded)
	}
	return all
}

// followerKey returns the key of a follower.
func followerKey(with Key, f *refractv1alpha1.FollowerRevision) Key {
	return Key{GroupResource: schema.ParseGroupResource(f.Resource), NamespacedName: types.NamespacedName{Namespace: with.Namespace, Name: f.Name}}
}

// entryOf returns the entry of a follower in a revision of its leader; nil if the revision has none.
func entryOf(r *refractv1alpha1.Revision, with, follower Key) *refractv1alpha1.FollowerRevision {
	at := slices.IndexFunc(r.Followers, func(f refractv1alpha1.FollowerRevision) bool { return followerKey(with, &f) == follower })
	if at < 0 {
		return nil
	}
	return &r.Followers[at]
}

// leadsIn reports whether a rollout of an object decides the content of the follower on the clusters.
func leadsIn(s *refractv1alpha1.RolloutStatus, with, follower Key) bool {
	return slices.ContainsFunc(revisionsIn(s), func(r *refractv1alpha1.Revision) bool { return entryOf(r, with, follower) != nil })
}

// followersIn returns the followers that a rollout of an object leads.
func followersIn(s *refractv1alpha1.RolloutStatus, with Key) (keys []Key) {
	for _, r := range revisionsIn(s) {
		for i := range r.Followers {
			if key := followerKey(with, &r.Followers[i]); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// ledBy returns the leader whose rollout includes the follower. If several rollouts include it, the first leader by
// name counts, because the entries of the others are about to be removed. If no rollout includes it, ledBy returns the
// first leader whose rollout is not recorded yet; nil without such a leader.
func (d *decider) ledBy(key Key, with followed) *led {
	leaders := slices.Concat(with.by, with.unknown)
	slices.SortFunc(leaders, compareKeys)
	var unrecorded *led
	for _, leader := range leaders {
		s := d.rolloutFor(leader)
		if leadsIn(s, leader, key) {
			return &led{leader, s}
		}
		if s == nil && unrecorded == nil && d.awaitsRecord(leader) {
			unrecorded = &led{by: leader}
		}
	}
	return unrecorded
}

// awaitsRecord reports whether an object obeys a rollout policy and its rollout is not recorded yet.
func (d *decider) awaitsRecord(leader Key) bool {
	if p := d.state.desired(leader); p != nil && p.dryRun {
		return false // A dry run gets no rollout.
	}
	src, known := d.sources.get(leader)
	if !known || src.object == nil || src.object.GetDeletionTimestamp() != nil {
		return false
	}
	obeys, known := d.obeys(leader, src.object)
	return known && obeys
}

// rolloutFor returns the recorded rollout of an object. If a user has deleted the Propagation, it returns the rollout
// in the memory of this process, because the Propagation is created again from that. It is nil if the object has no
// rollout.
func (d *decider) rolloutFor(leader Key) *refractv1alpha1.RolloutStatus {
	if k, found := d.records.get(leader); found && k.rollout != nil {
		return k.rollout
	}
	if p := d.state.desired(leader); p != nil && p.governed.leads() {
		return p.governed.recorded
	}
	return nil
}

// governedBy returns the governance of a follower that changes with its leader.
func (d *decider) governedBy(ctx context.Context, key Key, obj *unstructured.Unstructured, by *led) (*governance, error) {
	k, _ := d.records.get(key)
	g := &governance{led: by, placed: k.placed, foreign: k.foreign}
	object, policies, err := d.parts(ctx, key, obj)
	switch {
	case errors.Is(err, revision.ErrTooLarge):
		g.blocked, g.hold = reasonRevisionTooLarge, err.Error()
		return g, nil
	case err != nil:
		return nil, err
	}
	g.target = revision.Of(object, obj.GetGeneration(), policies)
	if by.from != nil {
		g.recorded = rolloutOf(by, key, &g.target)
	}
	return g, d.revisions.fill(ctx, key, g)
}

// rolloutOf translates the rollout of a leader into a rollout of its follower. A revision without an entry for the
// follower does not refer to it; the follower is then at its newest content.
func rolloutOf(by *led, key Key, newest *refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
	of := func(r *refractv1alpha1.Revision) refractv1alpha1.Revision {
		if r.Name == rollout.Found {
			return *r
		}
		f := entryOf(r, by.by, key)
		if f == nil {
			return *newest
		}
		return revision.Of(f.Object, f.Generation, f.Policies)
	}
	is := *by.from
	is.Target, is.LastGood = of(&by.from.Target), of(&by.from.LastGood)
	if by.from.Superseded != nil {
		superseded := of(by.from.Superseded)
		is.Superseded = &superseded
	}
	return &is
}

// follow adds the led followers of the object to the target revision, sorted. known is false while one of them is
// unknown. It returns an error if a follower cannot be stored.
func (d *decider) follow(ctx context.Context, key Key, g *governance) (known bool, err error) {
	followers, decided := d.state.followersOf(key)
	if !decided { // After a restart, the Propagation names them.
		followers = nil
		if g.recorded != nil {
			followers = followersIn(&refractv1alpha1.RolloutStatus{Target: g.recorded.Target}, key)
		}
	}
	slices.SortFunc(followers, compareKeys)
	for _, follower := range followers {
		obj, known, err := d.follower(ctx, key, follower, g)
		if err != nil || !known {
			return known, err
		}
		if obj == nil {
			continue
		}
		if len(g.target.Followers) == maxLed {
			g.warnings = append(g.warnings, fmt.Sprintf(
				"more than %d objects travel with it: %s and the later names change at once, not wave by wave", maxLed, called(follower)))
			break
		}
		object, policies, err := d.parts(ctx, follower, obj)
		if errors.Is(err, revision.ErrTooLarge) {
			g.warnings = append(g.warnings, called(follower)+" travels with it and is too large to be stored: it changes at once, not wave by wave")
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%s travels with it: %w", called(follower), err)
		}
		g.target.Followers = append(g.target.Followers, refractv1alpha1.FollowerRevision{
			Resource: follower.GroupResource.String(), Name: follower.Name, Generation: obj.GetGeneration(), Object: object, Policies: policies,
		})
	}
	return true, nil
}

// called returns the name of a follower for messages. It has no namespace, because the namespace is that of the leader.
func called(key Key) string { return key.GroupResource.String() + "/" + key.Name }

// follower returns a follower if the key leads it, and nil if not.
func (d *decider) follower(ctx context.Context, key, follower Key, g *governance) (obj *unstructured.Unstructured, known bool, err error) {
	recorded := g.recorded != nil && leadsIn(g.recorded, key, follower)
	if recorded {
		d.sources.want(follower)
	}
	src, known := d.sources.get(follower)
	switch {
	case !known && recorded && !d.sources.unlisted(follower.GroupResource):
		return nil, false, nil
	case !known:
		return nil, true, nil // The arrival of the follower causes its decision, and then another decision on this key.
	case src.object == nil && recorded:
		live, gone, err := d.sources.look(ctx, follower, src)
		if err != nil {
			return nil, false, err
		}
		if gone == "" {
			src.object = live
		}
	}
	if src.object == nil || src.object.GetDeletionTimestamp() != nil {
		return nil, true, nil
	}
	obeys, known := d.obeys(follower, src.object)
	if !known {
		return nil, false, nil
	}
	keeping, _ := placement.KeepingOf(src.object.GetAnnotations())
	if obeys || keeping.DisableFollowing {
		return nil, true, nil
	}
	for _, other := range d.state.leadersOf(follower) {
		if other != key && leadsIn(d.rolloutFor(other), other, follower) && (!recorded || compareKeys(other, key) < 0) {
			return nil, true, nil
		}
	}
	return src.object, true, nil
}

// obeys reports whether an object obeys a rollout policy itself. known is false while the floor of its namespace is
// unknown.
func (d *decider) obeys(key Key, obj *unstructured.Unstructured) (is, known bool) {
	floor, known := d.floor(key.Namespace)
	if !known {
		return false, false
	}
	named, _, err := rollout.Named(obj.GetLabels(), key.Namespace, floor)
	return err != nil || len(named.All()) > 0, true
}

// naming sets the name of the newest revision. A follower that was added after the rollout began, or that was
// removed, makes no new revision: it comes or goes with the content that refers to it.
func naming(recorded *refractv1alpha1.RolloutStatus, is *refractv1alpha1.Revision) {
	same := func(r *refractv1alpha1.Revision, all bool) bool {
		if !revision.Same(r.Object, r.Policies, is.Object, is.Policies) || (all && len(r.Followers) != len(is.Followers)) {
			return false
		}
		for i := range is.Followers {
			f := &is.Followers[i]
			at := slices.IndexFunc(r.Followers, func(o refractv1alpha1.FollowerRevision) bool { return o.Resource == f.Resource && o.Name == f.Name })
			if at < 0 && all || at >= 0 && !revision.Same(r.Followers[at].Object, r.Followers[at].Policies, f.Object, f.Policies) {
				return false
			}
		}
		return true
	}
	for i, r := range revisionsIn(recorded) {
		if i > 0 && recorded.Phase == refractv1alpha1.RolloutComplete {
			break // The other revisions equalled the target when the rollout began.
		}
		if same(r, i > 0) {
			is.Name = r.Name
			return
		}
	}
	is.Name = revision.Of(is.Object, is.Generation, is.Policies, is.Followers...).Name
}

// followOn enqueues further decisions after the desired state of an object was recorded: on the leader, if it knows
// other content of this follower, and on the object itself, if its led followers have changed.
func (d *decider) followOn(ctx context.Context, key Key, p *desiredState) {
	g := p.governed
	switch {
	case p.gone:
	case g == nil:
		for _, leader := range d.state.leadersOf(key) {
			if l := d.state.desired(leader); l != nil && l.governed.leads() && entryOf(&l.governed.target, leader, key) == nil {
				d.queue.add(leader, priorityDependency)
			}
		}
	case g.led != nil:
		l := d.state.desired(g.led.by)
		if l == nil || l.governed == nil {
			return // The leader will be decided soon.
		}
		f := entryOf(&l.governed.target, g.led.by, key)
		if f == nil || !revision.Same(f.Object, f.Policies, g.target.Object, g.target.Policies) {
			d.queue.add(g.led.by, priorityDependency)
		}
	case g.leads():
		again := *g
		again.target.Followers, again.warnings = nil, nil
		known, err := d.follow(ctx, key, &again)
		if err != nil || !known {
			d.queue.add(key, priorityDependency) // The decision reports the reason.
			return
		}
		same := func(a, b refractv1alpha1.FollowerRevision) bool { return a.Resource == b.Resource && a.Name == b.Name }
		if !slices.EqualFunc(again.target.Followers, g.target.Followers, same) {
			d.queue.add(key, priorityDependency)
		}
	}
}

// leads reports whether the followers of the object change with it.
func (g *governance) leads() bool { return g != nil && g.led == nil && g.blocked == "" }

// followersOf returns the followers of the key. decided is false while they are unknown.
func (s *state) followersOf(key Key) (followers []Key, decided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.desired == nil || e.desired.blocked != "" || e.desired.dryRun {
		return nil, false
	}
	for follower := range e.followers {
		followers = append(followers, follower)
	}
	return followers, true
}

// leadersOf returns the leaders of the key, including those that were known before a restart, sorted.
func (s *state) leadersOf(key Key) (leaders []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for leader := range s.leaders[key] {
		leaders = append(leaders, leader)
	}
	if e := s.objects[key]; e != nil {
		leaders = append(leaders, e.previous.follows...)
	}
	slices.SortFunc(leaders, compareKeys)
	return slices.Compact(leaders)
}

// awaited returns the follower that the copy of an object on a cluster waits for, because the copy of the follower
// there does not have the wanted content yet; nil for none. The copy does not wait for a follower that has failed,
// because the rollout reports the failure.
func (s *state) awaited(key Key, p *desiredState, cluster string) *Key {
	if !p.governed.leads() || p.governed.recorded == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	assigned := rollout.Assigned(p.governed.recorded, cluster)
	for i := range assigned.Followers {
		follower := followerKey(key, &assigned.Followers[i])
		e := s.objects[follower]
		if e == nil || e.desired == nil || !e.desired.governed.isLedBy(key) {
			continue
		}
		if e.desired.governed.led.from != p.governed.recorded {
			return &follower // The follower will be decided soon.
		}
		t, status := e.desired.targets[cluster], e.statuses[cluster]
		if t == nil || t.variant == nil || e.desired.blocked != "" || e.desired.dryRun || status.state == refractv1alpha1.StateFailed {
			continue
		}
		if status.hash != t.variant.hash {
			return &follower
		}
	}
	return nil
}

// isLedBy reports whether the object with the key leads this one.
func (g *governance) isLedBy(key Key) bool { return g != nil && g.led != nil && g.led.by == key }

// tellLeader enqueues a report on the leader of the object, because the rollout of the leader may wait for this
// follower.
func (rep *reporter) tellLeader(p *desiredState) {
	if g := p.governed; g != nil && g.led != nil {
		rep.after(g.led.by, awaitedDelay)
	}
}

// companion is the desired state and the status of a follower that changes with its leader.
type companion struct {
	key      Key
	desired  *desiredState
	statuses map[string]clusterStatus
}

// companions returns the followers that the object leads. hold is the reason if the state of one of them cannot be
// determined. known is false while one of them has not been decided from the recorded rollout; then this follower and
// the object are enqueued.
func (rep *reporter) companions(key Key, p *desiredState) (all []companion, hold string, known bool) {
	for i := range p.governed.target.Followers {
		f := &p.governed.target.Followers[i]
		follower := followerKey(key, f)
		if !leadsIn(p.governed.recorded, key, follower) {
			continue // The follower is new: the recorded rollout must name it first.
		}
		desired, statuses := rep.state.standing(follower)
		switch {
		case desired != nil && desired.blocked != "":
			hold = fmt.Sprintf("%s, which travels with it, waits: %s", called(follower), desired.blockedMessage)
			continue
		case desired != nil && desired.dryRun:
			hold = called(follower) + ", which travels with it, is in a dry run (annotation " + corev1alpha1.DryRunAnnotation + ")"
			continue
		case desired != nil && desired.governed != nil && desired.governed.led != nil && desired.governed.led.by != key:
			hold = fmt.Sprintf("%s, which travels with it, changes with %s", called(follower), called(desired.governed.led.by))
			continue
		case desired == nil || desired.gone || !desired.governed.isLedBy(key) || desired.governed.led.from != p.governed.recorded ||
			!revision.Same(f.Object, f.Policies, desired.governed.target.Object, desired.governed.target.Policies):
			rep.decider.add(follower, priorityDependency)
			rep.decider.add(key, priorityDependency)
			return nil, "", false
		}
		all = append(all, companion{follower, desired, statuses})
	}
	return all, hold, true
}

// join merges the state of the followers on a cluster into the state of their leader there.
func (rep *reporter) join(c *rollout.Cluster, all []companion) {
	own := c.Changes
	for _, with := range all {
		t := with.desired.targets[c.Name]
		if t == nil {
			continue
		}
		if plan := with.desired.rollout; plan != nil {
			c.Changes, c.Differs = c.Changes || plan.changes[c.Name], c.Differs || plan.differs[c.Name]
		}
		row := rep.clusterStatusOf(with.key, with.desired, c.Name, with.statuses)
		rep.find(c, with.desired, &row, with.statuses)
		c.Lost = c.Lost || t.lost()
		if rep.holds(with.key, &row, t) {
			continue
		}
		c.Holds = false
		c.Why = output.Cut(fmt.Sprintf("%s, which travels with it, is not synced: %s", called(with.key), row.Message), maxReadiness)
		if why := rep.refusal(with.desired, &row, with.statuses); why != "" {
			c.Refused = output.Cut(called(with.key)+", which travels with it: "+why, maxReadiness)
		}
	}
	if c.Changes && !own {
		c.ReadySince = time.Time{} // The readiness was that of the earlier content of the followers.
	}
}

// standing returns the desired state of the key, nil if it has none, and a copy of its cluster statuses.
func (s *state) standing(key Key) (p *desiredState, statuses map[string]clusterStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil, nil
	}
	statuses = make(map[string]clusterStatus, len(e.statuses))
	for name := range e.statuses {
		statuses[name] = e.statuses[name]
	}
	return e.desired, statuses
}
