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
	"refract.dev/webhook/follow"
)

const fieldManager = "refract"

// Registration keeps a configuration of a server: whatever somebody does to it is
// undone within seconds. It is a Runnable of a manager that only the leader runs,
// so that two versions of the program do not undo what the other does.
//
// What it has written stays when the program ends.
type Registration struct {
	server *Server
	kept   Configuration
	// trust is sent to when the API server must trust something else.
	trust <-chan struct{}
}

// Registration returns what keeps the configuration of a hub, which has the API
// server ask about policies and clusters.
func (s *Server) Registration() *Registration { return s.Keep(policiesConfiguration()) }

// Keep returns what keeps the configuration for the server.
func (s *Server) Keep(c Configuration) *Registration {
	return &Registration{server: s, kept: c, trust: s.certificates.Changes()}
}

// NeedLeaderElection returns true.
func (*Registration) NeedLeaderElection() bool { return true }

// Start keeps the configuration until ctx ends, from when the server answers.
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

// Registered reports whether the API server asks a webhook about policies, be it
// that of a program that runs no more.
func Registered(ctx context.Context, c client.Reader) (bool, error) {
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	return err == nil, client.IgnoreNotFound(err)
}

// RegisteredSince returns since when the API server has been told to ask a webhook about
// policies, by its own clock; the zero time if it has not.
func RegisteredSince(ctx context.Context, c client.Reader) (time.Time, error) {
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.Get(ctx, types.NamespacedName{Name: ConfigurationName}, is)
	return is.CreationTimestamp.Time, client.IgnoreNotFound(err)
}

// apply makes the configuration what it should be.
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
			return fmt.Errorf("deleting %s %s, which asks about nothing: %w", r.kept.Kind, r.kept.Name, err)
		}
		return nil
	}
	var owners []metav1.OwnerReference
	if r.kept.Role != "" {
		if owners, err = r.server.owners.References(ctx, r.kept.Role); err != nil {
			return fmt.Errorf("finding what %s %s belongs to: %w", r.kept.Kind, r.kept.Name, err)
		}
	}
	if err := owner.Apply(ctx, r.server.client, r.kept.object(entries), owners, fieldManager); err != nil {
		return fmt.Errorf("applying %s %s: %w", r.kept.Kind, r.kept.Name, err)
	}
	return r.prune(ctx, webhooks)
}

// remove deletes the configuration that is there now.
func (r *Registration) remove(ctx context.Context) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return err
	}
	return r.server.client.Delete(ctx, is, client.Preconditions{UID: new(is.GetUID())})
}

// prune takes out what others hold in our webhooks and what changes when the API
// server asks: server-side apply leaves that to them.
func (r *Registration) prune(ctx context.Context, webhooks []Webhook) error {
	is := r.kept.reference()
	if err := r.server.client.Get(ctx, types.NamespacedName{Name: r.kept.Name}, is); err != nil {
		return client.IgnoreNotFound(err) // Who deletes it is noticed.
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
		return nil // Who was faster is noticed.
	}
	return err
}

// pruned returns the entries without those of ours that should not be there, and
// without conditions that we did not set in the rest of ours.
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

// pruneConditions reports whether it took out any.
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

// ClientConfig returns where the API server finds a path of this server, and what it is
// to trust: the old and the new authorities while both are in use, nothing while that is
// not known or is for somebody else to say.
func (s *Server) ClientConfig(path string) *admissionregistrationv1.WebhookClientConfig {
	return s.clientConfig(path)
}

// Changes returns a channel of the caller's own, which is sent to when ClientConfig may
// return something else.
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

// When returns what does the same in every replica for which leads returns true.
// Who has led once leads for as long as it runs.
func (r *Registration) When(leads func() bool) *Following {
	return &Following{registration: r, leads: leads}
}

// Following keeps a configuration in a program that does not leave it to its
// manager who leads.
type Following struct {
	registration *Registration
	leads        func() bool
}

// NeedLeaderElection returns false: every replica waits until it leads.
func (*Following) NeedLeaderElection() bool { return false }

// Start keeps the configuration until ctx ends, from when this replica leads.
func (f *Following) Start(ctx context.Context) error {
	if !until(ctx, f.leads) {
		return nil
	}
	return f.registration.Start(ctx)
}
