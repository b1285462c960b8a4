package preview

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

var errNoTemplate = errors.New("has no pod template with containers, so it can create no pod")

// made returns the pod that an object stands for: a Pod itself, or the pod that the controller of a workload would
// create. The pod is nil for other objects. made also returns the place of the pod template in the object.
func made(kind schema.GroupKind, o *manifest.Object) (tree.Pointer, map[string]any) {
	at, template := podtemplate.Template(kind, o.Content.Object)
	if template == nil || at.Equal(tree.Pointer{}) {
		return at, template
	}
	metadata := map[string]any{"generateName": prefixOf(o.Content)}
	if namespace := o.Content.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	from, _ := template["metadata"].(map[string]any)
	for _, key := range [...]string{"labels", "annotations", "finalizers"} { // Controllers copy these fields.
		if from[key] != nil {
			metadata[key] = from[key]
		}
	}
	spec, _ := template["spec"].(map[string]any)
	if kind == (schema.GroupKind{Group: "apps", Kind: "StatefulSet"}) {
		spec = withClaims(o.Content, spec)
	}
	return at, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
}

// prefixOf returns the prefix of the names of an object's pods. It depends on generateName if the object has no name.
func prefixOf(u *unstructured.Unstructured) string {
	if u.GetName() == "" {
		return u.GetGenerateName()
	}
	return u.GetName() + "-"
}

// withClaims returns the spec of a StatefulSet's first pod: the claims for its volumeClaimTemplates come before the
// volumes of the template, and replace volumes of the same name. It does not modify spec.
//
// Source: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#volume-claim-templates
func withClaims(set *unstructured.Unstructured, spec map[string]any) map[string]any {
	templates, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	first, _, _ := unstructured.NestedInt64(set.Object, "spec", "ordinals", "start")
	var volumes []any
	taken := map[string]bool{}
	for _, t := range templates {
		template, _ := t.(map[string]any)
		name, _, _ := unstructured.NestedString(template, "metadata", "name")
		if name == "" {
			continue
		}
		taken[name] = true
		claim := fmt.Sprintf("%s-%s-%d", name, set.GetName(), first)
		volumes = append(volumes, map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": claim}})
	}
	if volumes == nil {
		return spec
	}
	others, _ := spec["volumes"].([]any)
	others = slices.DeleteFunc(slices.Clone(others), func(v any) bool {
		volume, _ := v.(map[string]any)
		name, _ := volume["name"].(string)
		return taken[name]
	})
	spec = maps.Clone(spec)
	spec["volumes"] = append(volumes, others...)
	return spec
}
