package webhook

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/owner"
	"refract.dev/kit/webhook/follow"
)

const fieldManager = "refract"

// Registration keeps a webhook configuration up to date, and reverts changes of other writers within seconds. It is a
// Runnable of a manager. It runs only in the leader, so that two versions of the program do not revert each other's
// changes.
//
// The configuration remains when the program ends.
type Registration struct {
	server *Server
	kept   Configuration
	// trust receives a value when the CA bundle that the API server needs has changed.
	trust <-chan struct{}
}

// Registration returns the [Registration] of a hub's configuration, with the webhooks for policies and clusters.
func (s *Server) Registration() *Registration { return s.Keep(policiesConfiguration()) }

// Keep returns the [Registration] for a configuration whose webhooks the server serves.
func (s *Server) Keep(c Configuration) *Registration {
	return &Registration{server: s, kept: c, trust: s.certificates.Changes()}
}

// NeedLeaderElection returns true.
func (*Registration) NeedLeaderElection() bool { return true }

// Start waits until the server is ready, and then keeps the configuration up to date until ctx ends.
func (r *Registration) Start(ctx context.Context) error {
	if !until(ctx, func() bool { return r.server.Ready() == nil }) {
		return nil
	}
	if r.kept.Known != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-r.kept.Known:
		}
	}
	list := &unstructured.UnstructuredList{}
	gvk := r.kept.Kind.versioned()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	follow.Object(ctx, r.server.client, list, types.NamespacedName{Name: r.kept.Name}, r.server.log, r.apply, r.trust, r.kept.Changed)
	return nil
}

// Registered reports whether a configuration with webhooks for policies exists, even if no program serves them.
func Registered(ctx context.Context, c client.Reader) (bool, error) {
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	return err == nil, client.IgnoreNotFound(err)
}

// RegisteredSince returns the creation time of the configuration with webhooks for policies, by the API server's clock.
// The time is zero if the configuration does not exist.
func RegisteredSince(ctx context.Context, c client.Reader) (time.Time, error) {
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, is)
	return is.CreationTimestamp.Time, client.IgnoreNotFound(err)
}

// apply applies the configuration, or deletes it if no webhook has rules.
func (r *Registration) apply(ctx context.Context) error {
	if err := r.server.Ready(); err != nil {
		return err
	}
	webhooks := r.kept.Webhooks()
	entries, err := entriesOf(webhooks, r.server.clientConfig)
	if err != nil {
		return fmt.Errorf("building %s %s: %w", r.kept.Kind, r.kept.Name, err)
	}
	if len(entries) == 0 {
		if err := r.remove(ctx); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s, which has no rules: %w", r.kept.Kind, r.kept.Name, err)
		}
		return nil
	}
	var owners []metav1.OwnerReference
	if r.kept.Role != "" {
		if owners, err = r.server.owners.References(ctx, r.kept.Role); err != nil {
			return fmt.Errorf("finding the owners of %s %s: %w", r.kept.Kind, r.kept.Name, err)
		}
	}
	if err := owner.Apply(ctx, r.server.client, r.kept.object(entries), owners, fieldManager); err != nil {
		return fmt.Errorf("applying %s %s: %w", r.kept.Kind, r.kept.Name, err)
	}
	return r.prune(ctx, webhooks)
}

// remove deletes the existing configuration.
func (r *Registration) remove(ctx context.Context) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return err
	}
	return r.server.client.Delete(ctx, is, client.Preconditions{UID: new(is.GetUID())})
}

// prune removes fields of this server's webhooks that other writers have added and that change which requests are sent,
// such as match conditions. Server-side apply does not remove them, because other field managers own them.
func (r *Registration) prune(ctx context.Context, webhooks []Webhook) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return client.IgnoreNotFound(err) // If the configuration was deleted, the watch reports it.
	}
	entries, _, err := unstructured.NestedSlice(is.Object, "webhooks")
	if err != nil {
		return err
	}
	kept, changed := pruned(entries, webhooks)
	if !changed {
		return nil
	}
	is.Object["webhooks"] = kept
	err = r.server.client.Update(ctx, is, client.FieldOwner(fieldManager))
	if apierrors.IsConflict(err) {
		return nil // Another writer has changed the configuration, and the watch reports this.
	}
	return err
}

// pruned returns the entries of a configuration. It omits webhooks of this server that have no rules any more. In the
// other webhooks of this server it removes match conditions that other writers have added.
func pruned(entries []any, ours []Webhook) (kept []any, changed bool) {
	wanted := map[string]*Webhook{}
	for i := range ours {
		wanted[ours[i].Name] = &ours[i]
	}
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		name, _ := entry["name"].(string)
		w := wanted[name]
		switch {
		case w == nil:
			kept = append(kept, e)
		case len(w.Rules) == 0:
			changed = true
		default:
			changed = pruneConditions(entry, w) || changed
			kept = append(kept, entry)
		}
	}
	return kept, changed
}

// pruneConditions removes match conditions that w does not have. It reports whether there were any.
func pruneConditions(entry map[string]any, w *Webhook) bool {
	wanted := map[string]bool{}
	for _, c := range w.Conditions {
		wanted[c.Name] = true
	}
	conditions, _ := entry["matchConditions"].([]any)
	kept := []any{}
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if name, _ := condition["name"].(string); wanted[name] {
			kept = append(kept, c)
		}
	}
	if len(kept) == len(conditions) {
		return false
	}
	entry["matchConditions"] = kept
	return true
}

// ClientConfig returns the address of a path of this server, and the CA bundle that the API server needs to trust it.
// While the authority is being replaced, the bundle has the old and the new one. The bundle is empty while the
// authorities are not known, or if another program sets it.
func (s *Server) ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig {
	return s.clientConfig(path)
}

// Changes returns a new channel for each caller. It receives a value when the result of ClientConfig may have changed.
func (s *Server) Changes() <-chan struct{} { return s.certificates.Changes() }

func (s *Server) clientConfig(path string) *admissionregistrationv1.WebhookClientConfig {
	at := &s.endpoint
	config := &admissionregistrationv1.WebhookClientConfig{CABundle: s.certificates.Trusted()}
	if at.url != nil {
		url := at.at(path)
		config.URL = &url
		return config
	}
	port := int32(443)
	config.Service = &admissionregistrationv1.ServiceReference{Namespace: at.service.Namespace, Name: at.service.Name, Path: &path, Port: &port}
	return config
}

// When returns a Runnable that keeps the configuration up to date in each replica for which leads returns true. It does
// not stop if leads returns false later.
func (r *Registration) When(leads func() bool) *Following {
	return &Following{registration: r, leads: leads}
}

// Following keeps a configuration up to date in a program that does not use the leader election of its manager.
type Following struct {
	registration *Registration
	leads        func() bool
}

// NeedLeaderElection returns false, because Start itself waits until the replica leads.
func (*Following) NeedLeaderElection() bool { return false }

// Start waits until this replica leads, and then keeps the configuration up to date until ctx ends.
func (f *Following) Start(ctx context.Context) error {
	if !until(ctx, f.leads) {
		return nil
	}
	return f.registration.Start(ctx)
}
