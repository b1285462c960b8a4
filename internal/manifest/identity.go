package manifest

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/tree"
)

// checkIdentity checks what every object must have: a type, a name, and metadata
// that can be read. It sets the object's gvk.
func (c *collector) checkIdentity(o *object) {
	version := c.requireString(o, o.Content.Object, "apiVersion", "apiVersion")
	kind := c.requireString(o, o.Content.Object, "kind", "kind")
	if version != "" {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			c.report(o, "apiVersion", fmt.Sprintf("is %q, want GROUP/VERSION or VERSION", version), "")
		}
		if gv.Group == "kustomize.config.k8s.io" {
			c.report(o, "", "is kustomize's own file and no manifest", "kustomize build prints the manifests; pipe them in with -f -")
			return
		}
		o.gvk = gv.WithKind(kind)
		if ours(gv.Group) && kind != "" {
			c.checkOurs(o)
		}
	}
	metadata, ok := o.Content.Object["metadata"].(map[string]any)
	if !ok && o.Content.Object["metadata"] != nil {
		c.report(o, "metadata", fmt.Sprintf("is %s, want an object", tree.TypeName(o.Content.Object["metadata"])), "")
		return
	}
	at := field.NewPath("metadata")
	if name := c.requireString(o, metadata, "name", "metadata.name"); name != "" {
		for _, msg := range content.IsPathSegmentName(name) {
			c.report(o, "metadata.name", fmt.Sprintf("is %q, which %s", name, msg), "")
		}
	}
	if metadata["namespace"] != nil && metadata["namespace"] != "" {
		if namespace := c.requireString(o, metadata, "namespace", "metadata.namespace"); namespace != "" {
			for _, msg := range apivalidation.ValidateNamespaceName(namespace, false) {
				c.report(o, "metadata.namespace", fmt.Sprintf("is %q, which is no namespace: %s", namespace, msg), "")
			}
		}
	}
	if labels, ok := c.stringMap(o, metadata, "labels", at); ok {
		c.reportAll(o, metav1validation.ValidateLabels(labels, at.Child("labels")))
	}
	if annotations, ok := c.stringMap(o, metadata, "annotations", at); ok {
		c.reportAll(o, apivalidation.ValidateAnnotations(annotations, at.Child("annotations")))
	}
}

// requireString returns a member that must be a string that is not empty, or the
// empty string and reports it.
func (c *collector) requireString(o *object, from map[string]any, key, at string) string {
	s, ok := from[key].(string)
	switch {
	case from[key] == nil:
		c.report(o, at, "is missing", "")
	case !ok:
		c.report(o, at, fmt.Sprintf("is %s, want a string", show(from[key])), hintQuote(from[key]))
	case s == "":
		c.report(o, at, "is empty", "")
	}
	return s
}

// stringMap returns a member that must be a map of strings if it is there, and
// whether it is one.
func (c *collector) stringMap(o *object, metadata map[string]any, key string, at *field.Path) (map[string]string, bool) {
	if metadata[key] == nil {
		return nil, false
	}
	m, ok := metadata[key].(map[string]any)
	if !ok {
		c.report(o, at.Child(key).String(), fmt.Sprintf("is %s, want an object", tree.TypeName(metadata[key])), "")
		return nil, false
	}
	out := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s, isString := m[k].(string)
		if !isString && m[k] != nil {
			c.report(o, at.Child(key).Key(k).String(), fmt.Sprintf("is %s, want a string", show(m[k])), hintQuote(m[k]))
			ok = false
		}
		out[k] = s
	}
	return out, ok
}
