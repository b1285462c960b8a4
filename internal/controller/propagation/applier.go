package propagation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/output"
	"refract.dev/internal/rescue"
	"refract.dev/placement"
)

// A write that failed is tried again after these times, doubling from the first
// to the last.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// maxMessage bounds what a status says, in bytes.
const maxMessage = 1000

// soonRetry bounds the time between attempts at what may be possible soon, without
// an event that says so: a cluster that fails, objects of a type that still go.
const soonRetry = 5 * time.Second

// pendingDelay is how long it takes until a cluster says what is held back on it, or is not any more: more
// may come to it or go, and each time the token changes, which somebody may just be reading.
const pendingDelay = 1500 * time.Millisecond

// unknownDelay is how long to wait for a decision that was made before a cluster was known under its name.
const unknownDelay = 500 * time.Millisecond

// notOurs is how long to wait while it is not certain that the member is this
// replica's.
const notOurs = 500 * time.Millisecond

// stations is what an applier says to the stations before and after it.
type stations interface {
	// decide has a key decided anew.
	decide(key Key, p priority)
	// record records what came of a key, unless the member has another applier by now. It
	// returns whether all clusters have reported on what was decided last, and whether a
	// report is due already that will say so.
	record(a *applier, key Key, s clusterStatus) (settled, due, ok bool)
	// reportAfter has the key reported on after the time, or earlier.
	reportAfter(key Key, d time.Duration)
	// reportLater has it reported on when there is likely to be more to say.
	reportLater(key Key)
	// pend has the cluster say what its guard holds back now.
	pend(cluster string)
}

// cluster is what the fleet knows of a member that an applier has to know.
type cluster interface {
	// Leaving reports whether the cluster is leaving the fleet.
	Leaving(name string) bool
	// Approved is the token of removals that somebody has approved.
	Approved(name string) string
	// ReleasesKept reports whether a cluster that leaves gets the copies that hold data.
	ReleasesKept(name string) bool
}

// applier is the second station, one for each member: it makes true there what was decided. It
// takes the key of an object, compares what was decided with what is known of the copy, and writes or
// removes that.
type applier struct {
	hub      string // UID of the hub.
	log      logr.Logger
	member   *member.Member
	cluster  cluster
	state    *state
	stations stations
	// begin begins what is done on the member, unless it is not this replica's.
	begin func(ctx context.Context, member string) (_ context.Context, end func(), ok bool)

	queue       *workQueue[Key]
	pace        pace // Of the writes, by the lock of the queue.
	namespaces  *namespaces
	guard       *guard
	keptKinds   KeptKinds
	renderer    *renderer
	large       largeWrites
	spare       *spare
	retries     workqueue.TypedRateLimiter[Key]
	unanswered  unanswered
	held        held
	unlisted    unlisted
	gates       *gates
	failing     *failing
	corrections corrections
}

func newApplier(a *applier) (*applier, error) {
	a.retries = workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry)
	var err error
	if a.queue, err = newWorkQueue("apply-"+a.member.Name, appliersByMember, a.log, a.applyOne); err != nil {
		return nil, err
	}
	a.queue.workers.own, a.queue.workers.shared = ownAtOnce, a.spare
	a.gates = newGates(a.queue.addAfter)
	a.failing = newFailing()
	return a, nil
}

// run works until ctx ends and nothing is in flight any more.
func (a *applier) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{a.queue.start, a.namespaces.queue.start} {
		running.Go(func() {
			if err := start(ctx); err != nil {
				a.log.Error(err, "Writing to a cluster ended")
			}
		})
	}
	running.Wait()
}

// ours reports whether the object is a copy that came from this hub.
func (a *applier) ours(key Key, copied member.Copy) bool { return cameFrom(a.hub, key, copied) }

// sourceOf is what the copy of an object says of where it came from.
func (a *applier) sourceOf(key Key, p *desiredState) string {
	return sourceOf(a.hub, p.uid, key.GroupResource, key.Namespace, key.Name)
}

// cameFrom reports whether the object is a copy of the key that came from the hub.
func cameFrom(hub string, key Key, copied member.Copy) bool {
	return strings.HasPrefix(copied.Source, hub+"/") &&
		strings.HasSuffix(copied.Source, copyName(key.GroupResource, key.Namespace, key.Name))
}

// applyOne makes the desired state of one object true on the member. What panics over what the
// member answers fails for this copy alone.
func (a *applier) applyOne(ctx context.Context, key Key) (reconcile.Result, error) {
	ctx, end, ok := a.begin(ctx, a.member.Name)
	if !ok {
		// Another replica's, and then this work ends; or ours again soon.
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	defer end()
	defer a.gates.leave(key)
	result, err := a.tryOne(ctx, key)
	if a.guard.outdated() {
		a.stations.pend(a.member.Name)
	}
	if p := a.state.desired(key); rescue.Is(err) && p != nil {
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonInternalError, err.Error()
		return a.failed(key, r)
	}
	return result, err
}

func (a *applier) tryOne(ctx context.Context, key Key) (_ reconcile.Result, err error) {
	defer rescue.To(&err, a.log, "apply", "key", key)
	lists := a.unlisted.look(key)
	p := a.state.desired(key)
	if p == nil {
		a.stations.decide(key, priorityResync)
		return reconcile.Result{}, nil
	}
	leaving := a.cluster.Leaving(a.member.Name)
	if p.blocked != "" && !leaving {
		a.guard.done(key)
		a.stations.reportAfter(key, settledDelay)
		return reconcile.Result{}, nil
	}
	t := p.targets[a.member.Name]
	if !a.member.Ready() {
		if t == nil && !a.state.concerns(key, a.member.Name) {
			return reconcile.Result{}, nil
		}
		// When it is ready again, everything is decided anew.
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateOffline, reasonClusterNotReady, "the cluster is not ready; see its FederatedCluster"
		return a.done(key, r, 0)
	}
	if t != nil && t.variant != nil && !p.dryRun {
		a.member.Copies.Watch(t.variant.gvr)
	}
	have, found := a.member.Copies.Get(key)
	switch {
	case found == member.Unlisted:
		return a.waitsForList(key, p, t, lists)
	case have.Fault != "" && (t != nil || a.state.concerns(key, a.member.Name)):
		// What it is that is there is not known: it is neither written nor removed.
		r := a.statusFor(key, p)
		r.state, r.reason = refractv1alpha1.StateFailed, reasonUnreadable
		r.message = "what the cluster answers about the object cannot be read, and it is left as it is: " + have.Fault
		return a.failed(key, r)
	case t == nil && !leaving && !p.considers(a.member.Name):
		a.stations.decide(key, priorityDependency)
		return reconcile.Result{RequeueAfter: unknownDelay}, nil
	case p.dryRun && !leaving:
		return a.dryRun(key, p, t, have, found)
	case t == nil || leaving:
		return a.remove(ctx, key, p, leaving, have, found)
	case a.keeps(key, p, t, have, found):
		return a.keep(key, p, t, have, found)
	case t.err != nil:
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonOf(t.err), t.err.Error()
		r.hash = have.Hash
		return a.done(key, r, 0)
	case found == member.Present && a.isRunBefore(key, p, have):
		return a.rerun(ctx, key, p, have)
	default:
		return a.applyInTurn(ctx, key, p, t, have, found)
	}
}

// waitsForList has a copy wait until it is known whether it is there. If its type could not be listed, it says so.
func (a *applier) waitsForList(key Key, p *desiredState, t *target, lists int64) (result reconcile.Result, err error) {
	failed := a.member.Copies.ListError(key.GroupResource)
	wanted := t != nil || a.state.concerns(key, a.member.Name)
	switch {
	case failed == nil:
		return reconcile.Result{RequeueAfter: a.unlisted.wait(key, lists, false)}, nil
	case !wanted && apierrors.IsForbidden(failed):
		return reconcile.Result{}, nil // Nothing was ever written there with these rights.
	case !wanted:
		result.RequeueAfter = a.retries.When(key)
	default:
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonUnreadable, fmt.Sprintf("listing %s on the cluster: %v", key.GroupResource, failed)
		result, err = a.failed(key, r)
	}
	result.RequeueAfter = min(result.RequeueAfter, a.unlisted.wait(key, lists, true))
	return result, err
}

// dryRun says what would be done.
func (a *applier) dryRun(key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	r := a.statusFor(key, p)
	present := found == member.Present && a.ours(key, have)
	if t == nil && !present {
		r.absent = true
		return a.done(key, r, 0)
	}
	r.state, r.reason = refractv1alpha1.StatePending, reasonDryRun
	switch {
	case t == nil:
		r.message = "the copy would be removed"
	case t.err != nil:
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonOf(t.err), t.err.Error()
	case !present:
		r.message = "a copy would be created"
	case have.Hash != t.variant.hash:
		r.message = "the copy would be changed"
	default:
		r.message = "the copy would stay as it is"
	}
	r.hash = have.Hash
	return a.done(key, r, 0)
}

// apply writes the copy unless it is there as it should be.
func (a *applier) apply(ctx context.Context, key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	a.guard.stays(key)
	r := a.statusFor(key, p)
	r.adopted = r.adopted || have.Adopted
	known := false
	switch {
	case found == member.Present && have.Native:
		return a.native(key, r)
	case found == member.Present && !a.ours(key, have) && !r.stripped(have):
		if !a.adopts(p, have) {
			return a.exists(key, r, have)
		}
		r.adopted = true
		known = true
	case found == member.Present && have.Deleting && have.Ended != 0:
		return a.synced(key, p, r, t) // A Job that has ended; it is not to run again.
	case found == member.Present && have.Deleting:
		r.state, r.reason = refractv1alpha1.StatePending, reasonBeingDeleted
		r.message = "the copy that is there is being deleted; it is written anew when it is gone"
		return a.done(key, r, 0) // Its going is an event.
	case found == member.Present && have.Hash == t.variant.hash && have.Source == a.sourceOf(key, p):
		left := a.leftOf(ctx, key, p, t, &r, have, !r.asWritten(have))
		if a.whole(key, p, r, t, have, left) {
			return a.judged(ctx, key, p, r, t, have)
		}
		drift := a.drift(key, &r, have, left)
		if drift == nil && !have.Doubted && r.known(have, t.variant.hash) {
			return a.judged(ctx, key, p, r, t, have)
		}
		if wait := a.corrections.wait(key, drift); wait > 0 {
			return a.leaveDrifted(key, r, drift, r.owned.LostPointers(have.Owned, left...), wait)
		}
		r.drift = cmp.Or(drift, r.drift)
		known = true
	case found == member.Present:
		known = true
	case a.hasRun(key, p, t, &r):
		return a.ran(key, r, t)
	case r.state == refractv1alpha1.StateSynced && r.hash == t.variant.hash:
		drift := r.corrected(nil, "")
		drift.Deleted = true
		if wait := a.corrections.wait(key, drift); wait > 0 {
			return a.leaveDrifted(key, r, drift, nil, wait)
		}
		r.drift = drift
	}
	if result, waits, err := a.waits(key, p, r, t, have, found); waits {
		return result, err
	}
	end, ok := a.large.begin(ctx, t.variant.size)
	if !ok {
		return reconcile.Result{RequeueAfter: notOurs}, nil
	}
	defer end()
	with := func(b *body) ([]byte, error) { return b.forNew(), nil }
	if known {
		var err error
		if with, err = a.bodyForKnown(ctx, key, t.variant, have, r.adopted, a.leftOf(ctx, key, p, t, &r, have, true)); err != nil {
			return a.refused(ctx, key, p, t, r, fmt.Errorf("reading the fields that are left to the cluster: %w", err))
		}
	}
	if err := a.write(ctx, key, p, t, with); err != nil {
		return a.refused(ctx, key, p, t, r, err)
	}
	a.applied(key, p, t, &r)
	return a.synced(key, p, r, t)
}

// passed notes that the member has taken a copy.
func (a *applier) passed(key Key, t *target) {
	a.failing.passed(key)
	a.gates.passed(key, t.variant.hash)
}

// applied notes that a copy was written.
func (a *applier) applied(key Key, p *desiredState, t *target, r *clusterStatus) {
	a.passed(key, t)
	syncLatency.WithLabelValues(a.member.Name).Observe(time.Since(p.made).Seconds())
	if before, _ := a.state.clusterStatus(key, a.member.Name); r.drift != nil && r.drift != before.drift {
		driftCorrected.WithLabelValues(a.member.Name, key.GroupResource.String()).Inc()
		a.state.correct(key, a.member.Name+": "+describeDrift(r.drift))
	}
}

// applyInTurn is apply, for a large copy when a worker may see to one.
func (a *applier) applyInTurn(ctx context.Context, key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	leave, ok := a.large.enter(t.variant.size)
	if !ok {
		return reconcile.Result{RequeueAfter: largeDelay}, nil
	}
	defer leave()
	return a.apply(ctx, key, p, t, have, found)
}

// write writes a copy.
func (a *applier) write(ctx context.Context, key Key, p *desiredState, t *target, with writing) error {
	b := a.renderer.bodyOf(key, p, t, a.member.Name)
	if b == nil {
		return errOutdated
	}
	if err := a.arrived(ctx, key, p, t); err != nil {
		return err
	}
	text, err := with(b)
	if err != nil {
		return fmt.Errorf("encoding the copy: %w", err)
	}
	err = a.member.Copies.Apply(ctx, t.variant.gvr, key.NamespacedName, text)
	a.unanswered.note(key, err)
	if sharedFailure(key, t.variant.gvr, false, err) != nil {
		a.answered() // A failure that many copies share does not tell how fast the member writes.
		return err
	}
	a.wrote(err)
	return err
}

// wrote has as many writes be under way from now on as the member is found to be faster with.
func (a *applier) wrote(err error) {
	if member.ConcernsType(err) || errors.As(err, new(*member.SizeError)) {
		return // It tells neither how fast the member writes, nor that it does.
	}
	a.queue.adapt(func(waiting bool, now time.Duration) int { return a.pace.note(member.ConcernsAll(err), waiting, now) })
	if !member.ConcernsAll(err) {
		a.answered()
	}
}

// answered has some of what waits for the cluster to answer looked at, as it does.
func (a *applier) answered() {
	for _, key := range a.held.answered() {
		a.queue.add(key, priorityResync)
	}
}

// listed has looked at what waits to be known, as the copies of a type on the cluster may be known now, or why they could not be listed.
func (a *applier) listed(of schema.GroupResource, known bool) {
	if gvr, watched := a.member.Copies.Resource(of); watched && known && !a.member.Copies.Unserved(gvr) {
		a.gates.over(func(id *gateID) bool { return id.resource == gvr && id.reason == reasonTypeNotServed })
	}
	for _, key := range a.unlisted.listed(of, known) {
		a.queue.add(key, priorityResync)
	}
}

// refused deals with a write that failed.
func (a *applier) refused(ctx context.Context, key Key, p *desiredState, t *target, r clusterStatus, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errOutdated):
		return reconcile.Result{RequeueAfter: outdatedDelay}, nil
	case errors.Is(err, errArrived):
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // It is looked at as what it is now.
	case namespaceMissing(err) && placement.Native(namespaceResource.GroupResource(), &metav1.ObjectMeta{Name: key.Namespace}) != "":
		return a.meets(key, t, r, namespaceFailure(key.Namespace, reasonMadeByEachCluster,
			fmt.Sprintf("the cluster has no namespace %s, which it makes for itself", key.Namespace), "The copies are written when it has"))
	case namespaceMissing(err):
		if reason, err := a.namespaces.create(ctx, key.Namespace); err != nil {
			return a.meets(key, t, r, namespaceFailure(key.Namespace, reason, err.Error(), "The copies are written when the namespace exists"))
		}
		a.gates.over(func(id *gateID) bool { return id.gateScope == gateScope{namespace: key.Namespace} })
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	case apierrors.IsConflict(err) || uidRefused(err):
		return a.lookAgain(ctx, key, p, r, t)
	}
	return a.writeFailed(key, t, r, err)
}

// writeFailed records a write that failed, and has the copy wait for the others that share the failure.
func (a *applier) writeFailed(key Key, t *target, r clusterStatus, err error) (reconcile.Result, error) {
	_, found := a.member.Copies.Get(key)
	if f := sharedFailure(key, t.variant.gvr, found != member.Present, err); f != nil {
		return a.meets(key, t, r, f)
	}
	if f := sizeFailure(key, t.variant.size, err); f != nil {
		return a.meets(key, t, r, f)
	}
	if f := a.failing.note(key, t.variant.gvr, err); f != nil {
		return a.meets(key, t, r, f)
	}
	if !member.ConcernsAll(err) && !member.ConcernsType(err) {
		a.gates.refused(key)
	}
	r.state, r.reason, r.message = refractv1alpha1.StateFailed, refusal(err), err.Error()
	if errors.As(err, new(*member.SizeError)) {
		return a.done(key, r, 0) // It is tried again when it is another.
	}
	if r.reason == reasonRejected {
		r.message += remedyFor(err)
	}
	return a.failed(key, r)
}

// meets has a copy wait at the gate of a failure that its write has met.
func (a *applier) meets(key Key, t *target, r clusterStatus, f *failure) (reconcile.Result, error) {
	first := a.gates.shut(f)
	n := a.gates.failed(key, t.variant.hash, f)
	if n == nil {
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, f.reason, f.what+". "+f.remedy
		return a.failed(key, r)
	}
	failures.WithLabelValues(a.member.Name, f.reason).Inc()
	if first && f.reason == reasonTypeNotServed {
		a.member.Copies.Rediscover() // The cluster may serve another version.
	}
	return a.waitsAt(key, r, n)
}

// waitsAt has a copy wait at a gate. Its status is recorded once, and not again after each probe.
func (a *applier) waitsAt(key Key, r clusterStatus, n *notice) (reconcile.Result, error) {
	before, reported := a.state.clusterStatus(key, a.member.Name)
	same := reported && before.state == n.state && before.reason == n.reason
	if same && before.seq == r.seq {
		return reconcile.Result{RequeueAfter: a.gates.rest()}, nil
	}
	r.state, r.reason, r.message = n.state, n.reason, n.message
	what, _, _ := strings.Cut(n.message, sinceMark)
	if was, _, cut := strings.Cut(before.message, sinceMark); same && cut && was == what {
		r.message = before.message // It waits since before a restart, or since something else was decided.
	}
	return a.done(key, r, a.gates.rest())
}

// gate returns why a copy waits for a failure that it shares with others; nil if it may be written.
func (a *applier) gate(key Key, t *target, found member.Lookup) *notice {
	if gvr := t.variant.gvr; a.member.Copies.Unserved(gvr) && a.gates.shut(unservedFailure(gvr)) {
		a.member.Copies.Rediscover()
	}
	return a.gates.enter(key, t.variant.gvr.Version, found != member.Present, t.variant.hash, t.variant.size)
}

// lookAgain is for when something else is there than was known: a copy that the
// watch has not shown yet, a copy without its label, or somebody's object.
func (a *applier) lookAgain(ctx context.Context, key Key, p *desiredState, r clusterStatus, t *target) (reconcile.Result, error) {
	have, err := a.member.Objects.Read(ctx, t.variant.gvr, key.NamespacedName)
	switch {
	case apierrors.IsNotFound(err):
		a.member.Copies.Forget(key)
		return reconcile.Result{RequeueAfter: a.soon(key)}, nil
	case err != nil:
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, refusal(err), err.Error()
		return a.failed(key, r)
	case have.Native:
		return a.native(key, r)
	case !a.ours(key, have) && a.adopts(p, have) && a.keeps(key, p, t, have, member.Present):
		return a.keep(key, p, t, have, member.Present)
	case have.MadeFor == a.hub && have.Source == "", !a.ours(key, have) && a.adopts(p, have):
		// A namespace that copies needed before its own copy came, or what the object
		// asks to take over.
		r.adopted = have.MadeFor != a.hub
		with, err := a.bodyForKnown(ctx, key, t.variant, have, r.adopted, a.leftOf(ctx, key, p, t, &r, have, true))
		if err == nil {
			err = a.write(ctx, key, p, t, with)
		}
		if errors.Is(err, errOutdated) {
			return reconcile.Result{RequeueAfter: outdatedDelay}, nil
		}
		if err != nil {
			return a.writeFailed(key, t, r, err)
		}
		a.passed(key, t)
		return a.synced(key, p, r, t)
	case !a.ours(key, have) && !r.stripped(have):
		return a.exists(key, r, have)
	}
	have.Hash = "" // Whatever it was applied with, it is not as it should be.
	a.member.Copies.Remember(key, have)
	return reconcile.Result{RequeueAfter: a.soon(key)}, nil
}

// soon is how long to wait before the next attempt at what changed meanwhile: not
// at all at first, and longer if it turns out not to be that.
func (a *applier) soon(key Key) time.Duration {
	if a.retries.NumRequeues(key) == 0 {
		_ = a.retries.When(key) // It counts.
		return time.Millisecond
	}
	return a.retries.When(key)
}

// stripped reports whether this is the copy that was written, without the marks that
// it had: somebody removed them.
func (r *clusterStatus) stripped(have member.Copy) bool {
	return have.Source == "" && r.uid != "" && have.UID == r.uid
}

// adopts reports whether the object asks to take over what is there and is
// nobody's copy.
func (a *applier) adopts(p *desiredState, have member.Copy) bool {
	return have.Source == "" && p.keeping.Adopt.Includes(a.member.Name)
}

// exists leaves somebody else's object as it is.
func (a *applier) exists(key Key, r clusterStatus, have member.Copy) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateFailed, reasonAlreadyExists
	r.message = fmt.Sprintf("the cluster has an object of this name that did not come from this hub; it is left as it is. "+
		"Annotations %s: adopt and %s take it over",
		corev1alpha1.ConflictResolutionAnnotation, corev1alpha1.ClustersToAdoptAnnotation)
	if have.Source != "" {
		r.message = "the cluster has an object of this name that is a copy from another hub, or of another object; it is left as it is"
	}
	return a.failed(key, r)
}

// native leaves what the cluster made for itself as it is.
func (a *applier) native(key Key, r clusterStatus) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateFailed, reasonMadeByEachCluster
	r.message = "the cluster has an object of this name that it made for itself; it is left as it is, whether it is to be adopted or not"
	return a.failed(key, r)
}

// paused waits until the cluster answers again, or is likely to.
func (a *applier) paused(key Key, r clusterStatus, left time.Duration) (reconcile.Result, error) {
	if r.state != refractv1alpha1.StateFailed {
		r.state, r.reason, r.message = refractv1alpha1.StatePending, reasonBackingOff,
			"the cluster has failed to answer several times; it is asked less often until it does"
	}
	return a.done(key, r, left)
}

func (a *applier) synced(key Key, p *desiredState, r clusterStatus, t *target) (reconcile.Result, error) {
	r.state, r.reason = refractv1alpha1.StateSynced, ""
	if !strings.HasPrefix(r.message, replicasLeft) {
		r.message = ""
	}
	if r.hash != t.variant.hash {
		r.readySince = time.Time{} // It was ready with something else.
	}
	r.generation, r.hash = t.generation, t.variant.hash
	if have, found := a.member.Copies.Get(key); found == member.Present {
		r.owned, r.fields, r.uid = have.Owned, "", have.UID
		if key.GroupResource == member.Jobs {
			r.run = runOf(p.uid, have.Ended)
		}
	}
	return a.done(key, r, 0)
}

// waits has a copy wait that must not be written yet: if it changes, for what travels with the object, for the end of a failure that it
// shares with others, and for a cluster that does not answer.
func (a *applier) waits(
	key Key, p *desiredState, r clusterStatus, t *target, have member.Copy, found member.Lookup,
) (result reconcile.Result, waits bool, err error) {
	if found == member.Present && have.Hash != t.variant.hash {
		if first := a.state.awaited(key, p, a.member.Name); first != nil {
			r.state, r.reason = refractv1alpha1.StatePending, reasonWaitsForFollower
			r.message = called(*first) + ", which travels with it, is written first"
			result, err = a.done(key, r, followerDelay)
			return result, true, err
		}
	}
	if n := a.gate(key, t, found); n != nil {
		result, err = a.waitsAt(key, r, n)
		return result, true, err
	}
	left := a.held.pause(key, a.member.Pause)
	if left <= 0 {
		return reconcile.Result{}, false, nil
	}
	result, err = a.paused(key, r, left)
	return result, true, err
}

// judged finds out whether a copy, which is as it should be, is healthy, if that is asked and nobody has.
func (a *applier) judged(ctx context.Context, key Key, p *desiredState, r clusterStatus, t *target, have member.Copy) (reconcile.Result, error) {
	if !unjudged(p.governed.healthOn(a.member.Name), &have) {
		return a.synced(key, p, r, t)
	}
	if left := a.held.pause(key, a.member.Pause); left > 0 {
		return a.paused(key, r, left)
	}
	if err := a.member.Copies.Judge(ctx, key); err != nil {
		r.state, r.reason = refractv1alpha1.StateFailed, reasonUnreadable
		r.message = fmt.Sprintf("reading the copy, which its rollout policy's health.cel is about: %v", err)
		return a.failed(key, r)
	}
	return a.synced(key, p, r, t)
}

// statusFor begins the status of the member with what it is known to hold.
func (a *applier) statusFor(key Key, p *desiredState) clusterStatus {
	r, _ := a.state.clusterStatus(key, a.member.Name)
	r.seq, r.foreign = p.seq, nil
	return r
}

// failed records a status and has the key come again, later each time.
func (a *applier) failed(key Key, r clusterStatus) (reconcile.Result, error) {
	failures.WithLabelValues(a.member.Name, r.reason).Inc()
	after := a.retries.When(key)
	switch r.reason {
	case reasonUnreachable:
		after = min(after, soonRetry) // It may be over at any time; when many fail, the breaker spaces requests out.
	case reasonWriteFailed:
		after = a.failing.again(min(after, soonRetry))
	case reasonRejected:
		after = a.failing.again(after)
	}
	return a.done(key, r, after)
}

// done records the status. The key comes again after the time, unless that is zero.
func (a *applier) done(key Key, r clusterStatus, after time.Duration) (reconcile.Result, error) {
	r.message = output.Cut(r.message, maxMessage)
	before, reported := a.state.clusterStatus(key, a.member.Name)
	same := reported && before.state == r.state && before.reason == r.reason
	if same && before.seq == r.seq && r.state != refractv1alpha1.StateSynced {
		r.message = before.message // A port or a pointer in it may be another each time.
	}
	settled, due, ok := a.stations.record(a, key, r)
	if !ok {
		return reconcile.Result{}, nil // The member left, or is reached in another way.
	}
	switch {
	case r.drift != before.drift && same:
		a.stations.reportAfter(key, driftDelay)
	case settled:
		a.stations.reportAfter(key, settledDelay)
	case !due: // Of the many clusters of an object one has to say it.
		a.stations.reportLater(key)
	}
	if after == 0 {
		a.retries.Forget(key)
		a.held.forget(key)
	}
	if r.absent {
		a.unanswered.note(key, nil) // Nothing is to be written any more.
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// namespaceMissing tells a namespace that is not there from an object or a type
// that is not.
func namespaceMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces" && d.Group == ""
}

// uidRefused reports whether an API server refused the UID that an apply named.
func uidRefused(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}

// refusal sorts the errors of a write.
func refusal(err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, new(*member.LimitError)):
		return reasonUnreadable
	case member.IsTooLarge(err):
		return reasonRejected
	case !errors.As(err, &status):
		return reasonUnreachable
	}
	switch s := status.Status(); {
	case s.Code == http.StatusNotFound:
		return reasonTypeNotServed
	case s.Reason == metav1.StatusReasonInvalid, s.Code == http.StatusBadRequest, s.Code == http.StatusForbidden, s.Code == http.StatusRequestEntityTooLarge:
		return reasonRejected
	default:
		return reasonWriteFailed
	}
}
