package crd

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/offline/manifest"
)

// Conversion is what a CustomResourceDefinition says of conversion.
type Conversion struct {
	// Strategy is None or Webhook.
	Strategy string
	// URL of the webhook; empty if it is a Service.
	URL string
	// Service is NAMESPACE/NAME of the webhook's Service; empty if there is none.
	Service string
	// Authority is the PEM bundle of the webhook; empty if there is none, or if it is
	// not base64.
	Authority []byte
	// ReviewVersions are those that the webhook understands.
	ReviewVersions []string
}

// ConversionOf reads what a definition, which has been compiled, says of conversion.
func ConversionOf(d *manifest.Document) Conversion {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedFieldNoCopy(d.Content, append([]string{"spec", "conversion"}, path...)...)
		s, _ := value.(string) // What is not as it must be was found when it was compiled.
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
