package review

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
)

// RuleConversion is the rule of findings about conversion webhooks: the webhook rejects the object, or its answer is
// invalid.
const RuleConversion = "ConversionFailed"

// Converter converts objects by sending ConversionReviews to a webhook. It is not safe for concurrent use.
type Converter struct {
	webhook   Webhook
	witness   *witness
	converter runtime.ObjectConvertor
}

// NewConverter returns the converter for the objects of a definition. It uses the first version in reviewVersions that
// an API server supports. An empty list means v1.
func NewConverter(d *structural.Definition, reviewVersions []string, w Webhook) (*Converter, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	if len(reviewVersions) == 0 {
		reviewVersions = []string{"v1"}
	}
	c := &Converter{webhook: w, witness: &witness{timeout: conversionTimeout, serverName: w.ServerName, insecure: w.Insecure}}
	factory, err := conversion.NewCRConverterFactory(webhook.NewDefaultServiceResolver(), c.witness.resolver)
	if err != nil {
		return nil, fmt.Errorf("preparing to convert: %w", err)
	}
	c.converter, _, err = factory.NewConverter(definition(d, reviewVersions, w))
	if err != nil {
		return nil, fmt.Errorf("preparing to ask %s: %w", w.URL, err)
	}
	return c, nil
}

// definition returns the CustomResourceDefinition with the fields that the API server's client needs.
func definition(d *structural.Definition, reviewVersions []string, w Webhook) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name, crd.Spec.Group, crd.Spec.Scope = d.Name(), d.Group(), apiextensionsv1.ClusterScoped
	if d.Namespaced() {
		crd.Spec.Scope = apiextensionsv1.NamespaceScoped
	}
	for _, v := range d.Versions() {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v.Name()})
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &w.URL, CABundle: w.Authority},
			ConversionReviewVersions: reviewVersions,
		},
	}
	return crd
}

// Convert returns the object in another version. Like an API server, it ignores changes of metadata by the webhook,
// except changes of labels and annotations. Its argument is not modified.
func (c *Converter) Convert(ctx context.Context, object map[string]any, toAPIVersion string) (map[string]any, error) {
	to, err := schema.ParseGroupVersion(toAPIVersion)
	if err != nil {
		return nil, fmt.Errorf("reading the version to convert to: %w", err)
	}
	out, err := c.ask(ctx, &unstructured.Unstructured{Object: object}, to)
	if err != nil {
		return nil, err
	}
	u, ok := out.(*unstructured.Unstructured)
	if !ok {
		return nil, &pipeline.RefusedError{Rule: RuleConversion, Message: fmt.Sprintf("unexpected type %T", out)}
	}
	return u.Object, nil
}
