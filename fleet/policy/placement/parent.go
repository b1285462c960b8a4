package placement

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// parentsOf are the kinds whose built-in controllers create objects of a type. Such an object often has the labels of
// its parent, or of a template in the parent, and therefore also the label for propagation.
var parentsOf = map[schema.GroupResource][]schema.GroupKind{
	{Resource: "pods"}: {
		{Group: appsv1.GroupName, Kind: "ReplicaSet"}, {Group: appsv1.GroupName, Kind: "StatefulSet"}, {Group: appsv1.GroupName, Kind: "DaemonSet"},
		{Group: batchv1.GroupName, Kind: "Job"}, {Kind: "ReplicationController"}, {Kind: "Node"},
	},
	{Group: appsv1.GroupName, Resource: "replicasets"}: {{Group: appsv1.GroupName, Kind: "Deployment"}},
	{Group: appsv1.GroupName, Resource: "controllerrevisions"}: {
		{Group: appsv1.GroupName, Kind: "StatefulSet"}, {Group: appsv1.GroupName, Kind: "DaemonSet"},
	},
	{Group: batchv1.GroupName, Resource: "jobs"}:               {{Group: batchv1.GroupName, Kind: "CronJob"}},
	{Group: discoveryv1.GroupName, Resource: "endpointslices"}: {{Kind: "Service"}, {Kind: "Endpoints"}},
	{Resource: "persistentvolumeclaims"}:                       {{Group: appsv1.GroupName, Kind: "StatefulSet"}, {Kind: "Pod"}},
	{Group: "resource.k8s.io", Resource: "resourceclaims"}:     {{Kind: "Pod"}},
}

// endpointsLabel marks the Endpoints that the controller of a Service maintains. They have the labels of the Service,
// and no owner.
const endpointsLabel = "endpoints.kubernetes.io/managed-by"

// Parent returns the owner whose built-in controller created the object, as KIND NAME; empty if there is none. This
// owner is marked as the controller. An object that a user or another controller created for a built-in workload, such
// as a ConfigMap, has no Parent.
func Parent(resource schema.GroupResource, o metav1.Object) string {
	if resource == (schema.GroupResource{Resource: "endpoints"}) {
		if o.GetLabels()[endpointsLabel] != "" {
			return "Service " + o.GetName()
		}
		return ""
	}
	owner := controllerOf(o)
	if owner == nil {
		return ""
	}
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	if !slices.Contains(parentsOf[resource], kind) {
		return ""
	}
	return owner.Kind + " " + owner.Name
}

// controllerOf returns the owner that is marked as the controller, or nil.
func controllerOf(o metav1.Object) *metav1.OwnerReference {
	owners := o.GetOwnerReferences()
	for i := range owners {
		if owners[i].Controller != nil && *owners[i].Controller {
			return &owners[i]
		}
	}
	return nil
}
