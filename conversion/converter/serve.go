// Package converter converts custom resources for an API server by ConversionPolicies. It sets spec.conversion of a
// CustomResourceDefinition, here called a definition, when the conversion is known to be safe.
//
// A policy takes effect in these steps, in this order:
//
//   - The spec is compiled against the schemas of the definition.
//   - The spec is verified: generated objects are converted, and the results must obey laws.
//   - The spec is written into status.served. From then on every replica converts objects with it.
//   - A probe sends a conversion request to the address that the API server is to use.
//   - Server-side apply writes spec.conversion of the definition, and no other field.
//
// A verified spec stays in status.served until another spec is verified.
package converter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/webhook"
)

// Options configure the conversion of objects.
type Options struct {
	// Server is the webhook server that the API server calls for conversions. The caller adds it to the manager.
	// Required.
	Server *webhook.Server
	// Client reads from the API server, not from a cache. Required.
	Client client.Client
	// Log gets messages that an operator should act on.
	Log logr.Logger
	// Now returns the time of a clock that all replicas share; nil means the clock of this machine.
	Now func() time.Time
}

// Service converts objects.
type Service struct{ registry *registry }

// Ready returns an error until all policies are loaded, and while another replica can compile a policy that this
// replica cannot compile.
func (s *Service) Ready() error { return s.registry.ready() }

// concurrent is the number of workers of the reconciler. It exceeds the number of concurrent verifications, which take
// seconds. So free workers can correct a changed spec.conversion at once.
const concurrent = verifying + 2

// Setup adds the controllers and webhooks of conversion to the manager. The API server must already serve
// ConversionPolicies. Every replica answers reviews; the leader does everything else.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Service, error) {
	t := newRegistry(o.Log)
	if o.Now != nil {
		t.reporter.now = o.Now
	}
	o.Server.Handle(Path, t)
	o.Server.Handle(ValidatePath, validate(o.Client, o.Server))
	if err := follow(ctx, mgr, t, o.Server); err != nil {
		return nil, fmt.Errorf("watching conversion policies: %w", err)
	}
	for _, run := range []everywhere{t.comparer.runnable(o.Client), t.reporter.runnable(o.Client)} {
		if err := mgr.Add(run); err != nil {
			return nil, err
		}
	}
	k := &reconciler{
		client: o.Client, policies: mgr.GetCache(), server: o.Server, registry: t, recorder: mgr.GetEventRecorder("refract"),
		compiler: newCompiler(), verifier: newVerifier(), log: o.Log, probed: map[string]string{}, wrote: map[string]writing{},
	}
	if err := k.setup(mgr, o.Server.Changes()); err != nil {
		return nil, fmt.Errorf("setting up the controller of conversion policies: %w", err)
	}
	return &Service{registry: t}, mgr.Add(o.Server.Keep(configuration()))
}

// follow keeps the registry of every replica up to date with the policies.
func follow(ctx context.Context, mgr ctrl.Manager, t *registry, server addressed) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &refractv1alpha1.ConversionPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	taken := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		policies, err := policiesOf(ctx, mgr.GetCache(), req.Name)
		if err != nil {
			return reconcile.Result{}, err
		}
		_ = t.update(req.Name, policies) // update has logged the error, and a retry would not help.
		return reconcile.Result{}, nil
	})
	err = ctrl.NewControllerManagedBy(mgr).
		Named("conversion-table").
		Watches(&refractv1alpha1.ConversionPolicy{}, handler.EnqueueRequestsFromMapFunc(definitionOf)).
		WithLogConstructor(func(*reconcile.Request) logr.Logger { return t.log }).
		WithOptions(controller.Options{NeedLeaderElection: new(false)}).
		Complete(taken)
	if err != nil {
		return err
	}
	return mgr.Add(everywhere(func(ctx context.Context) error {
		if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
		if err := t.begin(ctx, mgr.GetCache()); err != nil && ctx.Err() == nil {
			return err
		}
		t.watchOthers(ctx, server.ClientConfig)
		return nil
	}))
}

// begin loads all existing policies into the registry.
func (t *registry) begin(ctx context.Context, c client.Reader) error {
	all := &refractv1alpha1.ConversionPolicyList{}
	if err := c.List(ctx, all); err != nil {
		return fmt.Errorf("listing ConversionPolicies: %w", err)
	}
	by := map[string][]refractv1alpha1.ConversionPolicy{}
	for i := range all.Items {
		by[all.Items[i].Spec.CRD] = append(by[all.Items[i].Spec.CRD], all.Items[i])
	}
	for crd, policies := range by {
		_ = t.update(crd, policies) // ready reports the error.
	}
	t.sync()
	return nil
}

// definitionOf returns a request for the definition that a policy names.
func definitionOf(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*refractv1alpha1.ConversionPolicy)
	if !ok {
		return nil
	}
	return []reconcile.Request{requestFor(p.Spec.CRD)}
}

// setup registers the reconciler. The cache has only the metadata of definitions, because a changed resourceVersion is
// enough to trigger the reconciler.
func (k *reconciler) setup(mgr ctrl.Manager, trust <-chan struct{}) error {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(definitionKind)
	return ctrl.NewControllerManagedBy(mgr).
		Named("conversion").
		Watches(&refractv1alpha1.ConversionPolicy{}, handler.EnqueueRequestsFromMapFunc(definitionOf)).
		WatchesMetadata(crd, &handler.EnqueueRequestForObject{}, builder.OnlyMetadata).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go k.retrust(ctx, trust, queue)
			return nil
		})).
		WithLogConstructor(func(*reconcile.Request) logr.Logger { return k.log }).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(k)
}

// retrust enqueues every definition after a change of the server's CA bundle.
func (k *reconciler) retrust(ctx context.Context, trust <-chan struct{}, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-trust:
		}
		all := &refractv1alpha1.ConversionPolicyList{}
		if err := k.policies.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
			if ctx.Err() == nil && !errors.As(err, new(*cache.ErrCacheNotStarted)) {
				k.log.Error(err, "Cannot list conversion policies")
			}
			continue
		}
		for i := range all.Items {
			queue.Add(requestFor(all.Items[i].Spec.CRD))
		}
	}
}

// everywhere is a Runnable that every replica runs.
type everywhere func(context.Context) error

// Start runs the function until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }
