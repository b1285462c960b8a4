// Package injector injects ServiceInjectionPolicies into the pods of a cluster. It serves the admission webhooks for
// pods and policies, and keeps the pods webhook registered while a policy exists.
//
// A failure of this package never prevents the creation of a pod, and neither does an invalid policy. A pod is rejected
// in only one case: it conflicts with a policy whose onConflict is Reject.
package injector

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	webhookpolicies "refract.dev/fleet/policies"
	"refract.dev/injection/inject"
	"refract.dev/injection/injectionpolicies"
	"refract.dev/injection/injector/implicit"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/bounded"
)

// Options configure the injection of a cluster.
type Options struct {
	// Server serves the webhooks. The caller adds it to the manager. Required.
	Server *webhook.Server
	// Client reads from the API server without a cache. Required.
	Client client.WithWatch
	// Namespace is the system namespace. Its pods are not injected. Required.
	Namespace string
	// TrustedAuthors are the names of users, as known to the API server, whose policies may hand out Secrets and
	// ConfigMaps that these users may not read themselves.
	TrustedAuthors []string
	// Leads reports whether this replica leads; the leader registers the webhooks. If it is nil, the manager's leader
	// election decides. A replica that has led once leads until it exits.
	Leads func() bool
	// Log logs events that an operator can act on.
	Log logr.Logger
}

// Injection serves a cluster.
type Injection struct{ policies *Cache }

// Ready returns an error while the policies are not known yet. During this time a review of a pod waits briefly, and
// then admits the pod without injection.
func (i *Injection) Ready() error { return i.policies.Ready() }

// Setup adds to the manager all components that inject pods. The CRD of ServiceInjectionPolicies must be installed.
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

// ServePolicies adds only the review of ServiceInjectionPolicies to the manager. It is for a hub, whose API server
// propagates policies and has no pods to inject.
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

// handlePolicies registers the handlers that review policies. If probe is true, the review also creates a pod with the
// items of the policy in a dry run.
func (o *Options) handlePolicies(known *Cache, probe bool) {
	reading := bounded.NewReader(bounded.MaxValues)
	o.Server.Handle(injectionpolicies.MutatePath, injectionpolicies.Mutate(reading, o.Log))
	o.Server.Handle(injectionpolicies.ValidatePath, injectionpolicies.Validate(injectionpolicies.Options{
		Reading: reading,
		Client:  o.Client, Trusted: o.TrustedAuthors, Allowed: webhookpolicies.Review(o.Client), Probe: probe, Log: o.Log,
		Exempt: refractv1beta1.ExemptNamespaces(o.Namespace),
		Others: func(namespace string) []*inject.Policy { return known.Set(namespace).Policies() },
	}))
}

// register adds runnables to the manager that keep the webhook configurations registered.
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

// everywhere is a runnable that runs in all replicas, not only in the leader.
type everywhere func(context.Context) error

// Start runs the function until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }
