package placement

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Workload names a workload in the namespace of the referring object.
type Workload struct {
	schema.GroupKind

	Name string
}

// autoscalers are the kinds that scale a workload by its subresource scale, each with the default kind of the workload:
// https://keda.sh/docs/latest/reference/scaledobject-spec/.
var autoscalers = map[schema.GroupKind]schema.GroupKind{
	{Group: autoscalingv1.GroupName, Kind: "HorizontalPodAutoscaler"}: {},
	{Group: "keda.sh", Kind: "ScaledObject"}:                          {Group: appsv1.GroupName, Kind: "Deployment"},
}

// IsAutoscaler reports whether objects of a kind scale workloads.
func IsAutoscaler(kind schema.GroupKind) bool {
	_, is := autoscalers[kind]
	return is
}

// Scales returns the workload whose replicas an object controls, by its scaleTargetRef; ok is false if the object
// controls none. Scales neither keeps nor changes parts of the object.
func Scales(obj *unstructured.Unstructured) (target Workload, ok bool) {
	missing, is := autoscalers[obj.GroupVersionKind().GroupKind()]
	if !is {
		return Workload{}, false
	}
	ref, _, err := unstructured.NestedMap(obj.Object, "spec", "scaleTargetRef")
	if err != nil {
		return Workload{}, false
	}
	apiVersion, _ := ref["apiVersion"].(string)
	kind, _ := ref["kind"].(string)
	target.Name, _ = ref["name"].(string)
	target.GroupKind = schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
	if kind == "" {
		target.Kind = missing.Kind
	}
	if apiVersion == "" && target.Kind == missing.Kind {
		target.Group = missing.Group
	}
	return target, target.Kind != "" && target.Name != ""
}
