// Package conversion converts custom resources for an API server as ConversionPolicies say,
// and has it ask for that when it is safe to.
//
// A policy goes through these, in this order: it is compiled against the schemas of the
// definition; laws are held against it with generated objects; status.served says that
// objects are to be converted by it, and every replica does from then on; what the API
// server will ask is asked, at the same place; and then spec.conversion of the definition
// is written, by server-side apply of that alone. What was good once is served until
// something else is.
package conversion

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

// Options say how objects are converted.
type Options struct {
	// Server is where the API server asks. It is for the caller to have the manager
	// run it. Required.
	Server *webhook.Server
	// Client reads what is there now, not what a cache remembers. Required.
	Client client.Client
	// Log is told what an operator acts on.
	Log logr.Logger
	// Now is the clock, which all replicas share; nil means that of the machine.
	Now func() time.Time
}

// Service converts objects.
type Service struct{ registry *registry }

// Ready returns an error until every policy is known, and while one of them cannot be
// compiled here that another replica converts by.
func (s *Service) Ready() error { return s.registry.ready() }

// concurrent is how many definitions are looked at in parallel. It is more than are verified
// at a time, which takes seconds: what points elsewhere is put right at once.
const concurrent = verifying + 2

// Setup has the manager run all that conversion takes. The definition of the policies
// must be served. Every replica answers; the one that the manager has lead does the rest.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Service, error) {
	t := newRegistry(o.Log)
	if o.Now != nil {
		t.keeper.now = o.Now
	}
	o.Server.Handle(Path, t)
	o.Server.Handle(ValidatePath, validate(o.Client, o.Server))
	if err := follow(ctx, mgr, t, o.Server); err != nil {
		return nil, fmt.Errorf("watching conversion policies: %w", err)
	}
	for _, run := range []everywhere{t.comparer.runnable(o.Client), t.keeper.runnable(o.Client)} {
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

// follow has every replica take up policies as they change.
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
		_ = t.update(req.Name, policies) // Which has logged it: to try again would not help.
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

// begin takes up all policies that there are.
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
		_ = t.update(crd, policies) // ready tells of it.
	}
	t.sync()
	return nil
}

// definitionOf returns the definition that a policy is about.
func definitionOf(_ context.Context, o client.Object) []reconcile.Request {
	p, ok := o.(*refractv1alpha1.ConversionPolicy)
	if !ok {
		return nil
	}
	return []reconcile.Request{requestFor(p.Spec.CRD)}
}

// setup registers the reconciler. Of definitions only the metadata are held: they tell when
// one has changed.
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

// retrust has every definition looked at when the API server must trust something else.
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

// everywhere is what every replica runs.
type everywhere func(context.Context) error

// Start runs it until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }
