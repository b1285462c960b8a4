package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// errUnsettled is returned while the served name of a cluster is not known yet.
var errUnsettled = errors.New("the served name of the cluster is not known yet")

// patienceWithOthers bounds the wait of a name that has recorded its cluster. The name waits for older names without a
// record, because an earlier version of Refract served clusters without a record. It also waits for names whose record
// may be older than a rebuild of the cluster. The wait is bounded, because another name may never identify its cluster,
// or may belong to another cluster.
const patienceWithOthers = 10 * time.Second

// outcome is a decision about a name. For a FederatedCluster that is being deleted, it also names the obstacle.
type outcome struct {
	decision

	contested string // Another name, because of which a deleted FederatedCluster must stay; see [contested].
}

// hidden reports whether a cluster gets no placements, because it is served under another name or is not identified
// yet. A name that was served once keeps its placements, like an unreachable cluster.
func (o *outcome) hidden(fc *corev1alpha1.FederatedCluster) bool {
	return o.standing == renamed || o.standing != inService && unserved(fc)
}

// unserved reports whether a FederatedCluster was never served.
func unserved(fc *corev1alpha1.FederatedCluster) bool {
	return !fc.Status.JoinPerformed && !isTrue(&fc.Status, corev1alpha1.ClusterReady)
}

// all returns the FederatedClusters. Callers must not modify them.
func (r *Reconciler) all(ctx context.Context) ([]corev1alpha1.FederatedCluster, error) {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	return list.Items, nil
}

// decide returns the decision about a FederatedCluster, and records renamed clusters in this process. A cluster that is
// served, ready and not being deleted needs no further decision.
func (r *Reconciler) decide(ctx context.Context, fc *corev1alpha1.FederatedCluster) (outcome, error) {
	if m := r.Set.Get(fc.Name); m != nil && m.Ready() && fc.DeletionTimestamp.IsZero() && r.Set.names.successor(fc.Name) == "" {
		return outcome{decision: decision{standing: inService}}, nil
	}
	now, all, err := r.follow(ctx, fc.Name)
	if err != nil {
		return outcome{}, err
	}
	is := outcome{decision: now}
	if !fc.DeletionTimestamp.IsZero() && is.standing != duplicate && is.standing != renamed {
		is.contested = contested(fc, all)
	}
	return is, nil
}

// follow returns the standing of a name among all FederatedClusters, and records the consequences for other names in
// this process. Before it returns, it waits for the end of all work under the names that this name has replaced.
func (r *Reconciler) follow(ctx context.Context, name string) (decision, []corev1alpha1.FederatedCluster, error) {
	var is decision
	all, err := r.learn(ctx, func(all []corev1alpha1.FederatedCluster) []func() {
		is = stand(name, all)
		return append(r.rename(name, is), r.doubt(name, is, all)...)
	})
	if err != nil {
		return decision{}, nil, err
	}
	return is, all, r.Set.names.wait(ctx, name) // Another goroutine may have recorded the rename, and the end of the work may take longer.
}

// followAll is [Reconciler.follow] for all names that replace another one.
func (r *Reconciler) followAll(ctx context.Context) error {
	_, err := r.learn(ctx, func(all []corev1alpha1.FederatedCluster) (then []func()) {
		for i := range all {
			if replaces(&all[i]) != "" {
				then = append(then, r.rename(all[i].Name, stand(all[i].Name, all))...)
			}
		}
		return then
	})
	return err
}

// learn reads the FederatedClusters and passes them to the function what, both under the lock names.renaming. After
// releasing the lock, it calls the functions that what has returned.
func (r *Reconciler) learn(ctx context.Context, what func(all []corev1alpha1.FederatedCluster) []func()) ([]corev1alpha1.FederatedCluster, error) {
	all, then, err := func() ([]corev1alpha1.FederatedCluster, []func(), error) {
		r.Set.names.renaming.Lock()
		defer r.Set.names.renaming.Unlock()
		all, err := r.all(ctx)
		if err != nil {
			return nil, nil, err
		}
		return all, what(all), nil
	}()
	for _, do := range then {
		do()
	}
	return all, err
}

// rename records in this process the consequences of the standing of a name, for this name and for others. It returns
// the functions to call after the lock names.renaming is released. The lock must be held.
func (r *Reconciler) rename(name string, is decision) (then []func()) {
	note := func(from, to string) {
		if e := r.Set.rename(from, to); e != nil {
			then = append(then, func() { r.Set.end(e) })
		}
	}
	switch is.standing {
	case inService:
		if r.Set.reinstate(name) {
			then = append(then, func() { r.Set.OnChange(name) })
		}
		for _, former := range is.former {
			note(former, name)
		}
	case renamed:
		note(name, is.other)
	case unclaimed, choosing, waiting, duplicate:
	}
	return then
}

// doubt does nothing unless the name records a cluster but is not served yet. It then finds the members at the same
// address that record another cluster, and triggers another identification of them. The name waits for the result; see
// [unasked]. Otherwise a cluster that was rebuilt since its last check could get writes under both names.
func (r *Reconciler) doubt(name string, is decision, all []corev1alpha1.FederatedCluster) (then []func()) {
	at := slices.IndexFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
	if is.standing != choosing || at < 0 {
		return nil
	}
	for i := range all {
		if rivals(&all[i], &all[at]) {
			then = append(then, func() { r.Set.doubt(all[i].Name, all[at].Status.ClusterUID) })
		}
	}
	return then
}

// left forgets a FederatedCluster that is gone. If another name replaces it, left records this first, so that the new
// name keeps the data of the old one.
func (r *Reconciler) left(ctx context.Context, name string) error {
	back := false
	_, err := r.learn(ctx, func(all []corev1alpha1.FederatedCluster) (then []func()) {
		for i := range all {
			switch {
			case all[i].Name == name:
				back = true // The FederatedCluster exists again, and is reconciled because of that.
			case replaces(&all[i]) == name:
				then = append(then, r.rename(all[i].Name, stand(all[i].Name, all))...)
			}
		}
		return then
	})
	if err != nil || back {
		return err
	}
	if err := r.Set.names.wait(ctx, name); err != nil {
		return err
	}
	r.Set.remove(name)
	return nil
}

// claim records the cluster of a name in the status. If the cluster is served under another name, claim returns that
// name. The error is [errUnsettled] if claim must be called again. Only after claim has returned "" without an error,
// the cluster may be written to.
//
// Each decision uses the cached FederatedClusters. It is written only if the FederatedCluster has not changed since.
func (r *Reconciler) claim(ctx context.Context, fc *corev1alpha1.FederatedCluster, uid types.UID) (other string, err error) {
	for {
		is, all, err := r.followed(ctx, fc)
		if err != nil {
			return "", err
		}
		at := slices.IndexFunc(all, func(o corev1alpha1.FederatedCluster) bool { return o.Name == fc.Name })
		if at < 0 || all[at].UID != fc.UID || all[at].ResourceVersion != fc.ResourceVersion {
			return "", errUnsettled // The cache is older than the last write, or newer than fc.
		}
		patience := r.Set.waits(fc.Name, uid, r.now()) < patienceWithOthers
		next := fc.DeepCopy()
		switch written, settled := advance(next, uid, all, patience); {
		case is.standing == waiting && fc.Status.ClusterUID == uid:
			return "", errUnsettled
		case settled:
			if is.standing == inService {
				r.oust(uid, all)
			}
			return is.other, nil
		case !written:
			return "", errUnsettled
		}
		if err := r.Client.Status().Patch(ctx, next, client.MergeFromWithOptions(fc, client.MergeFromWithOptimisticLock{})); err != nil {
			return "", err
		}
		next.DeepCopyInto(fc)
	}
}

// oust ends the work under duplicates of the served name of a cluster. There is such work only after a restore of the
// hub, if the hub then records another served name than before.
func (r *Reconciler) oust(uid types.UID, all []corev1alpha1.FederatedCluster) {
	for _, fc := range namesOf(uid, all) {
		if m := r.Set.Get(fc.Name); m != nil && m.Ready() && stand(fc.Name, all).standing == duplicate {
			r.Set.Disown(fc.Name)
			r.Set.Recheck(fc.Name)
		}
	}
}

// followed waits until the cache has the version fc of the FederatedCluster, and then calls [Reconciler.follow]. It
// waits at most half a second, because another reconciliation would take longer. Then it returns [errUnsettled].
func (r *Reconciler) followed(ctx context.Context, fc *corev1alpha1.FederatedCluster) (is decision, all []corev1alpha1.FederatedCluster, err error) {
	const moment, tick = 500 * time.Millisecond, 5 * time.Millisecond
	cached := &corev1alpha1.FederatedCluster{}
	err = wait.PollUntilContextTimeout(ctx, tick, moment, true, func(ctx context.Context) (bool, error) {
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(fc), cached)
		return cached.ResourceVersion == fc.ResourceVersion, err
	})
	switch {
	case ctx.Err() != nil:
		return decision{}, nil, ctx.Err()
	case wait.Interrupted(err):
		return decision{}, nil, errUnsettled
	case err != nil:
		return decision{}, nil, err
	}
	return r.follow(ctx, fc.Name)
}

// Behind reports whether a [Set] may not know the latest state of a FederatedCluster: the name is served, or the
// version on the hub differs from the cached one. The client live reads from the hub.
func (r *Reconciler) Behind(ctx context.Context, live client.Reader, name string) (bool, error) {
	all, err := r.all(ctx)
	if err != nil {
		return false, err
	}
	if stand(name, all).standing == inService {
		return true, nil
	}
	fc := &corev1alpha1.FederatedCluster{}
	switch err := live.Get(ctx, types.NamespacedName{Name: name}, fc); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading cluster %q: %w", name, err)
	}
	return !slices.ContainsFunc(all, func(o corev1alpha1.FederatedCluster) bool {
		return o.Name == name && o.ResourceVersion == fc.ResourceVersion
	}), nil
}

// retire handles a name that another one has replaced. No work is done through such a name. Its FederatedCluster may be
// deleted when no row of a Propagation names it, the served name lists its pending deletions, and no duplicate has a
// lower rank than the served name.
func (r *Reconciler) retire(ctx context.Context, fc *corev1alpha1.FederatedCluster, is outcome) (reconcile.Result, error) {
	r.Set.Disown(fc.Name)
	r.Set.observe(fc, outlook{hidden: true})
	r.Set.markExamined(fc.Name)
	meter(fc.Name).ready(false)
	all, err := r.all(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := fc.DeepCopy()
	r.noteOwed(fc)
	fc.Status.PendingDeletions = notListed(fc.Status.PendingDeletions, is.other, all)
	h := health{joined: true, reason: corev1alpha1.ReasonRenamed, message: renamedMessage(fc.Name, is.other)}
	if !fc.DeletionTimestamp.IsZero() {
		if r.Set.Moved == nil || r.Set.Moved(fc.Name) && len(fc.Status.PendingDeletions) == 0 && precedes(fc.Status.ClusterUID, all) == "" {
			return again(r.setFinalizer(ctx, fc, controllerutil.RemoveFinalizer))
		}
		h.leaving = "its records on the hub are being moved to " + is.other
	}
	return r.report(ctx, before, fc, h, leaveInterval)
}

// notListed returns the pending deletions that the status of a name does not list. A restart then loses none.
func notListed(owed []corev1alpha1.PendingDeletion, name string, all []corev1alpha1.FederatedCluster) []corev1alpha1.PendingDeletion {
	at := slices.IndexFunc(all, func(fc corev1alpha1.FederatedCluster) bool { return fc.Name == name })
	if at < 0 {
		return owed
	}
	listed := map[Key]bool{}
	for i := range all[at].Status.PendingDeletions {
		listed[OwedKey(&all[at].Status.PendingDeletions[i])] = true
	}
	return slices.DeleteFunc(slices.Clone(owed), func(d corev1alpha1.PendingDeletion) bool { return listed[OwedKey(&d)] })
}

// waits returns the time for which a name has waited for other names since its cluster was identified.
func (s *Set) waits(name string, as types.UID, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	if j == nil {
		return 0
	}
	if j.waiting.IsZero() || j.waitsAs != as {
		j.waiting, j.waitsAs = now, as
	}
	return now.Sub(j.waiting)
}
