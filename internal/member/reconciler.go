package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// probeInterval is how often each cluster is asked whether it is ready.
	probeInterval = 5 * time.Second
	// missesUntilLost is how many probes in a row must fail before a member that was
	// ready is not.
	missesUntilLost = 2
	// concurrentProbes bounds how many clusters are asked at once.
	concurrentProbes = 32
)

// Reconciler keeps the Set in line with the FederatedClusters of the hub and
// their status in line with what their API servers say.
type Reconciler struct {
	Client client.Client
	Set    *Set
	// SystemNamespace holds the Secrets.
	SystemNamespace string
}

// SetupWithManager registers the reconciler.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("federatedcluster").
		For(&corev1alpha1.FederatedCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.clustersOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentProbes}).
		Complete(r)
}

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
// longer than an API server may take to answer.
func (r *Reconciler) Prime(ctx context.Context) error {
	var list corev1alpha1.FederatedClusterList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing clusters: %w", err)
	}
	for i := range list.Items {
		// Placement must know all of them, also those that take long to answer.
		r.Set.introduce(&list.Items[i])
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*probeTimeout, true, func(context.Context) (bool, error) {
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
			r.Set.replace(req.Name, nil)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	health := r.examine(ctx, fc)
	r.Set.observe(fc, health.ready)
	r.Set.markExamined(fc.Name)
	before := fc.DeepCopy()
	if !setConditions(&fc.Status, health, metav1.Now()) {
		return reconcile.Result{RequeueAfter: probeInterval}, nil
	}
	if err := r.Client.Status().Patch(ctx, fc, client.MergeFrom(before)); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{RequeueAfter: probeInterval}, nil
}

// health is what came of looking at a cluster.
type health struct {
	ready   bool
	joined  bool   // The credentials lead to an API server that knows them.
	offline bool   // The API server could not be reached.
	reason  string // For what is not as it should be.
	message string
}

// examine connects to the cluster if it was not connected, and asks it.
func (r *Reconciler) examine(ctx context.Context, fc *corev1alpha1.FederatedCluster) health {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: r.SystemNamespace, Name: fc.Spec.SecretRef.Name}
	if err := r.Client.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return health{reason: "SecretNotFound", message: fmt.Sprintf("spec.secretRef.name: secret %s does not exist", key)}
		}
		return health{reason: "SecretUnreadable", message: fmt.Sprintf("reading secret %s: %v", key, err)}
	}
	cfg, err := Config(fc, secret)
	if err != nil {
		return health{reason: "InvalidCredentials", message: err.Error()}
	}
	m, err := r.Set.connect(fc.Name, cfg)
	if err != nil {
		return health{reason: "InvalidCredentials", message: fmt.Sprintf("secret %s: %v", key, err)}
	}
	h := judge(m.Probe(ctx), fc.Spec.APIEndpoint)
	if !h.ready {
		if m.misses++; m.Ready() && m.misses < missesUntilLost {
			return health{ready: true, joined: true} // One answer that got lost is no reason to tell the whole fleet.
		}
		return h
	}
	m.misses = 0
	if !m.Ready() {
		if err := m.Identify(ctx); err != nil {
			return health{joined: true, reason: "Unreadable", message: err.Error()}
		}
		if twin := r.Set.twin(m); twin != "" {
			const format = "this is the cluster that has joined as %s; two names for one would undo each other's work"
			return health{reason: "AlreadyJoined", message: fmt.Sprintf(format, twin)}
		}
	}
	if !m.Ready() || m.doubts() {
		if err := m.Sweep(ctx); err != nil {
			return health{joined: true, reason: "Unreadable", message: err.Error()}
		}
	}
	return h
}

// judge reads the answer to a probe.
func judge(err error, endpoint string) health {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return health{ready: true, joined: true}
	case apierrors.IsUnauthorized(err):
		return health{reason: "Unauthorized", message: "the API server does not accept the credentials: " + err.Error()}
	case apierrors.IsForbidden(err):
		return health{joined: true, reason: "Forbidden", message: "the credentials may not do what is needed: " + err.Error()}
	case errors.As(err, &status):
		return health{joined: true, reason: "NotReady", message: "the API server is not ready: " + err.Error()}
	default:
		return health{offline: true, reason: "Unreachable", message: fmt.Sprintf("reaching %s: %v", endpoint, err)}
	}
}

// setConditions writes the health into the status and reports whether that
// changed anything.
func setConditions(status *corev1alpha1.FederatedClusterStatus, h health, now metav1.Time) bool {
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
		if wasJoined(status) {
			joined.Status = metav1.ConditionTrue
		}
	}
	if joined.Status != metav1.ConditionTrue {
		joined.Reason, joined.Message = h.reason, h.message
		if !h.offline {
			offline.Status, offline.Reason, offline.Message = metav1.ConditionUnknown, h.reason, h.message
		}
	}
	changed := false
	for _, c := range []corev1alpha1.ClusterCondition{joined, ready, offline} {
		changed = setCondition(status, c, now) || changed
	}
	return changed
}

func wasJoined(status *corev1alpha1.FederatedClusterStatus) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == corev1alpha1.ClusterJoined {
			return status.Conditions[i].Status == metav1.ConditionTrue
		}
	}
	return false
}

func setCondition(status *corev1alpha1.FederatedClusterStatus, c corev1alpha1.ClusterCondition, now metav1.Time) bool {
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
