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

// Registration keeps a configuration of a server up to date, and reverts changes of other writers within seconds. It is
// a Runnable of a manager, and runs on the leader only, so that two versions of the program do not undo each other's
// changes.
//
// The configuration stays when the program ends.
type Registration struct {
	server *Server
	kept   Configuration
	// trust receives a value when the authorities that the API server must trust change.
	trust <-chan struct{}
}

// Registration returns the [Registration] of a hub's configuration, with the webhooks for policies and clusters.
func (s *Server) Registration() *Registration { return s.Keep(policiesConfiguration()) }

// Keep returns the [Registration] of this configuration for the server.
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

// Registered reports whether the API server calls a webhook for policies, even one of a program that no longer runs.
func Registered(ctx context.Context, c client.Reader) (bool, error) {
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	return err == nil, client.IgnoreNotFound(err)
}

// RegisteredSince returns the time, by the API server's clock, since which a webhook for policies is registered; the
// zero time if none is.
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

// remove deletes the configuration that exists now.
func (r *Registration) remove(ctx context.Context) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return err
	}
	return r.server.client.Delete(ctx, is, client.Preconditions{UID: new(is.GetUID())})
}

// prune removes the parts of this server's webhooks that other field managers own and that change the selection of
// requests, such as added match conditions. Server-side apply does not remove them.
func (r *Registration) prune(ctx context.Context, webhooks []Webhook) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return client.IgnoreNotFound(err) // The watch reports the deletion.
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
		return nil // The watch reports the other writer's change.
	}
	return err
}

// pruned returns the entries without this server's webhooks that have no rules, and removes added match conditions from
// its other webhooks.
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

// pruneConditions reports whether it removed any condition.
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

// ClientConfig returns the address of a path of this server for the API server, and the authorities to trust: the old
// and the new ones while both are in use. It has no authorities while they are unknown, or if another program
// configures them.
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

// When returns a Runnable that keeps the configuration up to date in every replica for which leads returns true. A
// replica that has led once continues as long as it runs.
func (r *Registration) When(leads func() bool) *Following {
	return &Following{registration: r, leads: leads}
}

// Following keeps a configuration up to date in a program that elects its leader itself, without its manager.
type Following struct {
	registration *Registration
	leads        func() bool
}

// NeedLeaderElection returns false: every replica waits until it leads.
func (*Following) NeedLeaderElection() bool { return false }

// Start waits until this replica leads, and then keeps the configuration up to date until ctx ends.
func (f *Following) Start(ctx context.Context) error {
	if !until(ctx, f.leads) {
		return nil
	}
	return f.registration.Start(ctx)
}
