package propagation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/rescue"
)

// The delays before retries of a failed write double from firstRetry to lastRetry.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// maxMessage is the maximum length of the message of a cluster status, in bytes.
const maxMessage = 1000

// soonRetry is the maximum delay before the retry of a write to a failing cluster, and of the deletion of a
// CustomResourceDefinition whose objects still exist. No event shows when these can succeed.
const soonRetry = 5 * time.Second

// pendingDelay is the delay between a change of the deletions that wait for approval and its report in the status of
// the FederatedCluster. The delay collects further changes, because each report replaces the approval token that a user
// may be reading.
const pendingDelay = 1500 * time.Millisecond

// unknownDelay is the delay before the retry of a key whose desired state was decided without this cluster.
const unknownDelay = 500 * time.Millisecond

// leadsAgain is the delay before the retry of a key while this replica does not lead, for example after a late renewal
// of its Lease.
const leadsAgain = 500 * time.Millisecond

// stations are the calls from an applier to the other two stations, which decide and report.
type stations interface {
	// decide enqueues a key for a new decision.
	decide(key Key, p priority)
	// record records the status of the copy of a key. settled is whether all clusters have reported on the newest
	// desired state. due is whether a report that covers this status is already scheduled. ok is false if the member
	// has a new applier; nothing is recorded then.
	record(a *applier, key Key, s clusterStatus) (settled, due, ok bool)
	// reportAfter schedules a report on the key after d at the latest.
	reportAfter(key Key, d time.Duration)
	// reportLater schedules a report on the key at a time when more clusters are likely to have reported.
	reportLater(key Key)
	// pend schedules an update of the FederatedCluster with the deletions that wait for approval.
	pend(cluster string)
}

// cluster is the part of a FederatedCluster that an applier needs.
type cluster interface {
	// Leaving reports whether the cluster is leaving the fleet.
	Leaving(name string) bool
	// Approved returns the token of the deletions that a user has approved.
	Approved(name string) string
	// ReleasesKept reports whether a cluster that leaves keeps the copies that hold data.
	ReleasesKept(name string) bool
}

// applier is the second station. Each member has its own applier. It takes the key of an object, compares the desired
// state with the known copy on the member, and writes or deletes the copy.
type applier struct {
	hub      string // UID of the hub.
	log      logr.Logger
	member   *member.Member
	cluster  cluster
	state    *state
	stations stations
	// begin starts work on the member. ok is false if this replica does not lead.
	begin func(ctx context.Context, member string) (_ context.Context, end func(), ok bool)
	// proven reports whether reads from the hub confirm that an object is not placed on the member: see [proof].
	proven func(ctx context.Context, key Key, p *desiredState) (bool, error)

	queue       *workQueue[Key]
	pace        pace // The pace of the writes; the lock of the queue protects it.
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

// run runs the applier until ctx ends and the last write has ended.
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

// ours reports whether an object on the member is the copy of the key from this hub.
func (a *applier) ours(key Key, copied member.Copy) bool { return cameFrom(a.hub, key, copied) }

// sourceOf returns the source annotation for the copy of an object.
func (a *applier) sourceOf(key Key, p *desiredState) string {
	return sourceOf(a.hub, p.uid, key.GroupResource, key.Namespace, key.Name)
}

// cameFrom reports whether an object on a member is the copy of the key from the hub.
func cameFrom(hub string, key Key, copied member.Copy) bool {
	return strings.HasPrefix(copied.Source, hub+"/") &&
		strings.HasSuffix(copied.Source, copyName(key.GroupResource, key.Namespace, key.Name))
}

// applyOne brings the copy of one object on the member to the desired state. If a response of the member causes a
// panic, only this copy fails.
func (a *applier) applyOne(ctx context.Context, key Key) (reconcile.Result, error) {
	ctx, end, ok := a.begin(ctx, a.member.Name)
	if !ok {
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
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
		// All objects are decided again when the member becomes ready.
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateOffline, reasonClusterNotReady, "the cluster is not ready; see its FederatedCluster"
		return a.done(key, r, 0)
	}
	if t != nil && t.variant != nil && !p.dryRun {
		a.member.Copies.Watch(t.variant.gvr)
	}
	have, found := a.member.Copies.Get(key)
	if found == member.Present && t != nil && t.variant != nil && a.member.Copies.Unserved(t.variant.gvr) {
		// The copy was cached before the cluster stopped serving the type. The write shows whether the cluster serves
		// the type now.
		have, found = member.Copy{}, member.Absent
	}
	switch {
	case found == member.Unlisted:
		return a.waitsForList(key, p, t, lists)
	case have.Fault != "" && (t != nil || a.state.concerns(key, a.member.Name)):
		// The object on the member is unreadable, so it is neither written nor deleted.
		r := a.statusFor(key, p)
		r.state, r.reason = refractv1alpha1.StateFailed, reasonUnreadable
		r.message = "the answer of the cluster about the object is unreadable, and the object stays unchanged: " + have.Fault
		return a.failed(key, r)
	case t == nil && !leaving && !p.considers(a.member.Name):
		a.stations.decide(key, priorityDependency)
		return reconcile.Result{RequeueAfter: unknownDelay}, nil
	case p.dryRun && !leaving:
		return a.dryRun(key, p, t, have, found)
	case t == nil || leaving:
		return a.remove(ctx, key, p, leaving, have, found)
	case a.keeps(key, p, t, have, found):
		return a.keep(ctx, key, p, t, have, found)
	case t.err != nil:
		a.guard.done(key)
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

// waitsForList delays a copy until the list of its type shows whether the copy exists. If the list fails, the status
// shows the error.
func (a *applier) waitsForList(key Key, p *desiredState, t *target, lists int64) (result reconcile.Result, err error) {
	failed := a.member.Copies.ListError(key.GroupResource)
	wanted := t != nil || a.state.concerns(key, a.member.Name)
	switch {
	case failed == nil:
		return reconcile.Result{RequeueAfter: a.unlisted.wait(key, lists, false)}, nil
	case !wanted && apierrors.IsForbidden(failed):
		// Without the right to list the type, Refract never wrote a copy, so there is nothing to delete.
		return reconcile.Result{}, nil
	case !wanted:
		result.RequeueAfter = a.retries.When(key)
	default:
		// The deletion of a copy also needs the right to list its type.
		a.member.Copies.Miss(key.GroupResource)
		r := a.statusFor(key, p)
		r.state, r.reason, r.message = refractv1alpha1.StateFailed, reasonUnreadable, fmt.Sprintf("listing %s on the cluster: %v", key.GroupResource, failed)
		result, err = a.failed(key, r)
	}
	result.RequeueAfter = min(result.RequeueAfter, a.unlisted.wait(key, lists, true))
	return result, err
}

// dryRun reports the change that would be made to the copy. If the guard has allowed the deletion of the copy before,
// it judges the deletion again after the dry run.
func (a *applier) dryRun(key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	a.guard.done(key)
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

// meets handles a failed write whose cause affects other copies as well. The copy waits at the gate of this failure.
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

// waitsAt lets a copy wait at the gate of a failure. The status of the copy is recorded once, not after each probe of
// the gate.
func (a *applier) waitsAt(key Key, r clusterStatus, n *notice) (reconcile.Result, error) {
	before, reported := a.state.clusterStatus(key, a.member.Name)
	same := reported && before.state == n.state && before.reason == n.reason
	if same && before.seq == r.seq {
		return reconcile.Result{RequeueAfter: a.gates.rest(key)}, nil
	}
	r.state, r.reason, r.message = n.state, n.reason, n.message
	what, _, _ := strings.Cut(n.message, sinceMark)
	if was, _, cut := strings.Cut(before.message, sinceMark); same && cut && was == what {
		// The copy already waited before a restart or before the last decision.
		r.message = before.message
	}
	return a.done(key, r, a.gates.rest(key))
}

// gate returns the notice of the closed gate that a copy must wait at; nil if the copy may be written.
func (a *applier) gate(key Key, t *target, found member.Lookup) *notice {
	if gvr := t.variant.gvr; a.member.Copies.Unserved(gvr) && a.gates.shut(unservedFailure(gvr)) {
		a.member.Copies.Rediscover()
	}
	return a.gates.enter(key, t.variant.gvr.Version, found != member.Present, t.variant.hash, t.variant.size)
}

// lookAgain reads the object from the member after a conflict. The object may be a copy that the watch has not shown
// yet, a copy without its label, or a foreign object.
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
		return a.keep(ctx, key, p, t, have, member.Present)
	case have.MadeFor == a.hub && have.Source == "", !a.ours(key, have) && a.adopts(p, have):
		// Refract created this namespace before the copy of the hub's namespace arrived, or the object on the hub asks
		// to adopt this object.
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
	have.Hash = "" // The conflict shows that the copy is not correct, so its hash does not count.
	a.member.Copies.Remember(key, have)
	return reconcile.Result{RequeueAfter: a.soon(key)}, nil
}

// soon returns the delay before the next attempt after a conflict or a change on the member. The first delay is very
// short; later delays grow.
func (a *applier) soon(key Key) time.Duration {
	if a.retries.NumRequeues(key) == 0 {
		_ = a.retries.When(key) // The call counts the attempt.
		return time.Millisecond
	}
	return a.retries.When(key)
}
