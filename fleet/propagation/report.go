package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/rollout"
)

// The delay of a report, so that one write covers several changes. It is longer while clusters are still being
// written to.
const (
	settledDelay   = 100 * time.Millisecond
	unsettledDelay = 2 * time.Second
	// perCluster is the additional delay for each cluster of the object. A report has a row for each cluster, and
	// frequent writes of it would cost more than the copies.
	perCluster = 20 * time.Millisecond
	// recreated is the time for which the Propagation of a deleted object with a rollout policy stays after its last
	// copy is gone. An object that is created again within this time counts as a change of the former one.
	recreated = time.Minute
	// A report does not wait for one in oneIn of the clusters.
	oneIn = 10
	// readinessDelay is the delay before a changed readiness of a workload is reported. driftDelay is the delay before
	// a correction is reported.
	readinessDelay = 500 * time.Millisecond
	driftDelay     = time.Second
)

// Bounds of a report, so that it stays a small object.
const (
	maxReadiness = 200 // Bytes.
)

// StatusOf reads the report on an object of the hub. It returns nil if the object has no report. The client must know
// the types of the hub.
func StatusOf(ctx context.Context, hub client.Client, obj client.Object) (*refractv1alpha1.PropagationStatus, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	mapping, err := hub.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("looking up kind %s: %w", gvk.Kind, err)
	}
	key := Key{GroupResource: mapping.Resource.GroupResource(), NamespacedName: client.ObjectKeyFromObject(obj)}
	r := newRecord(key.Namespace != "")
	err = hub.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Nothing is reported, and nothing is wrong.
	}
	if err != nil {
		return nil, fmt.Errorf("reading the report on %s %s: %w", gvk.Kind, key.NamespacedName, err)
	}
	r.status.Expand()
	return r.status, nil
}

// reporter is the last station. For the key of an object, it writes the state of the object into its Propagation and
// into events.
type reporter struct {
	client   client.Client // Reads from caches.
	live     client.Reader
	recorder events.EventRecorder
	lead     *lead
	members  *member.Set
	records  *records
	state    *state

	// decider gets the keys that need another decision. reviewer gets the policies whose status may have changed.
	decider  *decider
	reviewer *reviewer
	// revisions stores the revisions that rollouts name.
	revisions *revisions
	// judge evaluates the health of a copy.
	judge func(m *member.Member, key Key)
	// pend updates the list of pending deletions in the status of a cluster soon.
	pend func(cluster string)
	now  func() time.Time
	// yielding decides which reports wait while many copies are being written.
	yielding *yielding

	queue *workQueue[Key]
}

func newReporter(rep *reporter, log logr.Logger) (*reporter, error) {
	var err error
	rep.queue, err = newWorkQueue("report", reporters, log, rep.reportOne)
	return rep, err
}

// after queues the report on an object for the given delay at the latest.
func (rep *reporter) after(key Key, d time.Duration) { rep.queue.addAfter(key, d) }

// later queues a report for the time when more clusters will probably have answered.
func (rep *reporter) later(key Key) {
	delay := unsettledDelay
	if is := rep.state.underway(key); !is.few {
		delay = max(delay, time.Duration(is.of)*perCluster)
	}
	rep.after(key, delay)
}

// governed reports whether a rollout depends on the report on an object: its own rollout, or that of its leader, the
// object that it travels with.
func (rep *reporter) governed(key Key) bool {
	p := rep.state.desired(key)
	return p != nil && p.governed != nil
}

// recordChanged is called when another client wrote a Propagation. steers is whether the change steers the rollout or
// the placement.
func (rep *reporter) recordChanged(key Key, steers bool) {
	if p := rep.state.desired(key); steers && p != nil && p.held != nil {
		rep.decider.add(key, priorityChanged) // The placement may be approved now.
	}
	if rep.state.settled(key) || steers || rep.governed(key) {
		rep.after(key, settledDelay)
	} else {
		rep.later(key)
	}
}

// reportOne writes or deletes the Propagation of one object, unless the report yields to copies.
func (rep *reporter) reportOne(ctx context.Context, key Key) (reconcile.Result, error) {
	k, found := rep.records.get(key)
	if p := rep.state.desired(key); p != nil && rep.yielding.yields(key, p, &k, rep.now()) {
		return reconcile.Result{RequeueAfter: yieldDelay}, nil // Checked before the statuses are copied: there may be thousands, and the key is checked often.
	}
	return rep.reportNow(ctx, key, k, found)
}

// reportNow does the same as [reporter.reportOne] without yielding. k is the known part of the Propagation.
func (rep *reporter) reportNow(ctx context.Context, key Key, k known, found bool) (reconcile.Result, error) {
	p, statuses, was, ok := rep.state.snapshot(key)
	if !ok {
		if found { // The Propagation became known after its object was forgotten.
			rep.decider.add(key, priorityResync)
		}
		return reconcile.Result{}, nil
	}
	rep.tellLeader(p)
	if !rep.lead.Leads() { // The Lease was not renewed in time.
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
	}
	r := newRecord(key.Namespace != "")
	r.SetNamespace(key.Namespace)
	r.SetName(recordName(key))
	r.SetResourceVersion(k.version)
	r.SetUID(k.uid)
	switch {
	case found && k.bound:
		if err := rep.unbind(ctx, r); err != nil {
			return again(err)
		}
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	case p.gone && !found:
		return rep.goOn(key, p, was), nil
	case p.gone && len(statuses)+len(was.placed) == 0:
		return rep.close(ctx, key, p, r, was, k)
	case !p.gone && found && k.deleting:
		return reconcile.Result{}, nil // The Propagation is deleted, but has a finalizer of another program. It is created again when it is gone.
	case !found:
		r.SetResourceVersion("")
		r.SetUID("")
		r.spec.Source = sourceReference(key, p)
		if err := rep.client.Create(ctx, r.Object); err != nil {
			return again(err)
		}
		rep.records.wrote(r)
	case !p.gone && k.source != p.uid:
		r.spec.Source = sourceReference(key, p)
		if err := rep.client.Update(ctx, r.Object); err != nil {
			return again(err)
		}
		rep.records.wrote(r)
	}
	if !found || !k.steering.namesPlainly(key, k.rollout) {
		return rep.write(ctx, key, r, p, statuses, was, k)
	}
	said := rep.retell(ctx, key)
	if said == nil {
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	result, err := rep.write(ctx, key, r, p, statuses, was, k) // The report does not wait for retell.
	return result, errors.Join(err, said)
}

// retell removes the plain hash of a revision from annotations that users set for an earlier version: such
// annotations can be read without the right to read the object. If the rollout waits for the annotation, it gets the
// present name of the revision.
func (rep *reporter) retell(ctx context.Context, key Key) error {
	r := newRecord(key.Namespace != "")
	if err := rep.live.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: recordName(key)}, r.Object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := r.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	said := r.GetAnnotations()
	for _, name := range []string{refractv1alpha1.ApproveRolloutAnnotation, refractv1alpha1.ResumeAnnotation} {
		if !isPlainly(said[name]) {
			continue
		}
		if now := rollout.Retold(r.status.Rollout, said[name]); now != "" {
			said[name] = now
			continue
		}
		delete(said, name)
	}
	r.SetAnnotations(said)
	err := rep.client.Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return nil // The write that caused the conflict also causes another attempt.
	}
	return client.IgnoreNotFound(err)
}

// mayReturn returns how long the Propagation and the state of an object with a rollout policy stay after the last copy
// is gone, because a replacement deletes the object and creates it again. It is zero if the namespace or the type was
// deleted, with all of its content.
func (rep *reporter) mayReturn(key Key, p *desiredState, was previous, k known) time.Duration {
	if k.rollout == nil && was.rollout == nil || p.cause == causeNamespace || p.cause == causeType || p.cause == causeForgotten {
		return 0
	}
	now := rep.now()
	return recreated - now.Sub(rep.state.emptied(key, now))
}

// write writes the status of an object into its Propagation, and queues the work that depends on it.
func (rep *reporter) write(
	ctx context.Context, key Key, r record, p *desiredState, statuses map[string]clusterStatus, was previous, k known,
) (reconcile.Result, error) {
	progress, until, err := rep.advance(ctx, key, p, statuses, k)
	if errors.Is(err, errRevision) {
		rep.decider.add(key, priorityChanged)
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	// If a revision cannot be stored, err causes retries with growing delays. The Propagation reports the reason
	// meanwhile.
	status := rep.assemble(key, p, statuses, was, k.conditions, progress)
	p.untried(progress, status.Clusters)
	if digest(&status) == k.digest {
		return rep.lookAgainAt(until), err
	}
	if !p.gone {
		r.spec.Source = sourceReference(key, p)
	}
	*r.status = status
	r.status.Rollout = progress.DeepCopy() // The copy keeps k.rollout unchanged: the answer is decoded into r.
	if failed := rep.client.Status().Update(ctx, r.Object); failed != nil {
		return again(failed)
	}
	rep.records.wrote(r)
	rep.announce(key, p, k, was.warned, &status)
	if status.Rollout != k.rollout {
		rep.decider.add(key, priorityChanged) // The decider acts on the rollout only after it is recorded.
		rep.decider.decideAgain(slices.Concat(followersIn(k.rollout, key), followersIn(status.Rollout, key)))
		if k.rollout == nil {
			followers, _ := rep.state.followersOf(key)
			rep.decider.decideAgain(followers) // Followers have waited for the recorded rollout, whether it includes them or not.
		}
		rep.revisions.later(key)
		countRollouts(rep.records.phases())
	}
	rep.state.warned(key, status.Warnings)
	for _, ref := range rep.state.policiesOf(key) {
		rep.reviewer.later(ref)
	}
	return rep.lookAgainAt(until), err
}

// lookAgainAt requeues a report for a time, unless the time is zero.
func (rep *reporter) lookAgainAt(until time.Time) reconcile.Result {
	if until.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(until.Sub(rep.now()), time.Millisecond)}
}

// untried clears the refused revisions in the rows of clusters if the decision was about another attempt than the one
// in the Propagation: the revisions were not tried in this attempt. Otherwise a resumed rollout would fail at once
// because of former refusals.
func (p *desiredState) untried(progress *refractv1alpha1.RolloutStatus, rows []refractv1alpha1.ClusterStatus) {
	if progress == nil || progress.Attempt == p.governed.attempt() {
		return
	}
	for i := range rows {
		rows[i].Revision = ""
	}
}

// again requeues a report after an error. A conflict, and a Propagation that exists already or is gone, only show that
// the known Propagation is outdated, and count as no error.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: settledDelay}, nil
	}
	if apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: unsettledDelay}, nil
	}
	return reconcile.Result{}, err
}

// sourceReference names the object that a Propagation describes.
func sourceReference(key Key, p *desiredState) refractv1alpha1.SourceReference {
	api := p.gvr.GroupVersion().String()
	return refractv1alpha1.SourceReference{APIVersion: api, Kind: p.kind, Resource: key.Resource, Name: key.Name, UID: p.uid}
}

// close deletes the Propagation of an object that has no copies left.
func (rep *reporter) close(ctx context.Context, key Key, p *desiredState, r record, was previous, k known) (reconcile.Result, error) {
	if left := rep.mayReturn(key, p, was, k); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if !k.deleting {
		if err := rep.client.Delete(ctx, r.Object, client.Preconditions{UID: &k.uid}); client.IgnoreNotFound(err) != nil {
			return again(err)
		}
	}
	if k.rollout != nil {
		rep.revisions.later(key)
	}
	rep.decider.forget(key, p)
	return reconcile.Result{}, nil
}

// goOn handles an object that is gone together with its Propagation, as after the deletion of its namespace. No report
// can be written.
func (rep *reporter) goOn(key Key, p *desiredState, was previous) reconcile.Result {
	if len(rep.remaining(key)) > 0 {
		return reconcile.Result{}
	}
	if left := rep.mayReturn(key, p, was, known{}); left > 0 {
		return reconcile.Result{RequeueAfter: left}
	}
	rep.decider.forget(key, p)
	return reconcile.Result{}
}

// remaining returns the clusters that have, or may have, a copy of an object that is gone together with its
// Propagation. The appliers still delete these copies; until then, the status of the FederatedClusters lists them.
func (rep *reporter) remaining(key Key) []string {
	left := rep.state.bereave(key)
	for _, name := range left {
		if m := rep.members.Get(name); m == nil || !m.Ready() {
			rep.pend(name)
		}
	}
	return left
}

// unbind removes the finalizer and the owner of earlier versions from a Propagation: see [record.bound].
func (rep *reporter) unbind(ctx context.Context, r record) error {
	if err := rep.live.Get(ctx, client.ObjectKeyFromObject(r.Object), r.Object); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, ok := r.DeepCopyObject().(client.Object)
	if !ok || !r.bound() {
		return nil
	}
	controllerutil.RemoveFinalizer(r.Object, refractv1alpha1.Finalizer)
	r.SetOwnerReferences(slices.DeleteFunc(r.GetOwnerReferences(), r.isSource))
	return client.IgnoreNotFound(rep.client.Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}
