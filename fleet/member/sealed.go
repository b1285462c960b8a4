package member

import "k8s.io/apimachinery/pkg/runtime/schema"

// readable are the types that Kubernetes' own ClusterRole view reads, in every version that Refract supports. A user
// with this role also reads Propagations and ControllerRevisions.
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

// Sealed reports whether the content of a type is confidential: readers of Propagations or logs may lack the right to
// read the type, and must not learn its content there. This holds for all types that the role view does not read. Rules
// that a cluster adds to that role, for example for custom resources, do not count, because they may be revoked later.
// The result decides which revisions are sealed, which reports have digests, and which answers of members are masked.
func Sealed(of schema.GroupResource) bool { return !readable[of] }

// isSecret reports whether every value of a type is confidential.
func isSecret(of schema.GroupResource) bool { return of == schema.GroupResource{Resource: "secrets"} }
