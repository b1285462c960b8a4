package conversion

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

// FieldManager is the field manager that spec.conversion of definitions is written with.
const FieldManager = "refract-conversion"

// reviewVersions are those of ConversionReview that are answered.
var reviewVersions = []string{"v1", "v1beta1"}

// definitionKind is that of definitions.
var definitionKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// conversionOf returns spec.conversion of a definition; the zero value if there is none,
// or none that can be read.
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

// crdConversion is what spec.conversion of a definition is, compared with what it should be.
type crdConversion struct {
	// current is whether it is as it should be.
	current bool
	// ours is whether the API server asks us, though it may trust something else.
	ours bool
	// elsewhere names where it asks if that is ours and not where we are: it was us before,
	// or is of a different program of Refract.
	elsewhere string
	// theirs names whom it asks if it is somebody else; empty for nobody.
	theirs string
	// replace is whether what it asks now must be taken away: server-side apply leaves
	// to others what they have written, and there is room for one.
	replace bool
}

// crdConversionOf compares a definition with where the API server finds its conversion here.
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

// sameEndpoint reports whether the API server asks at this place.
func sameEndpoint(is *apiextensionsv1.WebhookClientConfig, want *admissionregistrationv1.WebhookClientConfig) bool {
	if want.URL != nil {
		return is.URL != nil && *is.URL == *want.URL
	}
	s, w := is.Service, want.Service
	return s != nil && s.Namespace == w.Namespace && s.Name == w.Name && s.Path != nil && *s.Path == *w.Path &&
		(s.Port == nil || *s.Port == *w.Port)
}

// endpointOf says in words whom the API server asks.
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

// applied reports whether the address that the API server asks at is one that this
// program has written: it may have had another then. Who writes another one owns it.
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

// changedBy names the field manager, other than ours, that has written spec.conversion of a
// definition last; "somebody" if nobody has who is known.
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

// wire has the API server ask us, by server-side apply of spec.conversion alone.
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
	u.SetUID(crd.GetUID()) // What has been deleted is not created.
	u.SetResourceVersion(crd.GetResourceVersion())
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("writing spec.conversion of CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	specConversions.WithLabelValues("webhook").Inc()
	return nil
}

// clientConfig returns an address as it stands in a definition.
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

// replace puts an address in the place of one of another kind, which somebody else owns,
// in one step: there may be no moment without any.
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

// unwire has the API server ask nobody any more, whoever has written what it asks.
func unwire(ctx context.Context, c client.Client, crd *unstructured.Unstructured) error {
	_, err := patchConversion(ctx, c, crd, map[string]any{"strategy": string(apiextensionsv1.NoneConverter), "webhook": nil})
	if err != nil {
		return fmt.Errorf("setting spec.conversion of CustomResourceDefinition %s back: %w", crd.GetName(), err)
	}
	specConversions.WithLabelValues("none").Inc()
	return nil
}

// patchConversion merges into spec.conversion of the definition as it was read.
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

// versionsInUse returns the versions that are served or that objects may be stored in, in
// the order of the definition.
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

// neededBy returns why the policy of a definition that serves, or is to, cannot be deleted, as it
// is told to who would delete it; empty if it can. The definition is nil if there is none.
// One that asks nobody at the moment needs a policy that serves, too: it is about to ask
// again. So it does if a backup has brought the policy back without its status.
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
		otherwise = ", or have a policy serve whose entries change no values"
	}
	return fmt.Sprintf("ConversionPolicy %s is needed by CustomResourceDefinition %s, whose versions %s are served or stored: "+
		"without it %s. Either have one version left (refract crd migrate %s has all objects stored in one; "+
		"then no longer serve the others), or have spec.conversion of the definition ask another webhook%s",
		p.Name, crd.GetName(), strings.Join(versions, ", "), lost, crd.GetName(), otherwise)
}

// changing returns the first entry of what a policy serves, or is to, that gives a value of these
// versions another form or place; "" if there is none. Versions with equal schemas may still mean
// different things by equal values, such as on by true and off by true.
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

// sameSchemas reports whether these versions differ in nothing but their names, so that each
// takes the objects of the others as they are.
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
