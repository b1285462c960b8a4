package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

const (
	// probeInterval is the interval between two probes of a cluster. It varies by a fifth, so that the probes of a
	// large fleet are spread over time.
	probeInterval = 5 * time.Second
	// leaveInterval is the interval between two reconciliations of a leaving cluster.
	leaveInterval = time.Second
	// foreignInterval is the interval at which a replica that does not lead reconciles a cluster, in case an event was
	// missed. The replica makes no request to the cluster.
	foreignInterval = time.Minute
	// missesUntilLost is the number of consecutive failed probes after which a ready member counts as not ready.
	missesUntilLost = 2
	// probesUntilAsked is the number of successful probes after which a member is identified again.
	probesUntilAsked = 6
	// concurrentProbes bounds the clusters that are probed at the same time. A cluster that does not answer occupies a
	// worker for [probeTimeout], and workers must remain for the others.
	concurrentProbes = 256
	// retryInterval is the delay before another reconciliation after a conflict.
	retryInterval = 500 * time.Millisecond
	// primePerCluster is the time that each cluster adds to the limit of [Reconciler.Prime]. The first contact with a
	// cluster is mostly a TLS handshake.
	primePerCluster = 20 * time.Millisecond
)

// Reconciler keeps the Set in line with the FederatedClusters of the hub, and their status in line with the answers of
// their API servers.
type Reconciler struct {
	Client client.Client
	Set    *Set
	// Secrets reads the Secrets of the system namespace.
	Secrets SecretReader
	// SystemNamespace holds the Secrets.
	SystemNamespace string
	// Hub is the UID of the hub, which cannot be its own member; may be empty.
	Hub types.UID
	// Identity names this process in the user agent of its requests; may be empty.
	Identity string
	// Leads reports whether this process leads. Another process does not connect to the clusters, and takes their
	// readiness from the status that the leader has written. Nil means that this process always leads. When the result
	// changes, [Set.Disown] or [Set.Recheck] must be called.
	Leads func() bool
	// Pending returns the deletions on a cluster that wait for approval; nil if no deletion waits. Known is false while
	// the deletions are not known yet, for example after a start. Then the status keeps the deletions that it lists.
	// Each reconciliation calls Pending. It may be nil.
	Pending func(name string) (held *corev1alpha1.DeletionsHeld, known bool)
	// Used returns the token of the last approved deletions on a cluster, if the approval is used up. It may be nil.
	Used func(name string) string
	// Owed returns the pending deletions on a cluster that no other object on the hub records. Each reconciliation
	// calls it. For a replaced name, it returns the entries in its status that the served name is to list. It may be nil.
	Owed func(name string) []corev1alpha1.PendingDeletion
	// Now returns the time for the renewal of credentials; nil means time.Now.
	Now func() time.Time
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("federatedcluster").
		For(&corev1alpha1.FederatedCluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: r.concerns})).
		WatchesRawSource(source.Channel(r.Secrets.Changes(), handler.EnqueueRequestsFromMapFunc(r.clustersOf))).
		WatchesRawSource(source.Channel(r.Set.rechecks(), &handler.EnqueueRequestForObject{})).
		// Every replica reconciles the clusters, so that it is ready to lead.
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentProbes, NeedLeaderElection: new(false)}).
		Complete(r)
}

// concerns reports whether an update is a relevant change of a cluster, and not just a report of Refract itself.
func (r *Reconciler) concerns(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*corev1alpha1.FederatedCluster)
	after, ok2 := e.ObjectNew.(*corev1alpha1.FederatedCluster)
	if !ok1 || !ok2 {
		return false
	}
	const approval, release = refractv1alpha1.ApproveAnnotation, refractv1alpha1.ReleaseKeptAnnotation
	return before.Generation != after.Generation || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		!maps.Equal(before.Labels, after.Labels) || !slices.Equal(before.Finalizers, after.Finalizers) ||
		before.Annotations[approval] != after.Annotations[approval] || before.Annotations[release] != after.Annotations[release] ||
		replaces(before) != replaces(after) ||
		before.Status.ClusterUID != after.Status.ClusterUID || before.Status.ClusterClaim != after.Status.ClusterClaim ||
		(!r.leads() && (isTrue(&before.Status, corev1alpha1.ClusterReady) != isTrue(&after.Status, corev1alpha1.ClusterReady) ||
			!slices.Equal(before.Status.APIResourceTypes, after.Status.APIResourceTypes)))
}

func (r *Reconciler) leads() bool { return r.Leads == nil || r.Leads() }

// clustersOf returns the clusters that use a Secret.
func (r *Reconciler) clustersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil // The cache is not ready yet. When it is ready, every cluster will be reconciled.
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.SecretRef.Name == secret.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// Prime returns when every current cluster of the hub was reconciled once, so that the first placement decisions know
// all clusters. It has a time limit, because some API servers may not answer.
func (r *Reconciler) Prime(ctx context.Context) error {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	for i := range list.Items {
		// Placement must know all clusters, also those with slow API servers.
		r.Set.introduce(&list.Items[i])
	}
	if err := r.followAll(ctx); err != nil {
		return err
	}
	atMost := 2*probeTimeout + time.Duration(len(list.Items))*primePerCluster
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, atMost, false, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(list.Items, func(fc corev1alpha1.FederatedCluster) bool { return !r.Set.examined(fc.Name) }), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return err
}

// Reconcile reconciles one FederatedCluster.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	fc := &corev1alpha1.FederatedCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, fc); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, r.left(ctx, req.Name)
		}
		return reconcile.Result{}, err
	}
	r.Set.introduce(fc)
	is, err := r.decide(ctx, fc)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !r.leads() {
		r.Set.Disown(fc.Name)
		ready := is.standing != renamed && isTrue(&fc.Status, corev1alpha1.ClusterReady)
		r.Set.observe(fc, outlook{ready: ready, hidden: is.hidden(fc), stays: is.contested != ""})
		r.Set.markExamined(fc.Name)
		return reconcile.Result{RequeueAfter: about(fc.Name, foreignInterval)}, nil
	}
	if fc.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(fc, refractv1alpha1.Finalizer) {
		// The finalizer must exist before the first copy is written.
		if err := r.setFinalizer(ctx, fc, controllerutil.AddFinalizer); err != nil {
			return again(err)
		}
	}
	if is.standing == renamed {
		return r.retire(ctx, fc, is)
	}
	wasLeaving := r.Set.Leaving(fc.Name)
	h, err := r.examine(ctx, fc)
	switch {
	case errors.Is(err, errLeft), errors.Is(err, errUnsettled):
		return reconcile.Result{RequeueAfter: retryInterval}, nil
	case err != nil:
		return again(err)
	}
	if h.ready && fc.DeletionTimestamp.IsZero() {
		is = outcome{decision: decision{standing: inService}}
	} else if is, err = r.decide(ctx, fc); err != nil { // The cluster may have been identified meanwhile.
		return reconcile.Result{}, err
	}
	before := fc.DeepCopy()
	if m := r.Set.Get(fc.Name); m != nil {
		m.Copies.versions.writeTo(&fc.Status)
	}
	r.noteOwed(fc)
	r.Set.observe(fc, outlook{ready: h.ready, hidden: is.hidden(fc), stays: is.contested != ""})
	r.Set.markExamined(fc.Name)
	meter(fc.Name).ready(h.ready)
	next := about(fc.Name, probeInterval)
	if !fc.DeletionTimestamp.IsZero() {
		next = leaveInterval
		var free bool
		// The first reconciliation after the deletion does not remove the finalizer, because a decision from before may
		// still be carried out.
		if h.leaving, free = r.release(fc, h, is); free && (wasLeaving || is.standing == duplicate) {
			return again(r.setFinalizer(ctx, fc, controllerutil.RemoveFinalizer))
		}
	}
	if r.isUsed(fc) {
		// The change causes another reconciliation.
		return again(r.takeBack(ctx, fc))
	}
	h.held, h.pending = r.pending(fc)
	return r.report(ctx, before, fc, h, next)
}

// noteOwed writes into the status of a cluster those pending deletions that are recorded in no other object.
func (r *Reconciler) noteOwed(fc *corev1alpha1.FederatedCluster) {
	if r.Owed != nil && r.leads() {
		fc.Status.PendingDeletions = r.Owed(fc.Name)
	}
}

// pending returns the deletions on a cluster that wait for approval, and a message about them. After a start, the
// reported state stays until these deletions are known.
func (r *Reconciler) pending(fc *corev1alpha1.FederatedCluster) (held *corev1alpha1.DeletionsHeld, message string) {
	held = fc.Status.DeletionsHeld
	if r.Pending != nil && r.leads() {
		if now, known := r.Pending(fc.Name); known {
			held = now
		}
	}
	if held == nil {
		return nil, ""
	}
	return held, PendingMessage(held, fc.Name)
}

// report writes the result of a reconciliation into the status of a cluster, if the status changes. Before is the
// FederatedCluster before the reconciliation.
func (r *Reconciler) report(ctx context.Context, before, fc *corev1alpha1.FederatedCluster, h health, next time.Duration) (reconcile.Result, error) {
	if setConditions(&fc.Status, h, metav1.Now()); equality.Semantic.DeepEqual(before.Status, fc.Status) || !r.leads() {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	// The conditions are one list, and other writers own some of them: a write must not undo their changes.
	if err := r.Client.Status().Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return again(err)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// isUsed reports whether the approval in the annotation of the cluster is used up.
func (r *Reconciler) isUsed(fc *corev1alpha1.FederatedCluster) bool {
	token := fc.Annotations[refractv1alpha1.ApproveAnnotation]
	return token != "" && r.Used != nil && r.leads() && r.Used(fc.Name) == token
}

// takeBack removes a used approval, so that it approves nothing later.
func (r *Reconciler) takeBack(ctx context.Context, fc *corev1alpha1.FederatedCluster) error {
	before := fc.DeepCopy()
	delete(fc.Annotations, refractv1alpha1.ApproveAnnotation)
	return r.Client.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// again returns a delayed retry for a conflict, and no error for an object that does not exist any more.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retryInterval}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

func (r *Reconciler) setFinalizer(ctx context.Context, fc *corev1alpha1.FederatedCluster, set func(client.Object, string) bool) error {
	before := fc.DeepCopy()
	if !set(fc, refractv1alpha1.Finalizer) {
		return nil
	}
	return r.Client.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// release reports whether a cluster is free to leave. Why is the reason why it must stay, or the fate of its copies.
func (r *Reconciler) release(fc *corev1alpha1.FederatedCluster, h health, is outcome) (why string, free bool) {
	m := r.Set.Get(fc.Name)
	switch {
	case is.standing == duplicate:
		return fmt.Sprintf("the cluster is served as %s: its copies stay as they are", is.other), true
	case !h.ready && !fc.Status.JoinPerformed:
		return "it was never ready: nothing was placed on it", true
	case is.contested != "":
		const format = "%s is another name of this cluster, or may be one. Refract deletes nothing from it while that name exists: " +
			"`refract join %s --replaces %s` replaces this name by it; `refract unjoin %s --force` removes that name only"
		return fmt.Sprintf(format, is.contested, is.contested, fc.Name, is.contested), false
	case !h.ready || m == nil:
		return fmt.Sprintf("the copies on it cannot be removed while it is not ready; `refract unjoin %s --force` leaves them where they are", fc.Name), false
	}
	left, going, known := r.Set.remaining(m)
	switch {
	case left > 0:
		return fmt.Sprintf("copies on it that are still to be removed: %d", left) + stillThere(going), false
	case !known:
		if m.Copies.doubts() {
			r.Set.sweeps.add(m.sweep, true)
		}
		return "the copies on it are not known yet", false
	case r.Set.Emptied != nil && !r.Set.Emptied(fc.Name):
		return "the removal of its copies is being recorded", false
	default:
		return "its copies are gone", true
	}
}

// stillThere names the copies on a cluster that are being deleted but still exist: a user must remove their finalizers.
// Copies without finalizers are gone before a user reads the message. The names are sorted, so that the message does
// not change each time.
func stillThere(going []Key) string {
	const most = 3
	if len(going) == 0 {
		return ""
	}
	names := make([]string, 0, len(going))
	for _, key := range going {
		names = append(names, key.Resource+" "+strings.TrimPrefix(key.NamespacedName.String(), "/"))
	}
	slices.Sort(names)
	text := "; being deleted, and kept by finalizers on the cluster: " + strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
