package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/member"
)

// traces has the names of the objects that a part writes while it runs.
type traces struct {
	mutating, validating []string // Webhook configurations.
	policies             []string // Names of ValidatingAdmissionPolicies.
	bindings             []string // Names of their bindings.
	secret               string   // Secret with the certificate of the webhook.
	lease                string   // Lease of the leader.
}

// The names of objects that parts write.
const (
	servicesPolicy   = "refract-services"
	webhookSecret    = "refract-webhook"            //nolint:gosec // It is a name.
	conversionSecret = "refract-conversion-webhook" //nolint:gosec // It is a name.
	inUse            = "refract-conversion-in-use"
)

var written = map[string]traces{
	Propagation.Name: {
		mutating: []string{"refract-injection-policies"}, validating: []string{"refract-policies", "refract-injection-policies"},
		policies: []string{
			"refract-followers", "refract-named-followers", servicesPolicy, "refract-placements", "refract-references", "refract-rollouts", "refract-tokens",
		},
		bindings: []string{
			"refract-followers", "refract-followers-cluster", "refract-named-followers", "refract-named-followers-cluster",
			servicesPolicy, "refract-placements", "refract-references", "refract-rollouts", "refract-tokens",
		},
		secret: webhookSecret, lease: "refract-leader",
	},
	Injection.Name: {
		mutating: []string{"refract-injection"}, validating: []string{"refract-injection"},
		policies: []string{servicesPolicy, "refract-injection-status"}, bindings: []string{servicesPolicy, "refract-injection-status"},
		secret: webhookSecret, lease: "refract-injection",
	},
	Conversion.Name: {
		validating: []string{"refract-conversion"},
		policies:   []string{"refract-unconverted", inUse}, bindings: []string{"refract-unconverted", inUse},
		secret: conversionSecret, lease: "refract-conversion",
	},
}

// Admission returns the ValidatingAdmissionPolicies that a part writes, and their bindings. The objects have only a
// name.
func (p Part) Admission() []client.Object { return p.judged(nil) }

// Configuration returns the name of the ValidatingWebhookConfiguration that a part writes.
func (p Part) Configuration() string { return written[p.Name].validating[0] }

// Secret returns the name of the Secret with the certificate of a part's webhook.
func (p Part) Secret() string { return written[p.Name].secret }

// Lease returns the name of the Lease for the leader election of a part.
func (p Part) Lease() string { return written[p.Name].lease }

// asked returns the webhook configurations of a part.
func (p Part) asked() []client.Object {
	var objects []client.Object
	for _, name := range written[p.Name].mutating {
		objects = append(objects, named("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "", name))
	}
	for _, name := range written[p.Name].validating {
		objects = append(objects, named("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", name))
	}
	return objects
}

// judged returns the admission policies that this part needs and the other parts do not. Bindings come first, because a
// policy without a binding has no effect.
func (p Part) judged(others []Part) []client.Object {
	var objects []client.Object
	shared := func(name string) bool {
		return slices.ContainsFunc(others, func(o Part) bool { return o != p && slices.Contains(written[o.Name].bindings, name) })
	}
	for _, name := range written[p.Name].bindings {
		if !shared(name) {
			objects = append(objects, named("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "", name))
		}
	}
	for _, name := range written[p.Name].policies {
		if !shared(name) {
			objects = append(objects, named("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "", name))
		}
	}
	return objects
}

// own returns the other objects that only this part needs.
func (p Part) own(namespace string, others []Part) []client.Object {
	objects := []client.Object{named("coordination.k8s.io", "Lease", namespace, written[p.Name].lease)}
	if !slices.ContainsFunc(others, func(o Part) bool { return o != p && written[o.Name].secret == written[p.Name].secret }) {
		objects = append(objects, named("", "Secret", namespace, written[p.Name].secret))
	}
	if p == Propagation {
		objects = append(objects, named("rbac.authorization.k8s.io", "Role", namespace, member.PermitRole))
	}
	return objects
}

// named returns an object that has only a name. The version of its type is v1.
func named(group, kind, namespace, name string) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// exactly is like [named], and also has the UID of an object that was read.
func exactly(group, kind string, read client.Object) client.Object {
	o := named(group, kind, read.GetNamespace(), read.GetName())
	o.SetUID(read.GetUID())
	return o
}

// Left describes webhook configurations and admission policies that remain of a part, although the part is neither
// installed nor running outside of the cluster.
func Left(ctx context.Context, c client.Reader, namespace string, there []Part) ([]string, error) {
	var left []string
	elsewhere, err := Elsewhere(ctx, c, namespace, there)
	if err != nil {
		return nil, err
	}
	running := slices.Concat(there, elsewhere)
	for _, part := range Parts() {
		if slices.Contains(running, part) {
			continue
		}
		for _, o := range slices.Concat(part.asked(), part.judged(running)) {
			kind := o.GetObjectKind().GroupVersionKind().Kind
			switch err := c.Get(ctx, client.ObjectKeyFromObject(o), o); {
			case err == nil:
				left = append(left, kind+" "+o.GetName())
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("reading %s %s: %w", kind, o.GetName(), err)
			}
		}
	}
	return left, nil
}

// Elsewhere returns the parts that run outside of the cluster. Such a part is not installed, but its Lease is being
// renewed.
func Elsewhere(ctx context.Context, c client.Reader, namespace string, there []Part) ([]Part, error) {
	var running []Part
	for _, part := range Parts() {
		if slices.Contains(there, part) {
			continue
		}
		alive, err := renewed(ctx, c, namespace, part)
		if err != nil {
			return nil, err
		}
		if alive {
			running = append(running, part)
		}
	}
	return running, nil
}

// clocksDiffer is the maximum difference between the clocks of two machines.
const clocksDiffer = time.Hour

// renewed reports whether the Lease of a part is being renewed, also by a process outside of the cluster. The clock of
// this process may be wrong, so that a new renewal looks old. Then renewed watches the Lease for its duration.
func renewed(ctx context.Context, c client.Reader, namespace string, part Part) (bool, error) {
	first, err := leaseOf(ctx, c, namespace, part)
	if err != nil || first == nil {
		return false, err
	}
	lasts := time.Duration(*first.Spec.LeaseDurationSeconds) * time.Second
	switch ago := time.Since(first.Spec.RenewTime.Time); {
	case ago < lasts+10*time.Second:
		return true, nil
	case ago > clocksDiffer:
		return false, nil
	}
	alive := false
	err = wait.PollUntilContextTimeout(ctx, every, lasts, false, func(ctx context.Context) (bool, error) {
		now, err := leaseOf(ctx, c, namespace, part)
		alive = now != nil && !now.Spec.RenewTime.Equal(first.Spec.RenewTime)
		return alive || now == nil, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return false, nil
	}
	return alive, err
}

// leaseOf returns the Lease of a part; nil if no process holds it.
func leaseOf(ctx context.Context, c client.Reader, namespace string, part Part) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	if err := look(ctx, c, client.ObjectKey{Namespace: namespace, Name: part.Lease()}, lease); err != nil {
		return nil, fmt.Errorf("reading Lease %s/%s: %w", namespace, part.Lease(), err)
	}
	is := &lease.Spec
	if is.RenewTime == nil || is.LeaseDurationSeconds == nil || is.HolderIdentity == nil || *is.HolderIdentity == "" {
		return nil, nil //nolint:nilnil // It is no error if no process holds the Lease.
	}
	return lease, nil
}

// WiredCRD is a CustomResourceDefinition whose conversion webhook belongs to a part of Refract.
type WiredCRD struct {
	// Name is the name of the CustomResourceDefinition, and Service that of the webhook's Service.
	Name, Service string
	// InUse has the versions that are served, and the versions in Stored.
	InUse []string
	// Stored has the versions in which objects may be stored. Storage is the storage version.
	Stored  []string
	Storage string

	definition *apiextensionsv1.CustomResourceDefinition
}

// pageSize is the maximum number of objects in a page of a list.
const pageSize = 100

// Wired returns the CustomResourceDefinitions whose conversion webhook is one of Refract's Services in the system
// namespace.
func Wired(ctx context.Context, c client.Reader, namespace string) ([]WiredCRD, error) {
	var wired []WiredCRD
	page := &apiextensionsv1.CustomResourceDefinitionList{}
	for {
		if err := c.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("listing CustomResourceDefinitions: %w", err)
		}
		for i := range page.Items {
			if w := wiredTo(&page.Items[i], namespace); w != nil {
				wired = append(wired, *w)
			}
		}
		if page.Continue == "" {
			return wired, nil
		}
		page = &apiextensionsv1.CustomResourceDefinitionList{ListMeta: metav1.ListMeta{Continue: page.Continue}}
	}
}

func wiredTo(crd *apiextensionsv1.CustomResourceDefinition, namespace string) *WiredCRD {
	conversion := crd.Spec.Conversion
	if conversion == nil || conversion.Strategy != apiextensionsv1.WebhookConverter || conversion.Webhook == nil ||
		conversion.Webhook.ClientConfig == nil || conversion.Webhook.ClientConfig.Service == nil {
		return nil
	}
	service := conversion.Webhook.ClientConfig.Service
	if service.Namespace != namespace || !slices.ContainsFunc(Parts(), func(p Part) bool { return p.Deployment == service.Name }) {
		return nil
	}
	w := &WiredCRD{Name: crd.Name, Service: service.Name, Stored: crd.Status.StoredVersions, definition: crd.DeepCopy()}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Storage {
			w.Storage = v.Name
		}
		if v.Served || v.Storage || slices.Contains(crd.Status.StoredVersions, v.Name) {
			w.InUse = append(w.InUse, v.Name)
		}
	}
	return w
}

// Unneeded returns nil if no stored object needs a conversion. This is so if only one version is in use, if all objects
// are stored in the storage version, or if there are no objects. Otherwise Unneeded returns an error with the reason.
func (w *WiredCRD) Unneeded(ctx context.Context, c client.Reader) error {
	if len(w.InUse) < 2 || (len(w.Stored) == 1 && w.Stored[0] == w.Storage) {
		return nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: w.definition.Spec.Group, Version: w.Storage, Kind: w.definition.Spec.Names.ListKind})
	if err := c.List(ctx, list, client.Limit(1)); err != nil {
		return fmt.Errorf("objects may be stored in %s, and cannot be listed: %w", strings.Join(w.Stored, ", "), err)
	}
	if len(list.Items) == 0 && list.Continue == "" {
		return nil
	}
	return fmt.Errorf("objects may be stored in %s: refract crd migrate %s stores all of them in %s", strings.Join(w.Stored, ", "), w.Name, w.Storage)
}

// Unwire removes the conversion webhook from a CustomResourceDefinition. It fails if the definition has changed since
// it was read.
func (w *WiredCRD) Unwire(ctx context.Context, c client.Client) error {
	before := w.definition.DeepCopy()
	after := before.DeepCopy()
	after.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, after, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("removing the conversion webhook of CustomResourceDefinition %s: %w", w.Name, err)
	}
	return nil
}
