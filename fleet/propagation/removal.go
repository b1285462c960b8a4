package propagation

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

// remove deletes a copy, or releases a copy that stays on the cluster as a plain object.
func (a *applier) remove(ctx context.Context, key Key, p *desiredState, leaving bool, have member.Copy, found member.Lookup) (reconcile.Result, error) {
	r := a.statusFor(key, p)
	if found != member.Present || (!a.ours(key, have) && !r.stripped(have)) {
		a.guard.done(key)
		if r.state == refractv1alpha1.StateDeleting {
			a.namespaces.tidyLater(key.Namespace) // The copy had finalizers until now.
		}
		r.absent = true
		return a.done(key, r, 0)
	}
	var why cause
	why, r.reason = p.removalCause(leaving)
	if why.asked() && have.Source != sourceOf(a.hub, p.of, key.GroupResource, key.Namespace, key.Name) {
		why = causeMissing // The request was for another object of this name.
	}
	r.state, r.message = refractv1alpha1.StateDeleting, why.of()
	if have.Deleting {
		r.message = "the copy is being deleted and still has finalizers on the cluster"
		return a.done(key, r, 0) // The deletion of the copy causes an event.
	}
	holds := holdingOf(key.GroupResource, have.Keep || p.keeping.Keep, a.keptKinds)
	released := leaving && holds.waits(why) && a.cluster.ReleasesKept(a.member.Name)
	if released || r.stays(have, p.gone || leaving) {
		return a.release(ctx, key, r, have, nil)
	}
	if key.GroupResource == namespaceResource.GroupResource() {
		// A single copy must not take the content of a namespace along: the namespace stays, or is deleted when it is
		// empty.
		var mark any
		if !have.Adopted && !r.adopted {
			mark = a.hub
			a.namespaces.tidyLater(key.Name)
		}
		return a.release(ctx, key, r, have, mark)
	}
	return a.deleteIfAllowed(ctx, key, p, r, have, why, holds)
}

// deleteIfAllowed deletes a copy if its deletion was requested or approved, or if the guard allows it.
func (a *applier) deleteIfAllowed(
	ctx context.Context, key Key, p *desiredState, r clusterStatus, have member.Copy, why cause, holds holding,
) (reconcile.Result, error) {
	asked := why.asked() && !holds.waits(why) && !a.guard.all
	if !asked && !a.knowsAll() {
		if !holds.waits(why) {
			a.collect(removal{key, have.UID, why, false})
		}
		return a.done(key, r, guardSettles)
	}
	needed, err := a.needsApproval(ctx, key)
	if err != nil {
		r.reason, r.message = reasonDeletionFailed, err.Error()
		return a.failed(key, r)
	}
	if asked && !needed {
		return a.delete(ctx, key, r, have)
	}
	going := removal{key, have.UID, why, needed || holds.waits(why)}
	copies := func() map[string]int { return a.state.holds(a.member.Name) }
	answer, left := a.guard.ask(going, copies, a.cluster.Approved(a.member.Name))
	if answer == allow {
		return a.deleteIfProven(ctx, key, p, r, have, why)
	}
	if answer == deny {
		left, r.reason, r.message = lastRetry, reasonAwaitingApproval, a.guard.says(going, a.member.Name)
		if holds.waits(why) {
			r.message = holds.says(why, a.member.Name)
		}
		if needed {
			left = soonRetry // The objects that would be deleted with it may be deleted first.
		}
	}
	return a.done(key, r, left)
}

// deleteIfProven deletes a copy that the guard allows to be deleted. If the placement is the cause, it first asks the
// hub whether the object is still not placed on the cluster.
func (a *applier) deleteIfProven(
	ctx context.Context, key Key, p *desiredState, r clusterStatus, have member.Copy, why cause,
) (reconcile.Result, error) {
	if why == causePlacement {
		proven, err := a.proven(ctx, key, p)
		if err != nil {
			r.reason, r.message = reasonDeletionFailed, err.Error()
			return a.failed(key, r)
		}
		if !proven {
			return a.done(key, r, soonRetry) // The object is decided again as soon as the watches show the change.
		}
	}
	return a.delete(ctx, key, r, have)
}

// knowsAll reports whether all deletions on the member are known: all objects are decided, and the member was
// searched for copies.
func (a *applier) knowsAll() bool { return a.state.complete.Load() && a.member.Copies.Swept() }

// collect announces a removal to the guard until all deletions are known. CustomResourceDefinitions are not announced,
// because needsApproval first checks whether they have objects.
func (a *applier) collect(going removal) {
	if going.GroupResource != crdResource.GroupResource() {
		a.guard.await(going)
	}
}

// removalCause returns the cause of a removal, and the reason for the row of the cluster.
func (p *desiredState) removalCause(leaving bool) (why cause, reason string) {
	switch {
	case p.gone:
		return p.cause, reasonSourceGone
	case leaving:
		return causeLeaves, reasonClusterLeaves
	default:
		return causePlacement, reasonNoLongerPlaced
	}
}

// stays reports whether a copy that no longer belongs on the cluster stays there. It stays in two cases. It has the
// annotation orphan, and the object is gone from the hub or the cluster leaves. Or the cluster itself created the object,
// and an earlier version of Refract made it a copy.
func (r *clusterStatus) stays(have member.Copy, gone bool) bool {
	adopted := have.Adopted || r.adopted
	return have.Native || gone && (have.Orphan == placement.OrphanAll || have.Orphan == placement.OrphanAdopted && adopted)
}

// delete deletes a copy that may be deleted.
func (a *applier) delete(ctx context.Context, key Key, r clusterStatus, have member.Copy) (reconcile.Result, error) {
	return a.deleteThen(ctx, key, r, have, func(gone bool) (reconcile.Result, error) {
		r.absent = gone
		a.namespaces.tidyLater(key.Namespace)
		return a.done(key, r, 0)
	})
}

// deleteThen deletes a copy that may be deleted, and calls then after the request has succeeded. The argument gone is
// whether the cluster no longer had the copy.
func (a *applier) deleteThen(
	ctx context.Context, key Key, r clusterStatus, have member.Copy, then func(gone bool) (reconcile.Result, error),
) (reconcile.Result, error) {
	if left := a.held.pause(key, a.member.Pause); left > 0 {
		return a.paused(key, r, left)
	}
	found, err := a.member.Copies.Delete(ctx, key, have.UID)
	a.wrote(err)
	if err != nil {
		a.guard.done(key)
		r.reason, r.message = reasonDeletionFailed, err.Error()
		return a.failed(key, r)
	}
	a.guard.went(key)
	if !found {
		a.member.Copies.Forget(key)
	}
	return then(!found)
}

// needsApproval reports whether the deletion of the copy deletes other objects as well: the deletion of a
// CustomResourceDefinition deletes all objects of its type.
func (a *applier) needsApproval(ctx context.Context, key Key) (bool, error) {
	if key.GroupResource != crdResource.GroupResource() {
		return false, nil
	}
	some, err := a.member.Objects.Any(ctx, schema.ParseGroupResource(key.Name))
	if err != nil {
		return false, fmt.Errorf("looking for objects of the type on the cluster: %w", err)
	}
	return some, nil
}

// release turns a copy into a plain object. mark is the value of the annotation that names the hub for which a
// namespace was created; nil removes the annotation.
func (a *applier) release(ctx context.Context, key Key, r clusterStatus, have member.Copy, mark any) (reconcile.Result, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    have.UID,
		"labels": map[string]any{corev1alpha1.ManagedLabel: nil},
		"annotations": map[string]any{
			refractv1alpha1.SourceAnnotation: nil, refractv1alpha1.AppliedAnnotation: nil,
			refractv1alpha1.OrphanAnnotation: nil, refractv1alpha1.AdoptedAnnotation: nil, refractv1alpha1.KeepAnnotation: nil,
			refractv1alpha1.NamespaceAnnotation: mark, refractv1alpha1.RemoveAfterAnnotation: nil,
		},
	}})
	if err != nil {
		return reconcile.Result{}, err
	}
	gvr, served := a.member.Copies.Resource(key.GroupResource)
	if !served {
		return a.done(key, r, soonRetry)
	}
	if err := a.member.Objects.Patch(ctx, gvr, key.NamespacedName, patch); err != nil && !apierrors.IsNotFound(err) {
		r.reason, r.message = reasonDeletionFailed, fmt.Sprintf("leaving the copy to the cluster: %v", err)
		return a.failed(key, r)
	}
	a.member.Copies.Forget(key)
	r.absent = true
	return a.done(key, r, 0)
}
