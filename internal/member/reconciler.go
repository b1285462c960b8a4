package member

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
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
	"refract.dev/internal/output"
)

const (
	// probeInterval is how often each cluster is asked whether it is ready, give or
	// take a fifth, so that a large fleet is not asked all at once.
	probeInterval = 5 * time.Second
	// leaveInterval is how often a cluster that leaves is looked at.
	leaveInterval = time.Second
	// foreignInterval is how often a cluster that another replica owns is looked at,
	// should an event have been missed. No request is made to it.
	foreignInterval = time.Minute
	// missesUntilLost is how many probes in a row must fail before a member that was
	// ready is not.
	missesUntilLost = 2
	// probesUntilAsked is after how many probes a member is asked who it is, though
	// none has failed.
	probesUntilAsked = 6
	// concurrentProbes bounds how many clusters are asked at once. Those that do not answer
	// take [probeTimeout] each: there must be workers left for the others.
	concurrentProbes = 256
	// retryInterval is when a cluster is looked at again that became another meanwhile.
	retryInterval = 500 * time.Millisecond
	// primePerCluster is what each cluster adds to how long [Reconciler.Prime] waits: the
	// first look at one is mostly a TLS handshake.
	primePerCluster = 20 * time.Millisecond
)

// Reconciler keeps the Set in line with the FederatedClusters of the hub and
// their status in line with what their API servers say.
type Reconciler struct {
	Client client.Client
	Set    *Set
	// Secrets reads those of the system namespace.
	Secrets SecretReader
	// SystemNamespace holds the Secrets.
	SystemNamespace string
	// Hub is the UID of the hub, which is no member of itself; may be empty.
	Hub types.UID
	// Identity names this process in its user agent; may be empty.
	Identity string
	// Owns reports whether a cluster is this process's business. Others it does not
	// connect to; whether they are ready is what their owner has written. Nil means
	// that all are. When the answer changes, [Set.Disown] or [Set.Recheck] must be called.
	Owns func(name string) bool
	// Pending returns the deletions on a cluster that wait for approval; nil if none do. Known is false
	// while nobody can tell, as after a start: then what is reported stands. It is asked at each look. It may be nil.
	Pending func(name string) (held *corev1alpha1.DeletionsHeld, known bool)
	// Used returns the token of the deletions on a cluster that were approved last, if it stands for nothing any more. It
	// may be nil.
	Used func(name string) string
	// Owed returns the copies on a cluster that are to be deleted and of which the hub has no other record. It is asked at
	// each look. It may be nil.
	Owed func(name string) []corev1alpha1.PendingDeletion
	// Now tells the time by which credentials are renewed; time.Now if nil.
	Now func() time.Time
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("federatedcluster").
		For(&corev1alpha1.FederatedCluster{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: r.concerns})).
		WatchesRawSource(source.Channel(r.Secrets.Changes(), handler.EnqueueRequestsFromMapFunc(r.clustersOf))).
		WatchesRawSource(source.Channel(r.Set.rechecks(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentProbes, NeedLeaderElection: new(false)}). // Owns says what is for others.
		Complete(r)
}

// concerns tells changes of a cluster from those that are our own reports.
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
		replaces(before) != replaces(after) || shardOf(before) != shardOf(after) ||
		before.Status.ClusterUID != after.Status.ClusterUID || before.Status.ClusterClaim != after.Status.ClusterClaim ||
		(!r.owns(after.Name) && (isTrue(&before.Status, corev1alpha1.ClusterReady) != isTrue(&after.Status, corev1alpha1.ClusterReady) ||
			!slices.Equal(before.Status.APIResourceTypes, after.Status.APIResourceTypes)))
}

func (r *Reconciler) owns(name string) bool { return r.Owns == nil || r.Owns(name) }

// clustersOf returns the clusters that use a Secret.
func (r *Reconciler) clustersOf(ctx context.Context, secret client.Object) []reconcile.Request {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil // The cache is not there yet: every cluster will be looked at anyway.
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Spec.SecretRef.Name == secret.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// Prime returns when every cluster that the hub has now was looked at once, so
// that the first decisions about placement know them all; or when that takes
// longer than API servers may take to answer.
func (r *Reconciler) Prime(ctx context.Context) error {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	for i := range list.Items {
		// Placement must know all of them, also those that take long to answer.
		r.Set.introduce(&list.Items[i])
	}
	if err := r.followAll(ctx); err != nil {
		return err
	}
	atMost := 2*probeTimeout + time.Duration(len(list.Items))*primePerCluster
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, atMost, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(list.Items, func(fc corev1alpha1.FederatedCluster) bool { return !r.Set.examined(fc.Name) }), nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return err
}

// Reconcile looks at one cluster.
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
	if !r.owns(fc.Name) {
		r.Set.Disown(fc.Name)
		ready := is.standing != renamed && isTrue(&fc.Status, corev1alpha1.ClusterReady)
		r.Set.observe(fc, outlook{ready: ready, hidden: is.hidden(fc), stays: is.contested != ""})
		r.Set.markExamined(fc.Name)
		return reconcile.Result{RequeueAfter: jitter(foreignInterval)}, nil
	}
	if fc.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(fc, refractv1alpha1.Finalizer) {
		// Before the first copy can be written.
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
	} else if is, err = r.decide(ctx, fc); err != nil { // It may have turned out which cluster it is.
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
	next := jitter(probeInterval)
	if !fc.DeletionTimestamp.IsZero() {
		next = leaveInterval
		var free bool
		// What was decided before it was known to leave must not come after it has left.
		if h.leaving, free = r.release(fc, h, is); free && (wasLeaving || is.standing == duplicate) {
			return again(r.setFinalizer(ctx, fc, controllerutil.RemoveFinalizer))
		}
	}
	if r.isUsed(fc) {
		// The change has the cluster looked at again.
		return again(r.takeBack(ctx, fc))
	}
	h.held, h.pending = r.pending(fc)
	return r.report(ctx, before, fc, h, next)
}

// noteOwed has the status of a cluster say which of its copies are to be deleted and are not recorded elsewhere.
func (r *Reconciler) noteOwed(fc *corev1alpha1.FederatedCluster) {
	if r.Owed != nil && r.owns(fc.Name) {
		fc.Status.PendingDeletions = r.Owed(fc.Name)
	}
}

// pending returns the deletions on a cluster that wait for approval, and says so in words. What is reported stands
// until it is known what waits, as after a start.
func (r *Reconciler) pending(fc *corev1alpha1.FederatedCluster) (held *corev1alpha1.DeletionsHeld, message string) {
	held = fc.Status.DeletionsHeld
	if r.Pending != nil && r.owns(fc.Name) {
		if now, known := r.Pending(fc.Name); known {
			held = now
		}
	}
	if held == nil {
		return nil, ""
	}
	return held, PendingMessage(held, fc.Name)
}

// report writes what came of looking at a cluster into its status, if that is news.
// Before is the FederatedCluster as it was.
func (r *Reconciler) report(ctx context.Context, before, fc *corev1alpha1.FederatedCluster, h health, next time.Duration) (reconcile.Result, error) {
	if setConditions(&fc.Status, h, metav1.Now()); equality.Semantic.DeepEqual(before.Status, fc.Status) || !r.owns(fc.Name) {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	// Conditions are one list, of which others write some: theirs are not to be undone.
	if err := r.Client.Status().Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return again(err)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// isUsed reports whether the approval of deletions that the cluster has was used.
func (r *Reconciler) isUsed(fc *corev1alpha1.FederatedCluster) bool {
	token := fc.Annotations[refractv1alpha1.ApproveAnnotation]
	return token != "" && r.Used != nil && r.owns(fc.Name) && r.Used(fc.Name) == token
}

// takeBack removes an approval that was used, so that it approves nothing at another time.
func (r *Reconciler) takeBack(ctx context.Context, fc *corev1alpha1.FederatedCluster) error {
	before := fc.DeepCopy()
	delete(fc.Annotations, refractv1alpha1.ApproveAnnotation)
	return r.Client.Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// again has a conflict tried again, silently, and an object that is gone not.
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

// release reports whether nothing keeps a cluster from leaving, and else what
// does.
func (r *Reconciler) release(fc *corev1alpha1.FederatedCluster, h health, is outcome) (why string, free bool) {
	m := r.Set.Get(fc.Name)
	switch {
	case is.standing == duplicate:
		return fmt.Sprintf("the cluster is served as %s: its copies stay as they are", is.other), true
	case !h.ready && !fc.Status.JoinPerformed:
		return "it was never ready: nothing was placed on it", true
	case is.contested != "":
		const format = "%s is another name of this cluster, or may be one, and nothing is deleted from the cluster while it is there: " +
			"`refract join %s --replaces %s` has it take the place of this one; `refract unjoin %s --force` removes that name only"
		return fmt.Sprintf(format, is.contested, is.contested, fc.Name, is.contested), false
	case !h.ready || m == nil:
		return fmt.Sprintf("the copies on it cannot be removed while it is not ready; `refract unjoin %s --force` leaves them where they are", fc.Name), false
	}
	left, known := r.Set.remaining(m)
	switch {
	case left > 0:
		return fmt.Sprintf("copies on it that are still to be removed: %d", left), false
	case !known:
		if m.Copies.doubts() {
			r.Set.sweeps.add(m.sweep, true)
		}
		return "it is not known yet which copies are on it", false
	case r.Set.Emptied != nil && !r.Set.Emptied(fc.Name):
		return "the removal of its copies is being recorded", false
	default:
		return "its copies are gone", true
	}
}

// health is what came of looking at a cluster.
type health struct {
	ready   bool
	joined  bool   // The credentials lead to an API server that knows them.
	offline bool   // The API server could not be reached.
	reason  string // For what is not as it should be.
	message string

	lacking  string                      // Rights; "" if all that was needed was granted.
	excess   string                      // What it answered with too much of; "" if it did not lately.
	leaving  string                      // What it waits for; "" if it does not leave.
	pending  string                      // What waits for approval, in words;
	held     *corev1alpha1.DeletionsHeld // nil if nothing does.
	expiring string                      // Credentials that end soon; "" if they do not, or are renewed.
}

// examine connects to the cluster if it was not connected, and asks it. The only
// error is [errLeft]; all else is a matter of its health.
func (r *Reconciler) examine(ctx context.Context, fc *corev1alpha1.FederatedCluster) (health, error) {
	key := types.NamespacedName{Namespace: r.SystemNamespace, Name: fc.Spec.SecretRef.Name}
	secret, err := r.Secrets.Read(ctx, key.Name)
	switch {
	case apierrors.IsNotFound(err):
		return health{reason: "SecretNotFound", message: fmt.Sprintf("spec.secretRef.name: secret %s does not exist", key)}, nil
	case apierrors.IsForbidden(err):
		message := fmt.Sprintf("reading secret %s: %v; to permit it: %s", key, err, Permission(key))
		return health{reason: "SecretUnreadable", message: output.Cut(message, mostMessage)}, nil
	case err != nil:
		return health{reason: "SecretUnreadable", message: fmt.Sprintf("reading secret %s: %v", key, err)}, nil
	}
	cfg, err := Config(fc, secret)
	if errors.Is(err, ErrEndpoint) {
		return health{reason: "EndpointNotRecorded", message: output.Cut(err.Error(), mostMessage)}, nil
	}
	if err != nil {
		return health{reason: "InvalidCredentials", message: output.Cut(err.Error(), mostMessage)}, nil // It is told in the status.
	}
	if r.Identity != "" {
		cfg.UserAgent += "/" + r.Identity
	}
	m, err := r.Set.connect(fc.Name, cfg, r.owns)
	if errors.Is(err, errLeft) {
		return health{}, err
	}
	if err != nil {
		return health{reason: "InvalidCredentials", message: output.Cut(fmt.Sprintf("secret %s: %v", key, err), mostMessage)}, nil
	}
	h := judge(m.api.probe(ctx), fc.Spec.APIEndpoint)
	if !h.ready {
		if misses := m.misses.Add(1); m.Ready() && misses < missesUntilLost {
			h = health{ready: true, joined: true} // One answer that got lost is no reason to tell the whole fleet.
		}
		h.lacking, h.excess = m.api.rights.describe(), m.api.limits.excess.describe()
		return h, nil
	}
	// One that was lost may have come back as another.
	if away := !m.Ready() || !m.Answers(); away || m.probes%probesUntilAsked == 0 {
		why, err := m.identity.replaced(ctx, away)
		switch {
		case why != "":
			r.Set.renew(m)
			return health{joined: true, reason: "Replaced", message: why}, nil
		case errors.Is(err, errLeft):
			return health{}, err
		case err != nil && !m.Ready() && !apierrors.IsForbidden(err):
			return health{joined: true, reason: "Unreadable", message: "identifying the cluster: " + plain(err)}, nil
		}
	}
	m.probes++
	m.misses.Store(0)
	if !m.Ready() {
		if unwelcome, err := r.welcome(ctx, m, fc); err != nil || unwelcome.reason != "" {
			return unwelcome, err
		}
	}
	if m.Copies.doubts() {
		r.Set.sweeps.add(m.sweep, false)
	}
	m.Copies.reviewRights(ctx)
	h.expiring = r.keepCredentials(ctx, m, cfg, secret)
	h.lacking, h.excess = m.api.rights.describe(), m.api.limits.excess.describe()
	return h, nil
}

// welcome finds out who a member is that became ready. It returns a state of health
// with a reason if the member is not welcome.
func (r *Reconciler) welcome(ctx context.Context, m *Member, fc *corev1alpha1.FederatedCluster) (health, error) {
	// Without the right to read it the condition Authorized says so.
	err := m.identity.identify(ctx)
	switch {
	case errors.Is(err, errLeft):
		return health{}, err
	case err != nil && !apierrors.IsForbidden(err), err != nil && !fc.Status.JoinPerformed:
		return health{joined: true, reason: "Unreadable", message: plain(err)}, nil
	}
	if r.Hub != "" && m.identity.uid() == r.Hub {
		return health{reason: "IsTheHub", message: "this is the hub itself, which cannot be its own member"}, nil
	}
	if err == nil {
		if other, err := r.claim(ctx, fc, m.identity.uid()); err != nil || other != "" {
			return health{reason: corev1alpha1.ReasonDuplicateCluster, message: duplicateMessage(fc.Name, other)}, err
		}
	}
	m.Copies.unwatched.askSweep()
	return health{}, nil
}

// judge reads the answer to a probe.
func judge(err error, endpoint string) health {
	var status apierrors.APIStatus
	var untrusted *tls.CertificateVerificationError
	var elsewhere *redirected
	switch {
	case err == nil:
		return health{ready: true, joined: true}
	case errors.As(err, &elsewhere):
		return health{
			reason:  "Redirected",
			message: fmt.Sprintf("%s answers with %s; spec.apiEndpoint must be the address of the API server itself", endpoint, elsewhere),
		}
	case apierrors.IsUnauthorized(err):
		return health{reason: "Unauthorized", message: "the API server does not accept the credentials, which may have expired: " + plain(err)}
	case apierrors.IsForbidden(err):
		return health{joined: true, reason: "Forbidden", message: "the credentials may not do what is needed: " + plain(err)}
	case errors.As(err, &status):
		return health{joined: true, reason: "NotReady", message: "the API server is not ready: " + plain(err)}
	case errors.As(err, &untrusted):
		return health{reason: "CertificateInvalid", message: fmt.Sprintf("the certificate of %s is not accepted: %s", endpoint, verification(untrusted))}
	default:
		return health{offline: true, reason: "Unreachable", message: fmt.Sprintf("reaching %s: %s", endpoint, plain(err))}
	}
}

// verification says what is wrong with a certificate in words that do not change
// with the time of day.
func verification(err *tls.CertificateVerificationError) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		const format = "it is valid from %s to %s"
		return fmt.Sprintf(format, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	}
	return err.Err.Error()
}

// localPort is our own end of a connection, another each time.
var localPort = regexp.MustCompile(`\b(read|write) (tcp[46]?) [^ ]+->`)

// plain is the error's text without what is another in each attempt, so that a
// report of it is not news each time.
func plain(err error) string {
	return output.Cut(localPort.ReplaceAllString(err.Error(), "$1 $2 "), mostMessage)
}

// setConditions writes the health into the status and reports whether that
// changed anything.
func setConditions(status *corev1alpha1.FederatedClusterStatus, h health, now metav1.Time) bool {
	changed := !equality.Semantic.DeepEqual(status.DeletionsHeld, h.held)
	status.DeletionsHeld = h.held
	for _, c := range conditions(status, h) {
		changed = SetCondition(status, c, now) || changed
	}
	if h.ready && !status.JoinPerformed {
		status.JoinPerformed, changed = true, true
	}
	return changed
}

// conditions returns those that the health says something about.
func conditions(status *corev1alpha1.FederatedClusterStatus, h health) []corev1alpha1.ClusterCondition {
	yes := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}
	ready := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterReady, Status: yes[h.ready], Reason: h.reason, Message: h.message}
	offline := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterOffline, Status: yes[h.offline], Reason: "Reachable", Message: "the API server answers"}
	joined := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterJoined, Status: yes[h.joined], Reason: "Joined"}
	joined.Message = "the API server was reached with the credentials of the secret"
	if h.ready {
		ready.Reason, ready.Message = "Ready", "the API server is ready"
	}
	if h.offline {
		offline.Reason, offline.Message = h.reason, h.message
		if isTrue(status, corev1alpha1.ClusterJoined) {
			joined.Status = metav1.ConditionTrue
		}
	}
	if joined.Status != metav1.ConditionTrue {
		joined.Reason, joined.Message = h.reason, h.message
		if !h.offline {
			offline.Status, offline.Reason, offline.Message = metav1.ConditionUnknown, h.reason, h.message
		}
	}
	if h.leaving != "" {
		joined.Status, joined.Reason, joined.Message = metav1.ConditionFalse, "Leaving", h.leaving
	}
	all := []corev1alpha1.ClusterCondition{joined, ready, offline}
	switch {
	case h.lacking != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterAuthorized, Status: metav1.ConditionFalse, Reason: "PermissionMissing", Message: h.lacking,
		})
	case h.ready:
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterAuthorized, Status: metav1.ConditionTrue, Reason: "Authorized",
			Message: "the credentials suffice for all that was needed",
		})
	}
	switch {
	case h.excess != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterReadable, Status: metav1.ConditionFalse, Reason: "AnswerTooLarge", Message: h.excess,
		})
	case h.ready && !isTrue(status, corev1alpha1.ClusterReadable) && has(status, corev1alpha1.ClusterReadable):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterReadable, Status: metav1.ConditionTrue, Reason: "Readable", Message: "no answer was too large lately",
		})
	}
	switch {
	case h.expiring != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterCredentialsExpiring, Status: metav1.ConditionTrue, Reason: "NotRenewed", Message: h.expiring,
		})
	case h.ready && isTrue(status, corev1alpha1.ClusterCredentialsExpiring):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterCredentialsExpiring, Status: metav1.ConditionFalse, Reason: "Renewed", Message: "the credentials last, or are renewed",
		})
	}
	switch {
	case h.held != nil:
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionTrue, Reason: "AwaitingApproval", Message: h.pending,
		})
	case isTrue(status, corev1alpha1.ClusterDeletionsHeld):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionFalse, Reason: "NothingHeld", Message: "no deletions wait for approval",
		})
	}
	return all
}

func has(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1alpha1.ClusterCondition) bool { return c.Type == kind })
}

func isTrue(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return status.Conditions[i].Status == metav1.ConditionTrue
		}
	}
	return false
}

// SetCondition writes a condition into a status, and reports whether that changed anything but times.
func SetCondition(status *corev1alpha1.FederatedClusterStatus, c corev1alpha1.ClusterCondition, now metav1.Time) bool {
	c.LastProbeTime, c.LastTransitionTime = now, now
	for i := range status.Conditions {
		was := &status.Conditions[i]
		if was.Type != c.Type {
			continue
		}
		if was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
			return false
		}
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		*was = c
		return true
	}
	status.Conditions = append(status.Conditions, c)
	return true
}
