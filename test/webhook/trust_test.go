package webhook

import (
	"refract.dev/test/harness"

	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kit "refract.dev/kit/webhook"
)

// restaurant has objects through which the API server calls a webhook.
const restaurant = `
apiVersion: v1
kind: Namespace
metadata: {name: pizza}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pizzas.restaurant.example}
spec:
  group: restaurant.example
  names: {kind: Pizza, listKind: PizzaList, plural: pizzas, singular: pizza}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: pizza, name: webhook, path: /convert}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: restaurant}
webhooks:
- name: a.restaurant.example
  clientConfig: {service: {namespace: pizza, name: webhook, path: /admit}}
  admissionReviewVersions: [v1]
  sideEffects: None
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: restaurant}
webhooks:
- name: a.restaurant.example
  clientConfig: {service: {namespace: pizza, name: webhook, path: /validate}}
  admissionReviewVersions: [v1]
  sideEffects: None
- name: b.restaurant.example
  clientConfig: {service: {namespace: pizza, name: webhook, path: /validate}}
  admissionReviewVersions: [v1]
  sideEffects: None
`

// TestTrust writes the certificate authorities of a Secret into all objects with the address of the webhook. The API
// server tracks the owners of fields.
func TestTrust(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.must(t, "Another field manager owns the objects.", restaurant, nil, "apply", "--server-side", "-f", "-")
	certificates := kit.Issued(w.client, types.NamespacedName{Namespace: "pizza", Name: "webhook"}, []string{"webhook.pizza.svc"}, kit.IssuedOptions{Log: quiet})
	truster := kit.Trust(w.client, certificates, kit.Targets{
		CRDs: []string{"pizzas.restaurant.example", "gone.restaurant.example"}, Mutating: []string{"restaurant"}, Validating: []string{"restaurant", "gone"},
	}, quiet)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- certificates.Run(ctx) }()
	go func() { ended <- truster.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	all := []string{
		"customresourcedefinition/pizzas.restaurant.example=.spec.conversion.webhook.clientConfig.caBundle",
		"mutatingwebhookconfiguration/restaurant=.webhooks[0].clientConfig.caBundle",
		"validatingwebhookconfiguration/restaurant=.webhooks[0].clientConfig.caBundle",
		"validatingwebhookconfiguration/restaurant=.webhooks[1].clientConfig.caBundle",
	}
	trusted := func(what string) {
		t.Helper()
		harness.Eventually(t, what, func(context.Context) error {
			want, err := w.do("", "get", "secret", "webhook", "-n", "pizza", "-o", `jsonpath={.data.ca\.crt}`)
			if err != nil {
				return err
			}
			for _, one := range all {
				object, field, _ := strings.Cut(one, "=")
				if got, err := w.do("", "get", object, "-o", "jsonpath={"+field+"}"); err != nil || got != want {
					return errors.Join(err, errors.New(one+" is "+got))
				}
			}
			return nil
		})
	}
	trusted("all trust the authority")

	w.must(t, "An apply without caBundle does not remove it.", restaurant, nil, "apply", "--server-side", "-f", "-")
	trusted("all still trust the authority")
	w.must(t, "Another client removes a caBundle.", "", nil, "patch", "validatingwebhookconfiguration", "restaurant", "--type=json", "-p",
		`[{"op":"remove","path":"/webhooks/1/clientConfig/caBundle"}]`)
	trusted("the caBundle is restored")
	w.must(t, "The authority is replaced.", "", nil, "delete", "secret", "-n", "pizza", "webhook")
	trusted("all trust the other authority")

	want := map[string]string{
		"CustomResourceDefinition":       `{"f:spec":{"f:conversion":{"f:webhook":{"f:clientConfig":{"f:caBundle":{}}}}}}`,
		"MutatingWebhookConfiguration":   `{"f:webhooks":{"k:{\"name\":\"a.restaurant.example\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}}}`,
		"ValidatingWebhookConfiguration": `{"f:webhooks":{"k:{\"name\":\"a.restaurant.example\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}},"k:{\"name\":\"b.restaurant.example\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}}}`,
	}
	if diff := cmp.Diff(want, w.owned(t)); diff != "" {
		t.Errorf("fields that the manager owns: -want, +got:\n%s", diff)
	}
	w.mustNot(t, "A missing configuration is not created.", "", []string{"not found"}, "get", "validatingwebhookconfiguration", "gone")
	w.mustNot(t, "A missing definition is not created.", "", []string{"not found"}, "get", "customresourcedefinition", "gone.restaurant.example")

	shorter, _, _ := strings.Cut(restaurant, "- name: b.restaurant.example")
	w.mustNot(t, "Server-side apply cannot remove an entry that Trust owns, too.",
		shorter, []string{"webhooks[1].sideEffects: Required value"}, "apply", "--server-side", "-f", "-")
	w.must(t, "A plain update removes the entry.",
		"", nil, "patch", "validatingwebhookconfiguration", "restaurant", "--type=json", "-p", `[{"op":"remove","path":"/webhooks/1"}]`)
	all = all[:3]
	trusted("the rest trusts the authority")
	if out, err := w.do("", "get", "validatingwebhookconfiguration", "restaurant", "-o", "jsonpath={.webhooks[*].name}"); err != nil || out != "a.restaurant.example" {
		t.Errorf("The truster must create no entry: got %q, %v", out, err)
	}
}

// owned returns the fields of the restaurant's objects that the field manager of the tested code owns, by kind.
func (w *world) owned(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for kind, name := range map[schema.GroupVersionKind]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:               "pizzas.restaurant.example",
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}:   "restaurant",
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}: "restaurant",
	} {
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(kind)
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, is); err != nil {
			t.Fatal(err)
		}
		for _, m := range is.GetManagedFields() {
			if m.Manager == kit.TrustManager {
				all[kind.Kind] += m.FieldsV1.GetRawString()
			}
		}
	}
	return all
}
