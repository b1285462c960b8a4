package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/webhook/follow"
)

// TrustManager is the field manager that [Trust] writes with. It owns caBundle, and
// the names of the entries that have one, and nothing else.
const TrustManager = "refract-trust"

// Targets are the objects that have an API server ask this server, by name.
type Targets struct {
	// CRDs are CustomResourceDefinitions whose objects it converts.
	CRDs []string
	// Mutating and Validating are webhook configurations. All their entries must be
	// this server's.
	Mutating, Validating []string
}

// Truster keeps an API server trusting a server. It is a Runnable of
// controller-runtime's manager, which only the leader runs.
type Truster struct {
	client       client.WithWatch
	certificates Certificates
	log          logr.Logger
	targets      []target
}

// target is an object with clientConfigs.
type target struct {
	kind schema.GroupVersionKind
	name string
	// trusting returns what of the object is to be applied for it to have this
	// caBundle, and whether it does not have it yet.
	trusting func(object map[string]any, caBundle string) (want map[string]any, due bool, err error)
}

// Trust keeps caBundle of the targets what the certificates say must be trusted: the
// old and the new authorities while both are in use. It does so by server-side apply
// of that field alone, when the certificates or the object change, and whatever
// somebody else writes there is undone within seconds. No object is created, nor an
// entry, and one that does not ask a webhook is left alone: a line in the log says
// so once, and it is looked at again.
//
// The client may get, watch and patch the targets. The certificates are those of a
// server, which runs them. While they do not say what is to be trusted, nothing is
// written.
//
// Who takes an entry or a webhook out of an object by server-side apply is refused
// while [TrustManager] owns a field of it: a plain update, or kubectl apply without
// --server-side, can.
func Trust(c client.WithWatch, certs Certificates, t Targets, log logr.Logger) *Truster {
	all := &Truster{client: c, certificates: certs, log: log}
	for _, name := range t.CRDs {
		kind := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
		all.targets = append(all.targets, target{kind, name, trustingConversion})
	}
	for _, name := range t.Mutating {
		kind := admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
		all.targets = append(all.targets, target{kind, name, trustingEntries})
	}
	for _, name := range t.Validating {
		kind := admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
		all.targets = append(all.targets, target{kind, name, trustingEntries})
	}
	return all
}

// NeedLeaderElection returns true: two versions of a program must not undo what the
// other does.
func (*Truster) NeedLeaderElection() bool { return true }

// Start keeps the targets until ctx ends, which is no error. What goes wrong with
// one is logged once while it stays the same, and tried again.
func (t *Truster) Start(ctx context.Context) error {
	var running sync.WaitGroup
	for _, to := range t.targets {
		changes := t.certificates.Changes()
		running.Go(func() {
			list := &unstructured.UnstructuredList{}
			kind := to.kind
			kind.Kind += "List"
			list.SetGroupVersionKind(kind)
			do := func(ctx context.Context) error { return t.apply(ctx, &to) }
			follow.Object(ctx, t.client, list, types.NamespacedName{Name: to.name}, t.log, do, changes)
		})
	}
	running.Wait()
	return nil
}

// apply makes one target what it should be.
func (t *Truster) apply(ctx context.Context, to *target) error {
	trusted := t.certificates.Trusted()
	if len(trusted) == 0 {
		return nil // Whoever can say so will tell us.
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(to.kind)
	if err := t.client.Get(ctx, types.NamespacedName{Name: to.name}, is); err != nil {
		return fmt.Errorf("reading %s %s, which is to trust this server: %w", to.kind.Kind, to.name, err)
	}
	object, due, err := to.trusting(is.Object, base64.StdEncoding.EncodeToString(trusted))
	if err != nil {
		return fmt.Errorf("%s %s: %w", to.kind.Kind, to.name, err)
	}
	if !due {
		return nil
	}
	want := &unstructured.Unstructured{Object: object}
	want.SetGroupVersionKind(to.kind)
	want.SetName(to.name)
	want.SetUID(is.GetUID()) // What has been deleted is not created.
	want.SetResourceVersion(is.GetResourceVersion())
	err = t.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(TrustManager), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return nil // Who was faster is noticed.
	}
	if err != nil {
		return fmt.Errorf("having %s %s trust this server: %w", to.kind.Kind, to.name, err)
	}
	t.log.Info("An object trusts this server's authorities now", "kind", to.kind.Kind, "name", to.name)
	return nil
}

// trustingConversion is for the one webhook of a CustomResourceDefinition.
func trustingConversion(object map[string]any, caBundle string) (want map[string]any, due bool, err error) {
	config, there, err := unstructured.NestedFieldNoCopy(object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil {
		return nil, false, err
	}
	fields, isMap := config.(map[string]any)
	if !there || !isMap {
		return nil, false, errors.New("spec.conversion.webhook.clientConfig: there is none, so that no webhook is asked")
	}
	return map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{
		"clientConfig": map[string]any{"caBundle": caBundle},
	}}}}, fields["caBundle"] != caBundle, nil
}

// trustingEntries is for all entries of a webhook configuration: one that is left
// out would lose what was applied before.
func trustingEntries(object map[string]any, caBundle string) (want map[string]any, due bool, err error) {
	entries, _, err := unstructured.NestedSlice(object, "webhooks")
	if err != nil {
		return nil, false, err
	}
	all := make([]any, len(entries))
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		if is, _, err := unstructured.NestedString(entry, "clientConfig", "caBundle"); err != nil || is != caBundle {
			due = true
		}
		all[i] = map[string]any{"name": entry["name"], "clientConfig": map[string]any{"caBundle": caBundle}}
	}
	return map[string]any{"webhooks": all}, due, nil
}
