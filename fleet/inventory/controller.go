// Package inventory maintains a FederatedCluster for each cluster in an inventory on the hub: for each ClusterProfile
// of the Cluster Inventory API, and for each cluster of Cluster API.
//
// The FederatedCluster of a removed entry stays, with a condition that reports the removal. A shorter inventory is no
// reason to remove copies from clusters.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/output"
)

const (
	// fieldManager is the field manager for the fields of a FederatedCluster that come from an inventory.
	fieldManager = "refract-inventory"
	// secretSuffix is the suffix of the names of written Secrets, because a user may have a Secret with the name of the
	// cluster.
	secretSuffix = "-inventory"
	// others is the interval at which a replica that does not lead checks whether it leads now.
	others = 30 * time.Second
	// retryInterval is the delay after a conflict.
	retryInterval = 500 * time.Millisecond
	// concurrent is the number of workers. There are several because each may wait for a program.
	concurrent = 8
	// mostMessage is the maximum size of the message of a condition or an event, in bytes.
	mostMessage = 1000
)

// Reasons of the condition InInventory.
const (
	reasonListed        = "Listed"
	reasonNoCredentials = "NoCredentials"
)

// Reasons of events on entries without a FederatedCluster of their own, so that no condition can report the problem. The
// name belongs to a FederatedCluster that was joined by hand or comes from another entry, or the entry has no usable
// access.
const (
	reasonNameTaken = "NameTaken"
	reasonNoAccess  = "NoAccess"
	reasonUnknown   = "UnknownProvider"
)

var (
	profiles = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}
	secrets  = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	clusters = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta1", Resource: "clusters"}
)

// Options configure the inventories.
type Options struct {
	// SystemNamespace is the namespace of the Secrets with credentials.
	SystemNamespace string
	// ClusterProfiles are the namespaces whose ClusterProfiles become members. ClusterAPI are the namespaces whose
	// Cluster API clusters become members. If several namespaces list the same name, the first one wins,
	// ClusterProfiles before ClusterAPI.
	ClusterProfiles, ClusterAPI []string
	// Providers are the programs for credentials, in addition to [SecretReader].
	Providers Providers
	// Leads reports whether this replica maintains the clusters. The other replicas only read the inventories.
	Leads func() bool
	// Now returns the time for the expiration of credentials; time.Now if nil.
	Now func() time.Time
}

// Controller maintains the FederatedClusters of inventories. It is safe for concurrent use.
type Controller struct {
	options  Options
	client   client.Client
	hub      dynamic.Interface
	recorder events.EventRecorder
	log      logr.Logger
	now      func() time.Time

	changes chan event.GenericEvent
	ended   chan struct{} // Closed when the controller ends and no longer reads changes.
	// listed has the entries of each namespace. labels has the Clusters of each namespace of Cluster API, for the
	// labels of their FederatedClusters.
	listed []*listed
	labels map[string]*listed

	mu      sync.Mutex
	answers map[string]*said     // Last answers of programs, by cluster.
	applied map[string]*applied  // Last applied contents, by cluster.
	warned  map[types.UID]string // Last event, by the UID of the entry.
}

// applied describes the last apply of a FederatedCluster.
type applied struct {
	uid    types.UID
	labels map[string]string
}

// Setup registers the controller with the manager.
func Setup(mgr ctrl.Manager, o Options) error {
	dyn, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	c := newController(o, mgr.GetClient(), dyn, mgr.GetEventRecorder("refract"), mgr.GetLogger().WithName("inventory"))
	if err := mgr.Add(c); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("inventory").
		For(&corev1alpha1.FederatedCluster{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.clustersOf)).
		WatchesRawSource(source.Channel(c.changes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent, NeedLeaderElection: new(false)}).
		Complete(c)
}

func newController(o Options, hub client.Client, dyn dynamic.Interface, recorder events.EventRecorder, log logr.Logger) *Controller {
	c := &Controller{
		options: o, client: hub, hub: dyn, recorder: recorder, log: log, now: o.Now,
		changes: make(chan event.GenericEvent, mostEntries), ended: make(chan struct{}),
		labels:  map[string]*listed{},
		answers: map[string]*said{}, applied: map[string]*applied{}, warned: map[types.UID]string{},
	}
	if c.now == nil {
		c.now = time.Now
	}
	of := func(gvr schema.GroupVersionResource, namespace, selector string, read func(*unstructured.Unstructured) *entry) *listed {
		return &listed{gvr: gvr, namespace: namespace, selector: selector, read: read, log: log, changed: c.changed}
	}
	for _, ns := range o.ClusterProfiles {
		c.listed = append(c.listed, of(profiles, ns, "", readProfile))
	}
	for _, ns := range o.ClusterAPI {
		c.listed = append(c.listed, of(secrets, ns, clusterNameLabel, readKubeconfig))
		c.labels[ns] = of(clusters, ns, "", readCluster)
	}
	return c
}

// changed enqueues a cluster.
func (c *Controller) changed(name string) {
	fc := &corev1alpha1.FederatedCluster{}
	fc.Name = name
	select {
	case c.changes <- event.GenericEvent{Object: fc}:
	case <-c.ended:
	}
}

var _ manager.LeaderElectionRunnable = (*Controller)(nil)

// NeedLeaderElection returns false: every replica reads the inventories, and only the leader acts on them.
func (c *Controller) NeedLeaderElection() bool { return false }

// Start reads the inventories until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { close(c.ended) })()
	var all sync.WaitGroup
	for _, l := range c.listed {
		all.Go(func() { l.run(ctx, c.hub) })
	}
	for _, l := range c.labels {
		all.Go(func() { l.run(ctx, c.hub) })
	}
	all.Wait()
	return nil
}

// clustersOf returns the cluster that a Secret may belong to: by its owner, a FederatedCluster, or by its name if it
// contains a token.
func (c *Controller) clustersOf(_ context.Context, secret client.Object) []reconcile.Request {
	name := secret.GetName()
	if owner := metav1.GetControllerOf(secret); owner != nil && owner.Kind == corev1alpha1.KindFederatedCluster {
		name = owner.Name
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// lookUp returns the entry of a cluster. It prefers the entry whose name is in the argument now; otherwise it returns
// the first one in the order of the inventories. If the result known is false, some inventories have not been read yet,
// so an entry may exist although none is found.
func (c *Controller) lookUp(name, now string) (found *entry, known bool) {
	known = true
	for _, l := range c.listed {
		e, sure := l.get(name)
		known = known && sure
		if e != nil && (found == nil || e.String() == now) {
			found = e
		}
	}
	if found == nil || found.kind != kindCluster {
		return found, known
	}
	with := *found
	if cluster, _ := c.labels[found.object.Namespace].get(name); cluster != nil {
		with.labels = cluster.labels
	}
	return &with, known
}

// Reconcile updates the FederatedCluster of a name according to the inventories.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.options.Leads() {
		return reconcile.Result{RequeueAfter: others}, nil
	}
	fc := &corev1alpha1.FederatedCluster{}
	err := c.client.Get(ctx, req.NamespacedName, fc)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading cluster %q: %w", req.Name, err)
	}
	exists := err == nil
	from := fc.Annotations[refractv1alpha1.InventoryAnnotation]
	e, known := c.lookUp(req.Name, from)
	switch {
	case exists && !fc.DeletionTimestamp.IsZero():
		return reconcile.Result{}, nil // The end of the deletion leads to another reconciliation.
	case e == nil && exists && from != "" && known:
		return c.gone(ctx, fc, from)
	case e == nil:
		c.forget(req.Name)
		return reconcile.Result{}, nil
	case exists && from != e.String():
		c.warn(e, reasonNameTaken, fmt.Sprintf("a cluster named %s has already joined, %s: it stays unchanged", e.object.Name, origin(from)))
		if from == "" || !known {
			return reconcile.Result{}, nil
		}
		return c.gone(ctx, fc, from) // The entry from another inventory may describe a different cluster.
	}
	return c.keep(ctx, fc, exists, e)
}

func origin(from string) string {
	if from == "" {
		return "by hand"
	}
	return "from " + from
}

// gone reports in the condition that the entry of a cluster is gone.
func (c *Controller) gone(ctx context.Context, fc *corev1alpha1.FederatedCluster, from string) (reconcile.Result, error) {
	c.forget(fc.Name)
	const format = "%s is gone, or is no longer read; the cluster stays a member, with its last credentials, " +
		"until you remove it: refract unjoin %s"
	return c.say(ctx, fc, reconcile.Result{}, metav1.ConditionFalse, corev1alpha1.ReasonGone, fmt.Sprintf(format, from, fc.Name))
}

// forget drops the remembered state of a cluster without an entry.
func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, name)
	delete(c.applied, name)
}

// keep writes the FederatedCluster of an entry and the Secret with its credentials.
func (c *Controller) keep(ctx context.Context, fc *corev1alpha1.FederatedCluster, exists bool, e *entry) (reconcile.Result, error) {
	server, kubeconfig, again, failed := c.kubeconfigOf(ctx, e)
	if failed != nil {
		c.warn(e, reasonOf(failed), failed.Error())
		again = c.now().Add(soonest)
	}
	next := reconcile.Result{}
	if !again.IsZero() {
		next.RequeueAfter = max(time.Second, again.Sub(c.now()))
	}
	if server == "" && !exists {
		return next, nil // The address of the cluster is unknown.
	}
	if server != "" {
		var err error
		if fc, err = c.apply(ctx, fc, exists, e, server); err != nil {
			return reconcile.Result{}, err
		}
	}
	if failed != nil {
		return c.say(ctx, fc, next, metav1.ConditionFalse, reasonNoCredentials, e.String()+": "+failed.Error())
	}
	if err := c.store(ctx, fc, e, kubeconfig); err != nil {
		return reconcile.Result{}, err
	}
	return c.say(ctx, fc, next, metav1.ConditionTrue, reasonListed, "the cluster is listed as "+e.String())
}

// reasonOf returns the reason of an event about missing credentials. Different errors need different reasons: the event
// recorder merges events with the same reason and keeps only the first message.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, errNoAccess):
		return reasonNoAccess
	case errors.Is(err, errUnknownProvider):
		return reasonUnknown
	default:
		return reasonNoCredentials
	}
}

// apply applies the entry to the FederatedCluster, unless its fields are up to date, and returns the FederatedCluster.
func (c *Controller) apply(
	ctx context.Context, fc *corev1alpha1.FederatedCluster, exists bool, e *entry, server string,
) (*corev1alpha1.FederatedCluster, error) {
	name := e.object.Name
	c.mu.Lock()
	last := c.applied[name]
	c.mu.Unlock()
	if exists && last != nil && last.uid == fc.UID && maps.Equal(last.labels, e.labels) && says(fc, e, server) {
		return fc, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"apiEndpoint": server, "secretRef": map[string]any{"name": name + secretSuffix},
	}}}
	u.SetGroupVersionKind(corev1alpha1.GroupVersion.WithKind(corev1alpha1.KindFederatedCluster))
	u.SetName(name)
	u.SetLabels(e.labels)
	u.SetAnnotations(map[string]string{refractv1alpha1.InventoryAnnotation: e.String()})
	u.SetFinalizers([]string{refractv1alpha1.Finalizer})
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("applying cluster %q: %w", name, err)
	}
	now := &corev1alpha1.FederatedCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, now); err != nil {
		return nil, fmt.Errorf("applying cluster %q: %w", name, err)
	}
	c.mu.Lock()
	c.applied[name] = &applied{now.UID, e.labels}
	c.mu.Unlock()
	return now, nil
}

// says reports whether a FederatedCluster has all fields of an entry. It may have more.
func says(fc *corev1alpha1.FederatedCluster, e *entry, server string) bool {
	for key, value := range e.labels {
		if fc.Labels[key] != value {
			return false
		}
	}
	return fc.Spec.APIEndpoint == server && fc.Spec.SecretRef.Name == e.object.Name+secretSuffix &&
		fc.Annotations[refractv1alpha1.InventoryAnnotation] == e.String() && slices.Contains(fc.Finalizers, refractv1alpha1.Finalizer)
}

// store writes the Secret with the kubeconfig if it differs. The FederatedCluster owns the Secret.
func (c *Controller) store(ctx context.Context, fc *corev1alpha1.FederatedCluster, e *entry, kubeconfig []byte) error {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: c.options.SystemNamespace, Name: fc.Spec.SecretRef.Name}
	err := c.client.Get(ctx, key, secret)
	if err == nil && string(secret.Data[corev1alpha1.SecretKubeconfig]) == string(kubeconfig) && metav1.IsControlledBy(secret, fc) {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading secret %s: %w", key, err)
	}
	want := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{refractv1alpha1.InventoryAnnotation: e.String()},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1alpha1.GroupVersion.String(), Kind: corev1alpha1.KindFederatedCluster, Name: fc.Name, UID: fc.UID, Controller: new(true),
			}},
		},
		Data: map[string][]byte{corev1alpha1.SecretKubeconfig: kubeconfig},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("applying secret %s: %w", key, err)
	}
	u := &unstructured.Unstructured{Object: content}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying secret %s: %w", key, err)
	}
	return nil
}

// say writes the condition InInventory if it differs. It returns the given result, or a retry after a conflict.
func (c *Controller) say(
	ctx context.Context, fc *corev1alpha1.FederatedCluster, next reconcile.Result, status metav1.ConditionStatus, reason, message string,
) (reconcile.Result, error) {
	before := fc.DeepCopy()
	fc = fc.DeepCopy()
	if !member.SetCondition(&fc.Status, corev1alpha1.ClusterCondition{
		Type: corev1alpha1.ClusterInInventory, Status: status, Reason: reason, Message: output.Cut(message, mostMessage),
	}, metav1.NewTime(c.now())) {
		return next, nil
	}
	err := c.client.Status().Patch(ctx, fc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: retryInterval}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("reporting on cluster %q: %w", fc.Name, err)
	}
	return next, nil
}

// warn writes an event on the object that lists a cluster. It does not repeat the last message.
func (c *Controller) warn(e *entry, reason, message string) {
	message = output.Cut(message, mostMessage)
	c.mu.Lock()
	known := c.warned[e.uid] == message
	if len(c.warned) > mostEntries {
		clear(c.warned)
	}
	c.warned[e.uid] = message
	c.mu.Unlock()
	if known {
		return
	}
	c.log.Info("A cluster of an inventory has a problem", "entry", e.String(), "reason", reason, "message", message)
	c.recorder.Eventf(e.reference(), nil, corev1.EventTypeWarning, reason, "Join", "%s", message)
}
