// Package inventory keeps a FederatedCluster for each cluster that an inventory on the hub lists: for ClusterProfiles of the
// Cluster Inventory API, and for clusters that Cluster API has made.
//
// What an inventory does not say any more is left as it is, and said to be so: that a list is shorter is no reason to remove
// what runs on clusters.
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
	"refract.dev/internal/member"
	"refract.dev/internal/output"
)

const (
	// fieldManager is whose the fields of a FederatedCluster are that an inventory says.
	fieldManager = "refract-inventory"
	// secretSuffix ends the names of the Secrets that are written: a Secret with the name of the cluster may be somebody's.
	secretSuffix = "-inventory"
	// others is how often a replica that does not lead looks whether it does.
	others = 30 * time.Second
	// retryInterval is when a cluster is looked at again that became another meanwhile.
	retryInterval = 500 * time.Millisecond
	// concurrent is how many clusters are looked at together: each may wait for a program.
	concurrent = 8
	// mostMessage is how many bytes a condition or an event says.
	mostMessage = 1000
)

// Reasons of the condition InInventory.
const (
	reasonListed        = "Listed"
	reasonNoCredentials = "NoCredentials"
)

// Reasons of events on entries of which there is no FederatedCluster that could say it: a cluster has the name that somebody joined
// by hand, or that is listed elsewhere; or no way into it is known.
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

// Options say which inventories there are.
type Options struct {
	// SystemNamespace holds the Secrets with credentials.
	SystemNamespace string
	// ClusterProfiles are namespaces whose ClusterProfiles are members, and ClusterAPI those whose clusters of Cluster API are.
	// If several list one name, the first one does.
	ClusterProfiles, ClusterAPI []string
	// Providers are the programs that know credentials, beside [SecretReader].
	Providers Providers
	// Leads reports whether this replica keeps the clusters. The others do nothing.
	Leads func() bool
	// Now is the clock by which credentials end; time.Now if nil.
	Now func() time.Time
}

// Controller keeps the clusters. It is safe for many goroutines.
type Controller struct {
	options  Options
	client   client.Client
	hub      dynamic.Interface
	recorder events.EventRecorder
	log      logr.Logger
	now      func() time.Time

	changes chan event.GenericEvent
	ended   chan struct{} // Nobody takes changes any more.
	// listed is what there is in each namespace, and labels the Clusters whose labels their FederatedClusters get, by namespace.
	listed []*listed
	labels map[string]*listed

	mu      sync.Mutex
	answers map[string]*said     // Of programs, by cluster.
	applied map[string]*applied  // What was applied last, by cluster.
	warned  map[types.UID]string // What was said last of an entry.
}

// applied is what was applied to a FederatedCluster.
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

// changed has a cluster looked at.
func (c *Controller) changed(name string) {
	fc := &corev1alpha1.FederatedCluster{}
	fc.Name = name
	select {
	case c.changes <- event.GenericEvent{Object: fc}:
	case <-c.ended:
	}
}

var _ manager.LeaderElectionRunnable = (*Controller)(nil)

// NeedLeaderElection returns false: every replica knows what is listed, and the one that leads acts on it.
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

// clustersOf returns the cluster that a Secret may be about: one that is written here, or one that holds a token.
func (c *Controller) clustersOf(_ context.Context, secret client.Object) []reconcile.Request {
	name := secret.GetName()
	if owner := metav1.GetControllerOf(secret); owner != nil && owner.Kind == corev1alpha1.KindFederatedCluster {
		name = owner.Name
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// lookUp returns what is listed of a cluster: where it is listed now, or else in the first inventory that has it. Nil is for
// sure if it is known.
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

// Reconcile has the FederatedCluster of a name be as the inventories say.
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
		return reconcile.Result{}, nil // When it has left it is looked at again.
	case e == nil && exists && from != "" && known:
		return c.gone(ctx, fc, from)
	case e == nil:
		c.forget(req.Name)
		return reconcile.Result{}, nil
	case exists && from != e.String():
		c.warn(e, reasonNameTaken, fmt.Sprintf("a cluster of the name %s has joined already, %s: it stays as it is", e.object.Name, origin(from)))
		if from == "" || !known {
			return reconcile.Result{}, nil
		}
		return c.gone(ctx, fc, from) // What is listed elsewhere may be another cluster.
	}
	return c.keep(ctx, fc, exists, e)
}

func origin(from string) string {
	if from == "" {
		return "by hand"
	}
	return "of " + from
}

// gone says that a cluster is not listed any more.
func (c *Controller) gone(ctx context.Context, fc *corev1alpha1.FederatedCluster, from string) (reconcile.Result, error) {
	c.forget(fc.Name)
	const format = "%s is gone, or is not read any more; the cluster stays a member, with the credentials that it had, " +
		"until somebody takes it out: refract unjoin %s"
	return c.say(ctx, fc, reconcile.Result{}, metav1.ConditionFalse, corev1alpha1.ReasonGone, fmt.Sprintf(format, from, fc.Name))
}

// forget drops what is remembered of a cluster that is not listed.
func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, name)
	delete(c.applied, name)
}

// keep writes the FederatedCluster of an entry, and the Secret with its credentials.
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
		return next, nil // There is nothing that a FederatedCluster could say.
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

// reasonOf returns why there are no credentials, in a word. Events of one reason become one, which goes on to say what the first did.
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

// apply applies what the entry says to the FederatedCluster, unless it says that already, and returns it.
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

// says reports whether a FederatedCluster says what an entry does, and maybe more.
func says(fc *corev1alpha1.FederatedCluster, e *entry, server string) bool {
	for key, value := range e.labels {
		if fc.Labels[key] != value {
			return false
		}
	}
	return fc.Spec.APIEndpoint == server && fc.Spec.SecretRef.Name == e.object.Name+secretSuffix &&
		fc.Annotations[refractv1alpha1.InventoryAnnotation] == e.String() && slices.Contains(fc.Finalizers, refractv1alpha1.Finalizer)
}

// store writes the Secret with the kubeconfig, unless it is there. It goes with its FederatedCluster.
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

// say writes the condition InInventory, unless it says so already, and returns what comes next: at once if the cluster has become
// another meanwhile.
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

// warn writes an event on the object that lists a cluster, once for each thing that it says.
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
	c.log.Info("A cluster of an inventory is not as it is listed", "entry", e.String(), "reason", reason, "message", message)
	c.recorder.Eventf(e.reference(), nil, corev1.EventTypeWarning, reason, "Join", "%s", message)
}
