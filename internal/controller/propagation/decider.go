package propagation

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/fair"
	"refract.dev/internal/member"
	"refract.dev/placement"
	"refract.dev/tree"
)

// mostDecisions is how long decisions on the objects of a namespace may take at once before
// they are made after those of all others.
const mostDecisions = time.Second

// clusterDelay is how long at least what else changes about clusters is waited for, before all objects are placed anew. That is done
// not before as much time has passed since the last time as decisions have taken since, or mostClusterDelay (as deciders take turns
// at a processor, their times are divided by their number): clusters that become ready and unready all the time, as many do that are
// overloaded, must not have this replica do nothing else.
const (
	clusterDelay     = 50 * time.Millisecond
	mostClusterDelay = 10 * time.Second
)

// aheadDelay is how long to wait for the FederatedCluster that a record names.
const aheadDelay = 200 * time.Millisecond

// decider is the first station. It takes the key of an object, gathers what the hub and the
// state say of it, has [decideSafely] decide what should be true on every cluster, records that
// in the state, and dispatches it. It reads caches of the hub, and writes nowhere but into the
// state.
type decider struct {
	hub string // UID of the hub.
	log logr.Logger
	// unguarded is whether changes of placements take place without an approval.
	unguarded bool
	shards    Shards
	members   *member.Set
	sources   *sources
	policies  *policies
	records   *records
	state     *state
	// revisions are those that are not the newest, and floor are the labels of a namespace of the hub;
	// known is false until they are.
	revisions *revisions
	keptKinds KeptKinds
	ahead     *ahead
	floor     func(namespace string) (labels map[string]string, known bool)
	unfloored *unfloored
	charges   fair.Charges // What the decisions on a namespace's objects have taken.

	// dispatcher gets what was decided, reviewer what policies are named by other objects now.
	dispatcher *dispatcher
	reviewer   *reviewer

	queue      *workQueue[Key]
	losses     losses
	everything *workQueue[struct{}] // To be decided anew, as clusters have changed.
	edited     atomic.Int64         // How often policies have changed,
	rounds     atomic.Int64         // and how often everything was decided anew.
	last       atomic.Int64         // When everything was, in nanoseconds of the Unix time,
	spent      atomic.Int64         // and what decisions have taken since, in nanoseconds.
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

// add has an object decided about.
func (d *decider) add(key Key, p priority) { d.queue.add(key, p) }

// decideAgain has these decided anew, as something else was.
func (d *decider) decideAgain(keys []Key) {
	for _, key := range keys {
		d.queue.add(key, priorityDependency)
	}
}

// decideEverything has everything decided anew. Only clusters for which that comes to
// something else will hear of it.
func (d *decider) decideEverything(context.Context, struct{}) (reconcile.Result, error) {
	d.rounds.Add(1)
	d.last.Store(time.Now().UnixNano())
	d.spent.Store(0)
	keys, _ := d.sources.all() // Some may wait for this replica to lead.
	for _, key := range slices.Concat(keys, d.state.keys(), d.allOwed()) {
		d.queue.add(key, priorityResync)
	}
	return reconcile.Result{}, nil
}

// clustersChanged has everything decided anew, soon.
func (d *decider) clustersChanged() {
	spent, since := time.Duration(d.spent.Load())/deciders, time.Since(time.Unix(0, d.last.Load()))
	d.everything.addAfter(struct{}{}, max(clusterDelay, min(spent, mostClusterDelay)-max(since, 0))) // Clocks are set back, too.
}

// sourceChanged has an object decided about that came, changed or went; initial says that it
// was there when its type was first listed.
func (d *decider) sourceChanged(key Key, initial bool) {
	p := priorityChanged
	if initial {
		p = priorityResync
	} else {
		d.unfloored.editedIn(key.Namespace)
	}
	d.queue.add(key, priorityOf(key, p))
}

// floorChanged has everything in a namespace decided anew: its objects change in another way.
func (d *decider) floorChanged(namespace string) {
	keys, _ := d.sources.all()
	for _, key := range keys {
		if key.Namespace == namespace {
			d.queue.add(key, priorityDependency)
		}
	}
}

// policyChanged has everything decided anew that names the policy.
func (d *decider) policyChanged(ref tree.Policy) {
	d.state.epoch.Add(1)
	d.edited.Add(1)
	d.unfloored.editedEverywhere()
	d.decideAgain(d.state.usersOf(ref))
	d.reviewer.queue.add(ref, priorityDependency)
}

// priorityOf is p, but for what others need to be there first.
func priorityOf(key Key, p priority) priority {
	if p >= priorityDependency && (key.GroupResource == namespaceResource.GroupResource() || key.GroupResource == crdResource.GroupResource()) {
		return priorityRequired
	}
	return p
}

// ready looks again at what is to be decided about, and reads the key that is needed to report on it.
func (d *decider) ready(ctx context.Context, key Key, src *source, seen bool) (why cause, again time.Duration, err error) {
	if why, again, err = d.lookAgain(ctx, key, src, seen); err == nil && again == 0 {
		err = d.revisions.prepare(ctx, key)
	}
	return why, again, err
}

// decideOne decides about one object, and dispatches what was decided with the priority that the
// decision had: what somebody has just changed overtakes on every member what is looked at once more.
func (d *decider) decideOne(ctx context.Context, key Key, u priority) (reconcile.Result, error) {
	defer func(began time.Time) { d.spent.Add(int64(time.Since(began))) }(time.Now())
	at, naming := d.now(), d.state.names()
	told := d.sources.deletion(key)
	was, seen := d.state.previous(key)
	if !seen {
		was = d.reported(key)
	}
	leaders := d.state.followed(key, was.follows)
	if len(leaders.by)+len(leaders.unknown) > 0 {
		d.sources.want(key)
	}
	d.decideAgain(leaders.unknown)
	src, known := d.sources.get(key)
	if !known {
		return reconcile.Result{RequeueAfter: d.sources.again(key.GroupResource)}, nil
	}
	why, again, err := d.ready(ctx, key, &src, seen)
	if err != nil || again > 0 {
		return reconcile.Result{RequeueAfter: again}, err
	}
	var gov *governance
	names := policyNames(src.object)
	if src.object != nil {
		var obeyed []tree.Policy
		if gov, obeyed, known, err = d.governs(ctx, key, src.object, leaders); err != nil || !known {
			return reconcile.Result{RequeueAfter: rolloutTick}, err
		}
		names = append(names, obeyed...)
	}
	in := &inputs{
		governed:    gov,
		hub:         d.hub,
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
	k, isRecorded := d.records.get(key)
	in.approved, was.asked = k.steering.placement, k.question(&was)
	if !seen || !d.shards.Leads() {
		if knows, err := d.ahead.knows(ctx, d.members, k.placed); err != nil || !knows {
			return reconcile.Result{RequeueAfter: aheadDelay}, err
		}
	}
	if !d.shards.Leads() {
		in.recorded = &previous{placed: k.placed, hash: k.hash, chosenBy: k.chosenBy, cause: causeIn(k.conditions)}
		if src.object != nil && (!isRecorded || k.source != src.object.GetUID()) {
			d.state.none(key)
			d.sources.noted(key, told)
			return reconcile.Result{}, nil // The replica that leads has not placed it yet; its record says when.
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
	d.sources.noted(key, told)
	d.record(key, at, p, was, seen, names, u)
	d.followOn(ctx, key, p)
	return reconcile.Result{RequeueAfter: leaders.again(read != nil && read.failed)}, nil
}

// convertible has an object be read in other versions if a cluster needs one; nil if none does.
func (d *decider) convertible(ctx context.Context, key Key, obj *unstructured.Unstructured, in *inputs) (read *conversions) {
	if len(in.older) > 0 && obj != nil {
		read, in.convert = d.converter(ctx, key, obj)
	}
	return read
}

// goes finds out why an object goes, if it does.
func (d *decider) goes(
	ctx context.Context, key Key, obj *unstructured.Unstructured, p *desiredState, why cause, told *deletion, was *previous, seen bool,
) (err error) {
	if !p.gone {
		return nil
	}
	p.of, p.recalled = was.uid, was.recalled && told == nil
	if p.cause, err = d.whyGone(ctx, key, obj, why, told, was, seen); err == nil {
		d.watchKept(key, obj, p)
	}
	return err
}

// again returns in which time what travels with others is to be decided about again, or what could not be converted;
// zero if not at all.
func (l *followed) again(unconverted bool) time.Duration {
	switch {
	case len(l.unknown) > 0:
		return 200 * time.Millisecond // They are being decided about.
	case unconverted && (l.until == 0 || l.until > convertRetry):
		return convertRetry
	default:
		return l.until
	}
}

// watchKept has an object watched that is there and asks for nothing, if its copies hold data: they wait until the
// object is deleted, and that must be seen.
func (d *decider) watchKept(key Key, obj *unstructured.Unstructured, p *desiredState) {
	if obj != nil && holdingOf(key.GroupResource, p.keeping.Keep, d.keptKinds) != holdsNothing {
		d.sources.want(key)
	}
}

// begun is when a decision began. If a policy has changed when it is recorded, perhaps before the key was found by its policies, it is
// made again. A cluster that changes has everything decided again that was ever decided about: a first decision is made again
// if that has been done meanwhile.
type begun struct{ edited, rounds int64 }

func (d *decider) now() begun { return begun{d.edited.Load(), d.rounds.Load()} }

// outdated reports whether what was decided is to be decided again; first is whether that was never done before.
func (d *decider) outdated(at begun, first bool) bool {
	now := d.now()
	return now.edited != at.edited || first && now.rounds != at.rounds
}

// record records what was decided, and tells all whom it concerns: the members, the objects that follow
// this one, and the policies that it names.
func (d *decider) record(key Key, at begun, p *desiredState, was previous, seen bool, names []tree.Policy, u priority) {
	clusters, policies, followers := d.state.setDesired(key, p, was, names)
	if d.state.desired(key) != p {
		d.queue.add(key, priorityDependency)
		return
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
}

// reported returns what a record says, and what the FederatedClusters say, that was true before a restart.
func (d *decider) reported(key Key) previous { return recall(d.recorded(key), d.members.Owed(key)) }

// recorded is reported, of the record alone.
func (d *decider) recorded(key Key) previous {
	k, found := d.records.get(key)
	if !found || k.status == nil {
		return previous{}
	}
	was := previous{uid: k.source, hash: k.status.PlacementHash, chosenBy: k.status.ChosenBy, warned: k.status.Warnings, cause: causeIn(k.conditions)}
	was.recalled = was.cause != ""
	for i := range k.status.Clusters {
		// A cluster that left while nobody looked has nothing to be waited for.
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
	for _, f := range k.status.Follows {
		was.follows = append(was.follows, Key{
			GroupResource:  schema.ParseGroupResource(f.Resource),
			NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: f.Name},
		})
	}
	return was
}

// lookAgain completes what is known of an object: one that a cache does not have is looked
// for. It returns why nothing is asked for it, or in which time that may be known.
func (d *decider) lookAgain(ctx context.Context, key Key, src *source, seen bool) (found cause, again time.Duration, err error) {
	if src.object == nil {
		var live *unstructured.Unstructured
		if live, found, err = d.sources.look(ctx, key, *src); err != nil {
			return "", 0, err
		}
		if found == "" {
			src.object = live
		} else {
			src.withdrawn = live
		}
		if src.object == nil && found == "" {
			if !seen {
				d.state.none(key) // It may stay like this, as with a type that is not served any more.
			}
			return "", time.Second, nil
		}
	}
	if src.object != nil {
		found = asksNothing(src.object)
	}
	return found, 0, nil
}

// whyGone returns why the copies of an object are to be deleted that is not there, or asks for
// nothing; found is what the hub says of it, seen is whether this process has decided
// about the key before. What was found out once holds until the object is there again:
// namespaces come back, and Propagations are deleted.
func (d *decider) whyGone(
	ctx context.Context, key Key, obj *unstructured.Unstructured, found cause, told *deletion, was *previous, seen bool,
) (cause, error) {
	switch {
	case was.cause == causeDeleted && found == causeWithdrawn:
		// It is there: a former version of Refract said so of what had travelled with deleted objects.
	case found == causeDeleted && (was.cause == causeWithdrawn || was.cause == causeLeader):
		// It was there then, and is being deleted now.
	case was.cause == causeDeleted, was.cause != "" && told == nil:
		return was.cause, nil
	}
	_, recorded := d.records.get(key)
	e := evidence{found: found, watched: told != nil, known: recorded || told != nil || was.uid != ""}
	e.owned = told != nil && told.owned || obj != nil && len(obj.GetOwnerReferences()) > 0
	var err error
	if found == causeWithdrawn {
		e.followed = d.state.deleted(was.follows)
	}
	if found == causeDeleted || found == causeMissing {
		if e.around, err = d.sources.around(ctx, key, told); err != nil {
			return "", err
		}
	}
	if found == causeMissing && told == nil && seen || placement.IsVolume(key.GroupResource) && found != causeWithdrawn && e.known {
		// The hub may have been set back under the eyes of this process, which remembers
		// what the hub does not.
		if e.known, err = d.records.exists(ctx, key); err != nil {
			return "", err
		}
	}
	return e.cause(), nil
}

// neverWas reports whether nothing is known of a key whose object is not there, and
// forgets it then.
func (d *decider) neverWas(key Key) bool {
	if _, reported := d.records.get(key); reported || d.dispatcher.anywhere(key) {
		return false
	}
	d.state.none(key)
	d.unfollow(key)
	d.decideAgain(d.state.dismiss(key))
	return true
}

// unfollow ends that an object is followed that has no label, unless something
// still refers to it: then it may come.
func (d *decider) unfollow(key Key) {
	if !d.state.follows(key) {
		d.sources.unwant(key)
	}
}

// forget drops a key of which nothing is left, if what was decided is still p.
func (d *decider) forget(key Key, p *desiredState) {
	for name := range d.members.Owed(key) {
		if d.shards.Owns(name) {
			d.state.hear(owedCopy{key, name})
		}
	}
	d.decideAgain(d.state.forget(key, p))
	d.unfollow(key)
}
