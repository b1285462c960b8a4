package converter

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// widgets is a definition with two versions. One field has different names in them.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [w]}
  conversion: {strategy: None}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        description: A widget.
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, description: How large it is.}, description: {type: string}}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {capacity: {type: integer}, description: {type: string}}
status: {storedVersions: [v1]}
`

// mapped is a policy that moves the field. other is a policy that keeps the field of each version in the annotation.
const (
	mapped = `
spec:
  crd: widgets.example.com
  hub: v2
  mode: Serve
  spokes: [{version: v1, fields: [{hub: spec.capacity, spoke: spec.size}]}]
`
	other = `
spec:
  crd: widgets.example.com
  hub: v2
  mode: Shadow
  spokes: [{version: v1, fields: [{hub: spec.capacity, added: {}}, {spoke: spec.size, removed: {}}]}]
`
)

func read(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		tb.Fatal(err)
	}
	return u
}

// policyFrom returns a policy with this name. Its age is given in minutes.
func policyFrom(t *testing.T, text, name string, minutes int) *refractv1alpha1.ConversionPolicy {
	t.Helper()
	p := &refractv1alpha1.ConversionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	p.Name, p.UID, p.Generation = name, types.UID("uid-of-"+name), 1
	p.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).Add(-time.Duration(minutes) * time.Minute))
	return p
}

// serving sets status.served of a policy to its spec.
func serving(t *testing.T, p *refractv1alpha1.ConversionPolicy) *refractv1alpha1.ConversionPolicy {
	t.Helper()
	packed, err := pack(reduced(read(t, widgets)))
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Served = &refractv1alpha1.ServedConversion{Generation: p.Generation, Spec: p.Spec, Definition: packed}
	return p
}

// at returns the client configuration of this server at a URL.
func at(url string) *admissionregistrationv1.WebhookClientConfig {
	return &admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: []byte("authority")}
}

// behind returns the client configuration of this server behind a Service.
func behind(name string) *admissionregistrationv1.WebhookClientConfig {
	path, port := Path+"widgets.example.com", int32(443)
	return &admissionregistrationv1.WebhookClientConfig{
		Service:  &admissionregistrationv1.ServiceReference{Namespace: "shop", Name: name, Path: &path, Port: &port},
		CABundle: []byte("authority"),
	}
}
