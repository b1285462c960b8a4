package propagation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

// apply writes the copy unless it is already correct.
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
		return a.synced(key, p, r, t) // The Job has ended, and must not run again.
	case found == member.Present && have.Deleting:
		r.state, r.reason = refractv1alpha1.StatePending, reasonBeingDeleted
		r.message = "the existing copy is being deleted; it is created again afterwards"
		return a.done(key, r, 0) // An event reports the end of the deletion.
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
		return reconcile.Result{RequeueAfter: leadsAgain}, nil
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

// passed notes that the member has accepted a copy.
func (a *applier) passed(key Key, t *target) {
	a.failing.passed(key)
	a.gates.passed(key, t.variant.hash)
}

// applied notes that a copy was written: it opens gates, updates metrics, and records a correction of drift.
func (a *applier) applied(key Key, p *desiredState, t *target, r *clusterStatus) {
	a.passed(key, t)
	syncLatency.WithLabelValues(a.member.Name).Observe(time.Since(p.made).Seconds())
	if before, _ := a.state.clusterStatus(key, a.member.Name); r.drift != nil && r.drift != before.drift {
		driftCorrected.WithLabelValues(a.member.Name, key.GroupResource.String()).Inc()
		a.state.correct(key, a.member.Name+": "+describeDrift(r.drift))
	}
}

// applyInTurn is apply with a limit: a large copy waits until a worker for large copies is free.
func (a *applier) applyInTurn(ctx context.Context, key Key, p *desiredState, t *target, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	leave, ok := a.large.enter(t.variant.size)
	if !ok {
		return reconcile.Result{RequeueAfter: largeDelay}, nil
	}
	defer leave()
	return a.apply(ctx, key, p, t, have, found)
}

// write writes a copy, unless an earlier write without an answer turns out to have succeeded.
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
		a.answered() // A failure that many copies share does not show how fast the member writes.
		return err
	}
	a.wrote(err)
	return err
}

// wrote adapts the number of concurrent writes to the measured speed of the member.
func (a *applier) wrote(err error) {
	if member.ConcernsType(err) || errors.As(err, new(*member.SizeError)) {
		return // Such an error shows neither how fast the member writes nor that it can write.
	}
	a.queue.adapt(func(waiting bool, now time.Duration) int { return a.pace.note(member.ConcernsAll(err), waiting, now) })
	if !member.ConcernsAll(err) {
		a.answered()
	}
}

// answered enqueues some of the copies that wait until the member answers.
func (a *applier) answered() {
	for _, key := range a.held.answered() {
		a.queue.add(key, priorityResync)
	}
}

// listed enqueues the copies that wait for the list of a type; known is whether the list succeeded.
func (a *applier) listed(of schema.GroupResource, known bool) {
	if gvr, watched := a.member.Copies.Resource(of); watched && known && !a.member.Copies.Unserved(gvr) {
		a.gates.over(func(id *gateID) bool { return id.resource == gvr && id.reason == reasonTypeNotServed })
	}
	for _, key := range a.unlisted.listed(of, known) {
		a.queue.add(key, priorityResync)
	}
}

// refused handles a write that failed.
func (a *applier) refused(ctx context.Context, key Key, p *desiredState, t *target, r clusterStatus, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errOutdated):
		return reconcile.Result{RequeueAfter: outdatedDelay}, nil
	case errors.Is(err, errArrived):
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // The next attempt finds the written copy.
	case namespaceMissing(err) && placement.Native(namespaceResource.GroupResource(), &metav1.ObjectMeta{Name: key.Namespace}) != "":
		return a.meets(key, t, r, namespaceFailure(key.Namespace, reasonMadeByEachCluster,
			fmt.Sprintf("the cluster has no namespace %s, which it creates itself", key.Namespace), "The copies are written when it exists"))
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

// writeFailed records a write that failed. If other copies share the failure, the copy waits at a gate with them.
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
		return a.done(key, r, 0) // The next attempt follows a change of the content.
	}
	if r.reason == reasonRejected {
		r.message += remedyFor(err)
	}
	return a.failed(key, r)
}
