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
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// errUnsettled is returned while it is not known which name of a cluster is served.
var errUnsettled = errors.New("it is not known yet which name of the cluster is served")

// patienceWithOlder is how long a name that was served before names recorded their clusters waits for the older ones to
// record theirs. One of them may not answer, or not say which cluster it is.
const patienceWithOlder = 10 * time.Second

// outcome is a decision about a name, and what it means for a FederatedCluster that is deleted.
type outcome struct {
	decision

	contested string // Another name that keeps a deleted one from leaving; see [contested].
}

// hidden reports whether nothing is placed on a cluster: it is served under another name, or it is not known yet which cluster
// it is. A name that was served once keeps what is placed on it, as a cluster does that cannot be reached.
func (o *outcome) hidden(fc *corev1alpha1.FederatedCluster) bool {
	return o.standing == renamed || o.standing != inService && unserved(fc)
}

// unserved reports whether a FederatedCluster was never served.
func unserved(fc *corev1alpha1.FederatedCluster) bool {
	return !fc.Status.JoinPerformed && !isTrue(&fc.Status, corev1alpha1.ClusterReady)
}

// all returns the FederatedClusters, of which none is to be modified.
func (r *Reconciler) all(ctx context.Context) ([]corev1alpha1.FederatedCluster, error) {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing clusters: %w", err)
	}
	return list.Items, nil
}

// decide returns what a FederatedCluster may do, and has this process know the clusters that have other names now. One that is served
// and stays is not decided about again.
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

// follow returns the standing of a name among all FederatedClusters, and has this process know what follows for other names.
func (r *Reconciler) follow(ctx context.Context, name string) (decision, []corev1alpha1.FederatedCluster, error) {
	r.Set.names.renaming.Lock()
	defer r.Set.names.renaming.Unlock()
	all, err := r.all(ctx)
	if err != nil {
		return decision{}, nil, err
	}
	is := stand(name, all)
	r.rename(name, is)
	return is, all, nil
}

// followAll is follow for all names.
func (r *Reconciler) followAll(ctx context.Context) error {
	r.Set.names.renaming.Lock()
	defer r.Set.names.renaming.Unlock()
	all, err := r.all(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if replaces(&all[i]) != "" {
			r.rename(all[i].Name, stand(all[i].Name, all))
		}
	}
	return nil
}

// rename has this process know what the standing of a name says of others. The lock names.renaming must be held.
func (r *Reconciler) rename(name string, is decision) {
	switch is.standing {
	case inService:
		for _, former := range is.former {
			r.Set.rename(former, name)
		}
	case renamed:
		r.Set.rename(name, is.other)
	case unclaimed, choosing, waiting, duplicate:
	}
}

// left forgets a FederatedCluster that is gone. Which name has taken its place is found out first: what was known under the old
// name is not to be lost.
func (r *Reconciler) left(ctx context.Context, name string) error {
	r.Set.names.renaming.Lock()
	defer r.Set.names.renaming.Unlock()
	all, err := r.all(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		switch {
		case all[i].Name == name:
			return nil // It is there again, and looked at for that.
		case replaces(&all[i]) == name:
			r.rename(all[i].Name, stand(all[i].Name, all))
		}
	}
	r.Set.remove(name)
	return nil
}

// claim records in the status which cluster a name is of, and returns the name that is served if that is another one. It returns
// [errUnsettled] when it is to be asked again. Nothing may be written to the cluster before it has returned no error and no name.
//
// Each step is decided by what the cache shows, and written only if the FederatedCluster is still as it is there.
func (r *Reconciler) claim(ctx context.Context, fc *corev1alpha1.FederatedCluster, uid types.UID) (other string, err error) {
	for {
		is, all, err := r.followed(ctx, fc)
		if err != nil {
			return "", err
		}
		at := slices.IndexFunc(all, func(o corev1alpha1.FederatedCluster) bool { return o.Name == fc.Name })
		if at < 0 || all[at].UID != fc.UID || all[at].ResourceVersion != fc.ResourceVersion {
			return "", errUnsettled // The cache is behind what was written last, or ahead of what was read.
		}
		patience := r.Set.waits(fc.Name, r.now()) < patienceWithOlder
		next := fc.DeepCopy()
		switch written, settled := advance(next, uid, all, patience); {
		case is.standing == waiting && fc.Status.ClusterUID == uid:
			return "", r.align(ctx, fc, all)
		case settled:
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

// followed is follow as soon as the cache has a FederatedCluster as it was written last, or after a moment: to ask the cluster again, in
// another turn, takes more than that.
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

// align has a name that takes the place of another be assigned to the same replica, and returns [errUnsettled].
func (r *Reconciler) align(ctx context.Context, fc *corev1alpha1.FederatedCluster, all []corev1alpha1.FederatedCluster) error {
	at := slices.IndexFunc(all, func(o corev1alpha1.FederatedCluster) bool { return o.Name == replaces(fc) })
	if at < 0 || shardOf(&all[at]) == shardOf(fc) {
		return errUnsettled
	}
	next := fc.DeepCopy()
	if next.Annotations[refractv1alpha1.ShardAnnotation] = shardOf(&all[at]); shardOf(&all[at]) == fc.Name {
		delete(next.Annotations, refractv1alpha1.ShardAnnotation)
	}
	if err := r.Client.Patch(ctx, next, client.MergeFromWithOptions(fc, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	return errUnsettled
}

// Behind reports whether more is known of a FederatedCluster than a [Set] has taken in: its name may be served, or there may be
// another version of it.
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

// retire looks at a name whose place another one has taken: nothing is done through it, and it may go when no row of a Propagation has
// it any more.
func (r *Reconciler) retire(ctx context.Context, fc *corev1alpha1.FederatedCluster, is outcome) (reconcile.Result, error) {
	r.Set.Disown(fc.Name)
	r.Set.observe(fc, outlook{hidden: true})
	r.Set.markExamined(fc.Name)
	meter(fc.Name).ready(false)
	before := fc.DeepCopy()
	h := health{joined: true, reason: corev1alpha1.ReasonRenamed, message: renamedMessage(fc.Name, is.other)}
	if !fc.DeletionTimestamp.IsZero() {
		all, err := r.all(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		if r.Set.Moved == nil || r.Set.Moved(fc.Name) && precedes(fc.Status.ClusterUID, all) == "" {
			return again(r.setFinalizer(ctx, fc, controllerutil.RemoveFinalizer))
		}
		h.leaving = "what names it in Propagations is being changed to " + is.other
	}
	return r.report(ctx, before, fc, h, leaveInterval)
}

// waits returns for how long a name has waited for others.
func (s *Set) waits(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.members[name]
	if j == nil {
		return 0
	}
	if j.waiting.IsZero() {
		j.waiting = now
	}
	return now.Sub(j.waiting)
}
