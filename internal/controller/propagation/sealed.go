package propagation

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// isSealed reports whether the content of an object is reported so that who may read Propagations learns nothing of it: that is so
// of all that the role view does not read. What is added to that role, as for custom resources, is not asked for: it may be taken
// from it later.
func isSealed(key Key) bool { return !readable[key.GroupResource] }

// sealing returns the key for that.
func (v *revisions) sealing(ctx context.Context) ([]byte, error) {
	return v.key.ready(ctx, v.live, v.client, v.system)
}

// prepare reads the key if what is reported of an object needs it.
func (v *revisions) prepare(ctx context.Context, key Key) error {
	if !isSealed(key) {
		return nil
	}
	_, err := v.sealing(ctx)
	return err
}
