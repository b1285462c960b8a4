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

	"refract.dev/kit/webhook/follow"
)

// TrustManager is the field manager of [Trust]. It owns only caBundle and, in lists of webhooks, the names of the
// entries.
const TrustManager = "refract-trust"

// Targets are the names of the objects that configure an API server to call this server.
type Targets struct {
	// CRDs are CustomResourceDefinitions. The server converts their objects.
	CRDs []string
	// Mutating and Validating are webhook configurations. All their entries must belong to this server.
	Mutating, Validating []string
}

// Truster keeps the caBundles of the [Targets] up to date. It is a Runnable of controller-runtime's manager, and runs
// on the leader only.
type Truster struct {
	client       client.WithWatch
	certificates Certificates
	log          logr.Logger
	targets      []target
}

// target is one object with one or more clientConfigs.
type target struct {
	kind schema.GroupVersionKind
	name string
	// trusting returns the fields for a server-side apply that sets this caBundle. due is true if the object has
	// another caBundle, or none.
	trusting func(object map[string]any, caBundle string) (want map[string]any, due bool, err error)
}

// Trust sets the caBundle of the targets to the authorities of the certificates. During a change of authorities it sets
// both the old and the new ones. It writes only that field, by server-side apply, when the certificates or the object
// change, and it reverts changes of other writers within seconds. It creates no objects and no entries. If an object
// has no clientConfig of a webhook, Trust does not change the object, logs this once, and tries again.
//
// The client needs get, watch and patch on the targets. The server runs the certificates. While their authorities are
// unknown, Trust writes nothing.
//
// [TrustManager] is a field owner of each entry of a webhook configuration, and of spec.conversion.webhook of a
// CustomResourceDefinition. So the API server rejects a server-side apply that removes such an entry or webhook. A
// plain update, or kubectl apply without --server-side, can remove it.
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

// NeedLeaderElection returns true, because during an upgrade two versions of a program would undo each other's changes.
func (*Truster) NeedLeaderElection() bool { return true }

// Start keeps the targets up to date until ctx ends, and then returns nil. It logs each error of a target once, until
// the error changes, and tries again.
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

// apply updates one target if its caBundle is not up to date.
func (t *Truster) apply(ctx context.Context, to *target) error {
	trusted := t.certificates.Trusted()
	if len(trusted) == 0 {
		return nil // Changes of the certificates receives a value once the authorities are known.
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
	want.SetUID(is.GetUID()) // With a UID, the apply cannot create an object that was deleted.
	want.SetResourceVersion(is.GetResourceVersion())
	err = t.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(TrustManager), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return nil // The watch reports the change of the other writer.
	}
	if err != nil {
		return fmt.Errorf("setting caBundle in %s %s: %w", to.kind.Kind, to.name, err)
	}
	t.log.Info("Wrote this server's authorities to caBundle", "kind", to.kind.Kind, "name", to.name)
	return nil
}

// trustingConversion implements target.trusting for a CustomResourceDefinition, which has one webhook.
func trustingConversion(object map[string]any, caBundle string) (want map[string]any, due bool, err error) {
	config, there, err := unstructured.NestedFieldNoCopy(object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil {
		return nil, false, err
	}
	fields, isMap := config.(map[string]any)
	if !there || !isMap {
		return nil, false, errors.New("spec.conversion.webhook.clientConfig: missing, so no webhook is called")
	}
	return map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{
		"clientConfig": map[string]any{"caBundle": caBundle},
	}}}}, fields["caBundle"] != caBundle, nil
}

// trustingEntries implements target.trusting for webhook configurations. It applies all entries, because an apply
// without an entry would remove the caBundle of that entry.
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
