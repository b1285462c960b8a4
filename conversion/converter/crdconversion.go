package converter

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// FieldManager is the field manager of Refract's writes to spec.conversion of definitions.
const FieldManager = "refract-conversion"

// reviewVersions are the supported versions of ConversionReview.
var reviewVersions = []string{"v1", "v1beta1"}

// definitionKind is the group, version and kind of definitions.
var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// conversionOf returns spec.conversion of a definition; the zero value if the field is missing or invalid.
func conversionOf(crd *unstructured.Unstructured) *apiextensionsv1.CustomResourceConversion {
	c := &apiextensionsv1.CustomResourceConversion{}
	is, ok, err := unstructured.NestedMap(crd.Object, "spec", "conversion")
	if !ok || err != nil {
		return c
	}
	text, err := json.Marshal(is)
	if err != nil || json.Unmarshal(text, c) != nil {
		return &apiextensionsv1.CustomResourceConversion{}
	}
	return c
}

// crdConversion is the result of a comparison of spec.conversion of a definition with the wanted value.
type crdConversion struct {
	// current is true if spec.conversion has the wanted value.
	current bool
	// ours is true if spec.conversion names a webhook of Refract, with any CA bundle.
	ours bool
	// elsewhere is the address in spec.conversion if Refract wrote it and this process has another address. It is
	// either an earlier address of this process, or that of another installation of Refract.
	elsewhere string
	// theirs is the address in spec.conversion if it names a webhook of another program; otherwise empty.
	theirs string
	// replace is true if the present address must be removed first. A definition cannot have both a URL and a Service,
	// and server-side apply does not remove fields of other managers.
	replace bool
}

// crdConversionOf compares spec.conversion of a definition with the address of this process.
func crdConversionOf(crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig) crdConversion {
	is := conversionOf(crd)
	if is.Strategy != apiextensionsv1.WebhookConverter || is.Webhook == nil || is.Webhook.ClientConfig == nil {
		return crdConversion{}
	}
	config := is.Webhook.ClientConfig
	same := sameEndpoint(config, want)
	w := crdConversion{ours: same || applied(crd), replace: (config.URL == nil) != (want.URL == nil)}
	if !w.ours {
		w.theirs = endpointOf(config)
		return w
	}
	if !same {
		w.elsewhere = endpointOf(config)
	}
	w.current = same && slices.Equal(is.Webhook.ConversionReviewVersions, reviewVersions) &&
		(len(want.CABundle) == 0 || string(config.CABundle) == string(want.CABundle))
	return w
}

// sameEndpoint reports whether the two configurations have the same address.
func sameEndpoint(is *apiextensionsv1.WebhookClientConfig, want *admissionregistrationv1.WebhookClientConfig) bool {
	if want.URL != nil {
		return is.URL != nil && *is.URL == *want.URL
	}
	s, w := is.Service, want.Service
	return s != nil && s.Namespace == w.Namespace && s.Name == w.Name && s.Path != nil && *s.Path == *w.Path &&
		(s.Port == nil || *s.Port == *w.Port)
}

// endpointOf returns the address of a webhook as text.
func endpointOf(c *apiextensionsv1.WebhookClientConfig) string {
	switch {
	case c.URL != nil:
		return *c.URL
	case c.Service != nil:
		return "Service " + c.Service.Namespace + "/" + c.Service.Name
	default:
		return "a webhook without an address"
	}
}

// applied reports whether Refract wrote the present address of the webhook. Another manager that changes the address
// takes over the field.
func applied(crd *unstructured.Unstructured) bool {
	for _, m := range crd.GetManagedFields() {
		if m.Manager != FieldManager || m.Operation != metav1.ManagedFieldsOperationApply || m.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
			return false
		}
		config := []any{"spec", "conversion", "webhook", "clientConfig"}
		return set.Has(fieldpath.MakePathOrDie(append(slices.Clone(config), "url")...)) ||
			set.Has(fieldpath.MakePathOrDie(append(slices.Clone(config), "service", "name")...))
	}
	return false
}

// changedBy returns the field manager of the last write of spec.conversion, other than Refract's. If no manager is
// known, it returns "somebody".
func changedBy(crd *unstructured.Unstructured) string {
	name, at := "somebody", time.Time{}
	for _, m := range crd.GetManagedFields() {
		if m.Manager == FieldManager || m.FieldsV1 == nil || m.Time == nil || m.Time.Time.Before(at) {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(m.FieldsV1.GetRawReader()) != nil {
			continue
		}
		spec, conversion := "spec", "conversion"
		if !set.WithPrefix(fieldpath.PathElement{FieldName: &spec}).WithPrefix(fieldpath.PathElement{FieldName: &conversion}).Empty() {
			name, at = m.Manager, m.Time.Time
		}
	}
	return name
}

// wire sets spec.conversion of a definition to the address of this process. It uses server-side apply, and writes no
// other field.
func wire(ctx context.Context, c client.Client, crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig, w crdConversion) error {
	config, err := clientConfig(want)
	if err != nil {
		return err
	}
	if w.replace {
		crd, err = replace(ctx, c, crd, config)
		if err != nil {
			return err
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"conversion": map[string]any{
		"strategy": string(apiextensionsv1.WebhookConverter),
		"webhook": map[string]any{
			"clientConfig": config, "conversionReviewVersions": []any{reviewVersions[0], reviewVersions[1]},
		},
	}}}}
	u.SetGroupVersionKind(definitionKind)
	u.SetName(crd.GetName())
	u.SetUID(crd.GetUID()) // With a UID, the apply cannot create a deleted definition again.
	u.SetResourceVersion(crd.GetResourceVersion())
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("writing spec.conversion of CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	specConversions.WithLabelValues("webhook").Inc()
	return nil
}

// clientConfig returns an address in the format of spec.conversion.
func clientConfig(want *admissionregistrationv1.WebhookClientConfig) (map[string]any, error) {
	config := map[string]any{}
	if len(want.CABundle) > 0 {
		config["caBundle"] = base64.StdEncoding.EncodeToString(want.CABundle)
	}
	switch {
	case want.URL != nil:
		config["url"] = *want.URL
	case want.Service != nil:
		s := want.Service
		config["service"] = map[string]any{"namespace": s.Namespace, "name": s.Name, "path": *s.Path, "port": int64(*s.Port)}
	default:
		return nil, errors.New("the webhook has no address")
	}
	return config, nil
}

// replace replaces a URL by a Service or a Service by a URL, even if another manager owns the field. It uses one patch,
// because the definition must have an address at all times.
func replace(ctx context.Context, c client.Client, crd *unstructured.Unstructured, config map[string]any) (*unstructured.Unstructured, error) {
	patch := map[string]any{"url": nil, "service": nil, "caBundle": nil}
	maps.Copy(patch, config)
	out, err := patchConversion(ctx, c, crd, map[string]any{
		"strategy": string(apiextensionsv1.WebhookConverter),
		"webhook":  map[string]any{"clientConfig": patch, "conversionReviewVersions": reviewVersions},
	})
	if err != nil {
		return nil, fmt.Errorf("taking over spec.conversion of CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	return out, nil
}

// unwire sets spec.conversion to the strategy None, even if another manager owns the field.
func unwire(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	_, err := patchConversion(ctx, c, crd, map[string]any{"strategy": string(apiextensionsv1.NoneConverter), "webhook": nil})
	if err != nil {
		return fmt.Errorf("resetting spec.conversion of CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	specConversions.WithLabelValues("none").Inc()
	return nil
}

// patchConversion merges a patch into spec.conversion. It returns a conflict error if the definition has changed since
// the caller read it.
func patchConversion(ctx context.Context, c client.Client, crd *unstructured.Unstructured, conversion map[string]any) (*unstructured.Unstructured, error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": crd.GetUID(), "resourceVersion": crd.GetResourceVersion()},
		"spec":     map[string]any{"conversion": conversion},
	})
	if err != nil {
		return nil, err
	}
	out := crd.DeepCopy()
	return out, c.Patch(ctx, out, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldManager))
}

// versionsInUse returns the versions that the API server serves or that stored objects may have, in the order of the
// definition.
func versionsInUse(crd *unstructured.Unstructured) []string {
	stored, _ := storedVersions(crd)
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var names []string
	for _, v := range list {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		if version["served"] == true || version["storage"] == true || slices.Contains(stored, any(name)) {
			names = append(names, name)
		}
	}
	return names
}

// neededBy returns the reason, as a message to the user, why the chosen or serving policy of a definition cannot be
// deleted; empty if it can. crd is nil if the definition does not exist. A policy with status.served is also needed if
// spec.conversion names no webhook, because the reconciler is about to correct the field. A policy without
// status.served is needed if spec.conversion names Refract, because a backup restores policies without their statuses.
func neededBy(p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig) string {
	if crd == nil {
		return ""
	}
	if w := crdConversionOf(crd, want); w.theirs != "" || !w.ours && p.Status.Served == nil {
		return ""
	}
	versions := versionsInUse(crd)
	if len(versions) < 2 {
		return ""
	}
	lost, otherwise := "objects could not be read", ""
	if sameSchemas(crd, versions) {
		entry := changing(p, versions)
		if entry == "" {
			return ""
		}
		lost = "objects would be read and written as they are stored, although " + entry + " changes values between these versions"
		otherwise = ", or use a policy with entries that change no values"
	}
	return fmt.Sprintf("ConversionPolicy %s is needed by CustomResourceDefinition %s, whose versions %s are served or stored: without it %s. Either keep "+
		"only one version (refract crd migrate %s stores all objects in one; then stop serving the others), or point spec.conversion of the definition to "+
		"another webhook%s",
		p.Name, crd.GetName(), strings.Join(versions, ", "), lost, crd.GetName(), otherwise)
}

// changing returns the first entry of a policy that changes the form or the place of a value of these versions; "" if
// there is none. It reads the spec in status.served or, without one, the spec of the policy. Versions with equal
// schemas may still give different meanings to equal values, such as "on: true" and "off: true".
func changing(p *refractv1alpha1.ConversionPolicy, versions []string) string {
	spec := &p.Spec
	if p.Status.Served != nil {
		spec = &p.Status.Served.Spec
	}
	for i, s := range spec.Spokes {
		if !slices.Contains(versions, s.Version) {
			continue
		}
		for j, f := range s.Fields {
			if !reflect.DeepEqual(f, refractv1alpha1.FieldConversion{Hub: f.Spoke, Spoke: f.Spoke}) {
				return fmt.Sprintf("spec.spokes[%d].fields[%d]", i, j)
			}
		}
	}
	return ""
}

// sameSchemas reports whether these versions have equal schemas. Objects of one version are then valid in the others
// without conversion.
func sameSchemas(crd *unstructured.Unstructured, names []string) bool {
	versions, _, _ := unstructured.NestedSlice(reduced(crd), "spec", "versions")
	var first any
	for _, v := range versions {
		version, _ := v.(map[string]any)
		name, _ := version["name"].(string)
		switch {
		case !slices.Contains(names, name):
		case first == nil:
			first = version["schema"]
		case !reflect.DeepEqual(first, version["schema"]):
			return false
		}
	}
	return true
}
