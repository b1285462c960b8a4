package manifest

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
)

// checkIdentity checks the required fields of every object: type, name, and readable metadata. If unnamed is true, the
// object may have metadata.generateName instead of a name. It sets the object's gvk.
func (o *object) checkIdentity(unnamed bool) {
	if o.isKustomization() {
		o.report("", "is a kustomization, not a manifest", "build it with kubectl kustomize DIRECTORY, and pipe the result in with -f -")
		return
	}
	o.modernize()
	version := o.requireString(o.Content.Object, "apiVersion", "apiVersion")
	kind := o.requireString(o.Content.Object, "kind", "kind")
	if version != "" {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			o.report("apiVersion", fmt.Sprintf("is %q, want GROUP/VERSION or VERSION", version), "")
		}
		o.gvk = gv.WithKind(kind)
		switch {
		case ours(gv.Group) && kind != "":
			o.checkOurs()
		case isReport(o.gvk.GroupKind()), isRollout(o.gvk.GroupKind()):
			o.checkServed(refractv1alpha1.GroupVersion)
		case (gv == refractv1beta1.GroupVersion && kind != "") || isInjection(o.gvk.GroupKind()):
			o.checkInjection()
		}
	}
	metadata, ok := o.Content.Object["metadata"].(map[string]any)
	if !ok && o.Content.Object["metadata"] != nil {
		o.report("metadata", fmt.Sprintf("is %s, want an object", tree.TypeName(o.Content.Object["metadata"])), "")
		return
	}
	at := field.NewPath("metadata")
	o.checkName(metadata, unnamed)
	if metadata["namespace"] != nil && metadata["namespace"] != "" {
		if namespace := o.requireString(metadata, "namespace", "metadata.namespace"); namespace != "" {
			for _, msg := range apivalidation.ValidateNamespaceName(namespace, false) {
				o.report("metadata.namespace", fmt.Sprintf("is %q, which is no namespace: %s", namespace, msg), "")
			}
		}
	}
	if labels, ok := o.stringMap(metadata, "labels", at); ok {
		o.reportAll(metav1validation.ValidateLabels(labels, at.Child("labels")))
	}
	if annotations, ok := o.stringMap(metadata, "annotations", at); ok {
		o.reportAll(apivalidation.ValidateAnnotations(annotations, at.Child("annotations")))
	}
}

// checkName checks the name of an object, or its generateName.
func (o *object) checkName(metadata map[string]any, unnamed bool) {
	if prefix, _ := metadata["generateName"].(string); unnamed && prefix != "" && metadata["name"] == nil {
		for _, msg := range content.IsPathSegmentPrefix(prefix) {
			o.report("metadata.generateName", fmt.Sprintf("is %q, which %s", prefix, msg), "")
		}
		return
	}
	if prefix, _ := metadata["generateName"].(string); !unnamed && prefix != "" && metadata["name"] == nil {
		o.report("metadata.name", "is missing; metadata.generateName makes a new object with each kubectl create, and cannot be used here",
			"give the object a name")
		return
	}
	name := o.requireString(metadata, "name", "metadata.name")
	if name == "" {
		return
	}
	for _, msg := range content.IsPathSegmentName(name) {
		o.report("metadata.name", fmt.Sprintf("is %q, which %s", name, msg), "")
	}
}

// requireString returns a member that must be a non-empty string. Otherwise it reports a mistake.
func (o *object) requireString(from map[string]any, key, at string) string {
	s, ok := from[key].(string)
	switch {
	case from[key] == nil:
		o.report(at, "is missing", o.hintMissing(key))
	case !ok:
		o.report(at, fmt.Sprintf("is %s, want a string", show(from[key])), hintQuote(from[key]))
	case s == "":
		o.report(at, "is empty", "")
	}
	return s
}

// kustomizations are the names of files that need no apiVersion and kind: kustomize adds them.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml"}

func (o *object) isKustomization() bool {
	version, _ := o.Content.Object["apiVersion"].(string)
	return strings.HasPrefix(version, "kustomize.config.k8s.io/") ||
		(o.Content.Object["kind"] == nil && slices.Contains(kustomizations, filepath.Base(o.Place.File)))
}

// hintMissing returns a hint for values.yaml and Chart.yaml of a Helm chart, which has to be rendered first. Chart.yaml
// has an apiVersion, so the hint is only for a missing kind.
func (o *object) hintMissing(key string) string {
	file := filepath.Base(o.Place.File)
	if key != "kind" || (file != "values.yaml" && file != "Chart.yaml") {
		return ""
	}
	return "pipe the output of helm template in with -f -"
}

// stringMap returns an optional member that must be a map of strings; ok is false if it is absent or not such a map.
func (o *object) stringMap(metadata map[string]any, key string, at *field.Path) (map[string]string, bool) {
	if metadata[key] == nil {
		return nil, false
	}
	m, ok := metadata[key].(map[string]any)
	if !ok {
		o.report(at.Child(key).String(), fmt.Sprintf("is %s, want an object", tree.TypeName(metadata[key])), "")
		return nil, false
	}
	out := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s, isString := m[k].(string)
		if !isString && m[k] != nil {
			o.report(at.Child(key).Key(k).String(), fmt.Sprintf("is %s, want a string", show(m[k])), hintQuote(m[k]))
			ok = false
		}
		out[k] = s
	}
	return out, ok
}
