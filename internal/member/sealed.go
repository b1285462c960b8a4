package member

import "k8s.io/apimachinery/pkg/runtime/schema"

// readable are the types that Kubernetes' own ClusterRole view reads, in every version that Refract runs with. Whoever has that
// role also reads Propagations and ControllerRevisions.
var readable = resources(map[string][]string{
	"": {
		"configmaps", "endpoints", "limitranges", "namespaces", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas",
		"serviceaccounts", "services",
	},
	"apps":              {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	"autoscaling":       {"horizontalpodautoscalers"},
	"batch":             {"cronjobs", "jobs"},
	"discovery.k8s.io":  {"endpointslices"},
	"networking.k8s.io": {"ingresses", "networkpolicies"},
	"policy":            {"poddisruptionbudgets"},
})

func resources(byGroup map[string][]string) map[schema.GroupResource]bool {
	all := map[schema.GroupResource]bool{}
	for group, names := range byGroup {
		for _, name := range names {
			all[schema.GroupResource{Group: group, Resource: name}] = true
		}
	}
	return all
}

// Sealed reports whether the content of a type is for its readers only: who may read Propagations, or the logs, need not be one of them, and
// learns nothing of it. That is so of all that the role view does not read. What is added to that role, as for custom resources, is not asked
// for: it may be taken from it later. Revisions are sealed, digests made and answers of members masked by this.
func Sealed(of schema.GroupResource) bool { return !readable[of] }

// isSecret reports whether every value of a type is to be kept secret.
func isSecret(of schema.GroupResource) bool { return of == schema.GroupResource{Resource: "secrets"} }
