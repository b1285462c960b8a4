package apiserver

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// known has the types of client-go and CustomResourceDefinitions.
var known = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // The types of the libraries cause no error.
		}
	}
	return s
}()

// BuiltIn returns the built-in types of an API server. The caller may modify the slice.
func BuiltIn() []Type { return append([]Type(nil), builtIn()...) }

var builtIn = sync.OnceValue(func() []Type {
	core := schema.GroupVersion{Version: "v1"}
	in := func(group, version string) schema.GroupVersion {
		return schema.GroupVersion{Group: group, Version: version}
	}
	const (
		cluster = 1 << iota
		status
		scale
		generation
	)
	var all []Type
	add := func(gv schema.GroupVersion, resource, kind string, has int) {
		t := Type{
			GVR: gv.WithResource(resource), Kind: kind, Namespaced: has&cluster == 0,
			Status: has&status != 0, Scale: has&scale != 0, Generation: has&generation != 0,
		}
		t.made = t.machine()
		all = append(all, t)
	}
	add(core, "namespaces", "Namespace", cluster|status)
	add(core, "nodes", "Node", cluster|status)
	add(core, "persistentvolumes", "PersistentVolume", cluster|status)
	add(core, "configmaps", "ConfigMap", 0)
	add(core, "endpoints", "Endpoints", 0)
	add(core, "events", "Event", 0)
	add(core, "limitranges", "LimitRange", 0)
	add(core, "persistentvolumeclaims", "PersistentVolumeClaim", status)
	add(core, "pods", "Pod", status|generation)
	add(core, "podtemplates", "PodTemplate", generation)
	add(core, "replicationcontrollers", "ReplicationController", status|scale|generation)
	add(core, "resourcequotas", "ResourceQuota", status)
	add(core, "secrets", "Secret", 0)
	add(core, "serviceaccounts", "ServiceAccount", 0)
	add(core, "services", "Service", status)
	apps := in("apps", "v1")
	add(apps, "controllerrevisions", "ControllerRevision", 0)
	add(apps, "daemonsets", "DaemonSet", status|generation)
	add(apps, "deployments", "Deployment", status|scale|generation)
	add(apps, "replicasets", "ReplicaSet", status|scale|generation)
	add(apps, "statefulsets", "StatefulSet", status|scale|generation)
	add(in("autoscaling", "v2"), "horizontalpodautoscalers", "HorizontalPodAutoscaler", status)
	add(in("batch", "v1"), "cronjobs", "CronJob", status|generation)
	add(in("batch", "v1"), "jobs", "Job", status|generation)
	add(in("coordination.k8s.io", "v1"), "leases", "Lease", 0)
	add(in("discovery.k8s.io", "v1"), "endpointslices", "EndpointSlice", generation)
	add(in("events.k8s.io", "v1"), "events", "Event", 0)
	net := in("networking.k8s.io", "v1")
	add(net, "ingresses", "Ingress", status|generation)
	add(net, "ingressclasses", "IngressClass", cluster|generation)
	add(net, "networkpolicies", "NetworkPolicy", generation)
	add(in("policy", "v1"), "poddisruptionbudgets", "PodDisruptionBudget", status|generation)
	rbac := in("rbac.authorization.k8s.io", "v1")
	add(rbac, "clusterrolebindings", "ClusterRoleBinding", cluster)
	add(rbac, "clusterroles", "ClusterRole", cluster)
	add(rbac, "rolebindings", "RoleBinding", 0)
	add(rbac, "roles", "Role", 0)
	add(in("scheduling.k8s.io", "v1"), "priorityclasses", "PriorityClass", cluster|generation)
	add(in("storage.k8s.io", "v1"), "storageclasses", "StorageClass", cluster)
	admission := in("admissionregistration.k8s.io", "v1")
	add(admission, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", cluster|generation)
	add(admission, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", cluster|generation)
	add(admission, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", cluster|status|generation)
	add(admission, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", cluster|generation)
	add(in("apiextensions.k8s.io", "v1"), "customresourcedefinitions", "CustomResourceDefinition", cluster|status|generation)
	return all
})
