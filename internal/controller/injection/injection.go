// Package injection gives the pods of a cluster what ServiceInjectionPolicies say:
// it answers the API server that asks about pods and policies, and keeps the API
// server asking while there is a policy.
//
// A pod is never kept from being created by what goes wrong here, nor by a policy
// that is not valid. It is refused in one case alone: a policy that wants it so
// conflicts with it.
package injection

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/controller/injection/implicit"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/internal/webhook/injectionpolicies"
	webhookpolicies "refract.dev/internal/webhook/policies"
)

// Options say how a cluster is served.
type Options struct {
	// Server is where the API server asks. It is for the caller to have the manager
	// run it. Required.
	Server *webhook.Server
	// Client reads what is there now, not what a cache remembers. Required.
	Client client.WithWatch
	// Namespace is the system namespace. Its pods are left alone. Required.
	Namespace string
	// TrustedAuthors are the users who may have policies hand out Secrets and
	// ConfigMaps that they may not read themselves, each as the API server knows him.
	TrustedAuthors []string
	// Leads tells whether this replica leads, and registers the webhooks; nil leaves
	// that to the manager. Who has led once leads for as long as it runs.
	Leads func() bool
	// Log is told what an operator acts on.
	Log logr.Logger
}

// Injection is what serves a cluster.
type Injection struct{ policies *Cache }

// Ready returns an error until pods can be injected. Until then they wait for a
// moment, and are then admitted without.
func (i *Injection) Ready() error { return i.policies.Ready() }

// Setup has the manager run all that a cluster needs whose pods are to be injected.
// The definition of the policies must be served.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Injection, error) {
	known := newCache(o.Log)
	o.Server.Handle(PodsPath, newPods(known, newLiveFallback(o.Client, known), o.Log))
	o.handlePolicies(known, true)
	if err := known.watch(ctx, mgr); err != nil {
		return nil, err
	}
	if err := o.register(mgr, configurations(known, o.Namespace)...); err != nil {
		return nil, err
	}
	if err := implicit.Setup(mgr, o.Log.WithName("implicit")); err != nil {
		return nil, err
	}
	return &Injection{policies: known}, nil
}

// ServePolicies has the manager run what an API server needs where injection
// policies are written, to be propagated, and no pod is injected: a hub.
func ServePolicies(ctx context.Context, mgr ctrl.Manager, o Options) (*Injection, error) {
	known := newCache(o.Log)
	o.handlePolicies(known, false)
	if err := known.watch(ctx, mgr); err != nil {
		return nil, err
	}
	if err := o.register(mgr, policyConfigurations()...); err != nil {
		return nil, err
	}
	return &Injection{policies: known}, nil
}

// mostRead is how many values a policy may have, together with what it was before: twice
// what may be injected by one, of some five bytes for each value.
const mostRead = 100_000

// handlePolicies has policies checked; probe tells whether there are pods that they
// can be tried out with.
func (o *Options) handlePolicies(known *Cache, probe bool) {
	reading := bounded.NewReader(mostRead)
	o.Server.Handle(injectionpolicies.MutatePath, injectionpolicies.Mutate(reading, o.Log))
	o.Server.Handle(injectionpolicies.ValidatePath, injectionpolicies.Validate(injectionpolicies.Options{
		Reading: reading,
		Client:  o.Client, Trusted: o.TrustedAuthors, Allowed: webhookpolicies.Review(o.Client), Probe: probe, Log: o.Log,
		Exempt: refractv1beta1.ExemptNamespaces(o.Namespace),
		Others: func(namespace string) []*inject.Policy { return known.Set(namespace).Policies() },
	}))
}

// register has the manager keep configurations.
func (o *Options) register(mgr ctrl.Manager, configurations ...webhook.Configuration) error {
	for _, c := range configurations {
		registration := o.Server.Keep(c)
		var keeps manager.Runnable = registration
		if o.Leads != nil {
			keeps = registration.When(o.Leads)
		}
		if err := mgr.Add(keeps); err != nil {
			return fmt.Errorf("keeping %s %s: %w", c.Kind, c.Name, err)
		}
	}
	return nil
}

// everywhere is what every replica runs.
type everywhere func(context.Context) error

// Start runs it until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }
