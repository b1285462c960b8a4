package simulation

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is a type that members serve.
type resource struct {
	schema.GroupVersionResource

	kind       string
	namespaced bool
	// generation is true if changes outside of the metadata increment metadata.generation.
	generation bool
}

var core = schema.GroupVersion{Version: "v1"}

// resources are the types that every member serves: most of the built-in types, so that a search through all types
// costs as much as with a real API server.
var resources = slices.Concat(
	namespacedIn(core, map[string]string{
		"configmaps": "ConfigMap", "endpoints": "Endpoints", "events": "Event", "limitranges": "LimitRange",
		"persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "podtemplates": "PodTemplate",
		"resourcequotas": "ResourceQuota", "secrets": "Secret", "serviceaccounts": "ServiceAccount", "services": "Service",
	}),
	counted(namespacedIn(core, map[string]string{"replicationcontrollers": "ReplicationController"})),
	clusterScopedIn(core, map[string]string{"namespaces": "Namespace", "nodes": "Node", "persistentvolumes": "PersistentVolume"}),
	counted(namespacedIn(schema.GroupVersion{Group: "apps", Version: "v1"}, map[string]string{
		"daemonsets": "DaemonSet", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet",
	})),
	namespacedIn(schema.GroupVersion{Group: "apps", Version: "v1"}, map[string]string{"controllerrevisions": "ControllerRevision"}),
	namespacedIn(schema.GroupVersion{Group: "autoscaling", Version: "v2"}, map[string]string{"horizontalpodautoscalers": "HorizontalPodAutoscaler"}),
	counted(namespacedIn(schema.GroupVersion{Group: "batch", Version: "v1"}, map[string]string{"cronjobs": "CronJob", "jobs": "Job"})),
	namespacedIn(schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, map[string]string{"leases": "Lease"}),
	counted(namespacedIn(schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, map[string]string{
		"ingresses": "Ingress", "networkpolicies": "NetworkPolicy",
	})),
	counted(clusterScopedIn(schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, map[string]string{"ingressclasses": "IngressClass"})),
	counted(namespacedIn(schema.GroupVersion{Group: "policy", Version: "v1"}, map[string]string{"poddisruptionbudgets": "PodDisruptionBudget"})),
	namespacedIn(schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, map[string]string{
		"rolebindings": "RoleBinding", "roles": "Role",
	}),
	clusterScopedIn(schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, map[string]string{
		"clusterrolebindings": "ClusterRoleBinding", "clusterroles": "ClusterRole",
	}),
	clusterScopedIn(schema.GroupVersion{Group: "scheduling.k8s.io", Version: "v1"}, map[string]string{"priorityclasses": "PriorityClass"}),
	clusterScopedIn(schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}, map[string]string{"storageclasses": "StorageClass"}),
)

// byName maps group, version and plural name to resources.
var byName = func() map[schema.GroupVersionResource]*resource {
	m := map[schema.GroupVersionResource]*resource{}
	for _, r := range resources {
		m[r.GroupVersionResource] = r
	}
	return m
}()

var namespaces = byName[core.WithResource("namespaces")]

func namespacedIn(gv schema.GroupVersion, kinds map[string]string) []*resource {
	all := clusterScopedIn(gv, kinds)
	for _, r := range all {
		r.namespaced = true
	}
	return all
}

func clusterScopedIn(gv schema.GroupVersion, kinds map[string]string) []*resource {
	var all []*resource
	for name, kind := range kinds {
		all = append(all, &resource{GroupVersionResource: gv.WithResource(name), kind: kind})
	}
	return all
}

func counted(all []*resource) []*resource {
	for _, r := range all {
		r.generation = true
	}
	return all
}

// discovered returns the aggregated discovery of the types below /api or /apis.
func discovered(legacy bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
	}
	for _, r := range resources {
		if (r.Group == "") != legacy {
			continue
		}
		at := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == r.Group })
		if at < 0 {
			at = len(list.Items)
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: r.Group},
				Versions:   []apidiscoveryv2.APIVersionDiscovery{{Version: r.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}},
			})
		}
		scope := apidiscoveryv2.ScopeCluster
		if r.namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		v := &list.Items[at].Versions[0]
		v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Resource, Scope: scope,
			ResponseKind: &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.kind},
			Verbs:        []string{"create", "delete", "get", "list", "patch", "watch"},
		})
	}
	return list
}
