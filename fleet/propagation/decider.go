package propagation

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/fair"
	"refract.dev/tree"
)

// mostDecisions is the limit of the decision time charged to a namespace. Objects of a namespace above it are decided
// after all others.
const mostDecisions = time.Second

// The delay between a change of clusters and the next round, which decides all objects again. The delay is at least
// clusterDelay and at most mostClusterDelay. Within these limits, a round waits until the time since the last round is
// at least the time that decisions took since then. Decision times are added up over all deciders and divided by their
// number, because the deciders share a processor. Without the delay, clusters that alternate between ready and unready,
// as overloaded ones do, would use up the decision time of this replica.
const (
	clusterDelay     = 50 * time.Millisecond
	mostClusterDelay = 10 * time.Second
)

// aheadDelay is the delay before a key is retried whose Propagation names an unknown FederatedCluster.
const aheadDelay = 200 * time.Millisecond

// decider is the first station. It takes the key of an object, gathers the inputs from the hub and the state, lets
// [decideSafely] decide what should be true on every cluster, records the result in the state, and dispatches it. It
// reads caches of the hub, and writes only to the state.
type decider struct {
	hub string // UID of the hub.
	log logr.Logger
	// unguarded is whether changes of placements need no approval.
	unguarded bool
	lead      *lead
	members   *member.Set
	sources   *sources
	policies  *policies
	records   *records
	state     *state
	// revisions are the former revisions of objects. floor returns the labels of a namespace of the hub; known is false
	// until the namespaces are known.
	revisions *revisions
	keptKinds KeptKinds
	ahead     *ahead
	floor     func(namespace string) (labels map[string]string, known bool)
	unfloored *unfloored
	charges   fair.Charges // The time that decisions took, by namespace.

	// dispatcher gets the keys with a new desired state. reviewer gets the policies whose users, the objects that name
	// them, have changed.
	dispatcher *dispatcher
	reviewer   *reviewer

	queue      *workQueue[Key]
	losses     losses
	everything *workQueue[struct{}] // Starts a round that decides all objects again, after a change of clusters.
	edited     atomic.Int64         // How many times policies have changed.
	rounds     atomic.Int64         // How many rounds there were.
	last       atomic.Int64         // The start of the last round, as Unix time in nanoseconds.
	spent      atomic.Int64         // The time that decisions took since the last round, in nanoseconds.
}

func newDecider(d *decider) (*decider, error) {
	d.charges = fair.Charges{Most: mostDecisions}
	var err error
	if d.queue, err = newPriorityQueue("decide", deciders, d.log, d.decideOne); err != nil {
		return nil, err
	}
	d.queue.queue.costs = func(key Key) bool { return d.charges.Over(key.Namespace, time.Now()) }
	if d.everything, err = newWorkQueue("placement", 1, d.log, d.decideEverything); err != nil {
		return nil, err
	}
	return d, nil
}

// ready completes the source of an object by lookAgain, and then reads the sealing key if the report on the object
// needs it.
func (d *decider) ready(ctx context.Context, key Key, src *source, seen bool) (why cause, again time.Duration, err error) {
	if why, again, err = d.lookAgain(ctx, key, src, seen); err == nil && again == 0 {
		err = d.revisions.prepare(ctx, key)
	}
	return why, again, err
}

// decideOne decides one object, and dispatches the result with the priority of the decision. So an edit by a user
// overtakes routine checks on every member.
func (d *decider) decideOne(ctx context.Context, key Key, u priority) (reconcile.Result, error) {
	defer func(began time.Time) { d.spent.Add(int64(time.Since(began))) }(time.Now())
	at, naming := d.now(), d.state.names()
	told := d.sources.deletion(key)
	was, seen := d.state.previous(key)
	if !seen {
		was = d.reported(key)
	}
	leaders := d.state.followed(key, was.follows)
	d.prepare(key, &leaders)
	src, known := d.sources.get(key)
	if !known {
		return reconcile.Result{RequeueAfter: d.sources.again(key.GroupResource)}, nil
	}
	if src.object != nil && !d.hear(&leaders) {
		return reconcile.Result{RequeueAfter: rolloutTick}, nil
	}
	why, again, err := d.ready(ctx, key, &src, seen)
	if err != nil || again > 0 {
		return reconcile.Result{RequeueAfter: again}, err
	}
	gov, obeyed, known, err := d.governs(ctx, key, src.object, leaders)
	if err != nil || !known {
		return reconcile.Result{RequeueAfter: rolloutTick}, err
	}
	names := append(policyNames(src.object), obeyed...)
	in := &inputs{
		governed: gov, hub: d.hub,
		clusters:    d.members.Clusters(),
		propagation: d.policies.propagation,
		override:    d.policies.override,
		resource:    d.sources.resource,
		unlisted:    d.sources.unlisted,
		followed:    leaders,
		may:         d.policies.may,
		unguarded:   d.unguarded,
		versions:    src.versions,
		older:       d.members.Older(key.GroupResource),
	}
	read := d.convertible(ctx, key, src.object, in)
	k, _ := d.records.get(key)
	in.approved = k.steering.placement
	if !seen {
		if knows, err := d.ahead.knows(ctx, d.members, k.placed); err != nil || !knows {
			return reconcile.Result{RequeueAfter: aheadDelay}, err
		}
	}
	began := time.Now()
	p, known, err := d.decideWithFloor(ctx, key, src, was, in)
	if err != nil || !known {
		return reconcile.Result{RequeueAfter: rolloutTick}, err
	}
	p.made, p.conversions, p.naming = time.Now(), read, naming
	d.charges.Add(key.Namespace, p.made.Sub(began), p.made)
	if p.gone && !seen && len(was.placed)+len(was.statuses) == 0 && d.neverWas(key) {
		d.sources.noted(key, told)
		return reconcile.Result{}, nil
	}
	if err := d.goes(ctx, key, src.object, p, why, told, &was, seen); err != nil {
		return reconcile.Result{}, err
	}
	if d.record(key, at, p, was, seen, names, u) {
		d.sources.noted(key, told)
		d.followOn(ctx, key, p)
	}
	return reconcile.Result{RequeueAfter: leaders.again(read != nil && read.failed)}, nil
}

// prepare watches an object that travels with other objects, its leaders. It also enqueues the leaders that have not
// been decided.
func (d *decider) prepare(key Key, leaders *followed) {
	if len(leaders.by)+len(leaders.unknown) > 0 {
		d.sources.want(key)
	}
	d.decideAgain(leaders.unknown)
}

// hear adds the annotations of undecided leaders to leaders, for example after a restart. known is false while the type
// of such a leader is still being listed: the leader may have a rollout policy, and its annotations determine which
// copies stay. A type that Refract may not list is skipped.
func (d *decider) hear(leaders *followed) (known bool) {
	for _, leader := range leaders.unknown {
		src, known := d.sources.get(leader)
		switch {
		case !known && !d.sources.unlisted(leader.GroupResource):
			return false
		case src.object != nil:
			keeping, _ := placement.KeepingOf(src.object.GetAnnotations())
			leaders.orphan = max(leaders.orphan, orphaning(keeping.Orphan))
		}
	}
	return true
}

// convertible enables conversions of an object if a cluster needs another version; nil if none does.
func (d *decider) convertible(ctx context.Context, key Key, obj *unstructured.Unstructured, in *inputs) (read *conversions) {
	if len(in.older) > 0 && obj != nil {
		read, in.convert = d.converter(ctx, key, obj)
	}
	return read
}

// goes sets the cause of an object that is gone.
func (d *decider) goes(
	ctx context.Context, key Key, obj *unstructured.Unstructured, p *desiredState, why cause, told *deletion, was *previous, seen bool,
) (err error) {
	if !p.gone {
		if why == causeWithdrawn {
			// No watch by label shows the object. Its copies wait for its deletion, for an approval or for the end of
			// its dry run.
			d.sources.want(key)
		}
		return nil
	}
	switch {
	case told != nil:
		p.of = told.uid
	case obj != nil:
		p.of = obj.GetUID()
	default:
		p.of = was.uid
	}
	if p.cause, err = d.whyGone(ctx, key, obj, why, told, was, seen); err == nil {
		d.watchKept(key, obj, p)
	}
	return err
}

// again returns the delay before the next decision on an object with leaders, or on one that could not be converted;
// zero for none.
func (l *followed) again(unconverted bool) time.Duration {
	switch {
	case len(l.unknown) > 0:
		return 200 * time.Millisecond // The leaders are being decided.
	case unconverted && (l.until == 0 || l.until > convertRetry):
		return convertRetry
	default:
		return l.until
	}
}

// watchKept watches an existing object that does not ask for propagation any more, if its copies hold data: the copies
// wait until the object is deleted, and Refract must see that deletion.
func (d *decider) watchKept(key Key, obj *unstructured.Unstructured, p *desiredState) {
	if obj != nil && holdingOf(key.GroupResource, p.keeping.Keep, d.keptKinds) != holdsNothing {
		d.sources.want(key)
	}
}

// begun is the state of two counters at the start of a decision. A decision is repeated if a policy has changed before
// its result is recorded: the key may not have been among the users of the policy yet. A change of clusters starts a
// round that decides all known objects again, so it repeats only a first decision.
type begun struct{ edited, rounds int64 }

func (d *decider) now() begun { return begun{d.edited.Load(), d.rounds.Load()} }

// outdated reports whether a decision must be repeated. first is whether it is the first decision about its object.
func (d *decider) outdated(at begun, first bool) bool {
	now := d.now()
	return now.edited != at.edited || first && now.rounds != at.rounds
}

// record records a desired state, and enqueues its dependents: the copies on the members, the followers of the object,
// and the policies that it names. It returns false if the decision is outdated and must be made again.
func (d *decider) record(key Key, at begun, p *desiredState, was previous, seen bool, names []tree.Policy, u priority) bool {
	clusters, policies, followers := d.state.setDesired(key, p, was, names)
	slices.SortFunc(followers, compareKeys) // The order of a map differs between runs, and the simulation repeats histories.
	if d.state.desired(key) != p {
		d.queue.add(key, priorityDependency)
		return false
	}
	if !seen {
		d.records.taken(key)
	}
	if d.outdated(at, !seen) {
		d.queue.add(key, priorityDependency)
	}
	for _, follower := range followers {
		d.sources.want(follower)
	}
	d.decideAgain(followers)
	d.dispatcher.dispatch(key, p, clusters, u)
	for _, ref := range policies {
		d.reviewer.later(ref)
	}
	return true
}

// reported returns the state of an object from its Propagation and the FederatedClusters, as of before a restart.
func (d *decider) reported(key Key) previous { return recall(d.recorded(key), d.members.Owed(key)) }

// recorded is [decider.reported] without the FederatedClusters.
func (d *decider) recorded(key Key) previous {
	k, found := d.records.get(key)
	if !found || k.status == nil {
		return previous{}
	}
	return d.remembered(key, &k)
}

// remembered returns the state of an object from a Propagation with a status.
func (d *decider) remembered(key Key, k *known) previous {
	was := previous{
		uid: k.source, hash: k.status.PlacementHash, chosenBy: k.status.ChosenBy, asked: k.asked, warned: k.status.Warnings, cause: causeIn(k.conditions),
	}
	for i := range k.status.Clusters {
		// A cluster that left while no replica watched is skipped.
		if s := &k.status.Clusters[i]; d.members.Known(s.Name) {
			was.statuses = append(was.statuses, *s)
		}
	}
	tried := map[string]bool{}
	for i := range k.status.Clusters {
		tried[k.status.Clusters[i].Name] = isTried(&k.status.Clusters[i])
	}
	was.placed = slices.DeleteFunc(placedIn(k.status), func(t placement.Target) bool { return tried[t.Cluster] || !d.members.Known(t.Cluster) })
	for _, refs := range [][]refractv1alpha1.PolicyReference{k.status.OverridePolicies, k.status.DeletedPolicies} {
		for _, ref := range refs {
			was.rendered = append(was.rendered, tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	was.follows = followedBy(key, k.status.Follows)
	return was
}

// unfollow stops the watch of an object without a label. While another object refers to it, the watch continues,
// because the object may appear later.
func (d *decider) unfollow(key Key) {
	if !d.state.follows(key) {
		d.sources.unwant(key)
	}
}

// forget drops the key of an object without copies, unless another desired state than p was recorded meanwhile.
func (d *decider) forget(key Key, p *desiredState) {
	for name := range d.members.Owed(key) {
		d.state.hear(owedCopy{key, name})
	}
	followers, policies := d.state.forget(key, p)
	d.decideAgain(followers)
	for _, ref := range policies {
		d.reviewer.later(ref) // The policy has one user less.
	}
	d.unfollow(key)
}
