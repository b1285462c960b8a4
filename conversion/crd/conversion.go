package crd

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/manifest"
)

// Conversion is spec.conversion of a CustomResourceDefinition.
type Conversion struct {
	// Strategy is None or Webhook.
	Strategy string
	// URL of the webhook; empty if the webhook is a Service.
	URL string
	// Service is NAMESPACE/NAME of the webhook's Service; empty without a Service.
	Service string
	// Authority is the decoded PEM of caBundle; empty if caBundle is missing or not base64.
	Authority []byte
	// ReviewVersions are the versions of ConversionReview that the webhook accepts.
	ReviewVersions []string
}

// ConversionOf reads spec.conversion of a definition that [Compile] has accepted.
func ConversionOf(d *manifest.Document) Conversion {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedFieldNoCopy(d.Content, append([]string{"spec", "conversion"}, path...)...)
		s, _ := value.(string) // Compile has already reported values of other types.
		return s
	}
	c := Conversion{Strategy: text("strategy"), URL: text("webhook", "clientConfig", "url")}
	if c.Strategy == "" {
		c.Strategy = "None"
	}
	if name := text("webhook", "clientConfig", "service", "name"); name != "" {
		c.Service = text("webhook", "clientConfig", "service", "namespace") + "/" + name
	}
	if bundle, err := base64.StdEncoding.DecodeString(text("webhook", "clientConfig", "caBundle")); err == nil && len(bundle) > 0 {
		c.Authority = bundle
	}
	c.ReviewVersions, _, _ = unstructured.NestedStringSlice(d.Content, "spec", "conversion", "webhook", "conversionReviewVersions")
	return c
}
