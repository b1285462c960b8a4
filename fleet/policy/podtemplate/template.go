package podtemplate

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// workloads are the built-in kinds, besides Pod, that have a pod template.
var workloads = map[string][]string{
	"":           {"PodTemplate", "ReplicationController"},
	"apps":       {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"batch":      {"CronJob", "Job"},
	"extensions": {"DaemonSet", "Deployment", "ReplicaSet"}, // In manifests from before Kubernetes 1.16.
}

// templates are the possible places of a pod template in a workload.
var templates = [...]tree.Pointer{
	tree.MustParse("/spec/template"),
	tree.MustParse("/spec/jobTemplate/spec/template"),
	tree.MustParse("/template"),
}

// MakesPods reports whether a built-in kind has a pod template, or is Pod itself.
func MakesPods(kind schema.GroupKind) bool {
	return isPod(kind) || slices.Contains(workloads[kind.Group], kind.Kind)
}

func isPod(kind schema.GroupKind) bool { return kind == schema.GroupKind{Kind: "Pod"} }

// Template returns the pod template of an object and its place. For a Pod this is the Pod itself. For any other kind,
// known or not, it is the object at spec.template, spec.jobTemplate.spec.template or template whose spec has a list of
// containers. It returns nil without a template. The template is part of the object and must not be modified.
func Template(kind schema.GroupKind, object map[string]any) (tree.Pointer, map[string]any) {
	if isPod(kind) {
		return tree.Pointer{}, object
	}
	for _, at := range templates {
		value, err := tree.Lookup(object, at)
		if err != nil {
			continue
		}
		template, _ := value.(map[string]any)
		spec, _ := template["spec"].(map[string]any)
		if _, ok := spec["containers"].([]any); ok {
			return at, template
		}
	}
	return tree.Pointer{}, nil
}
