package diff

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/placement"
)

// notScaled stands in place of the minimum number of pods, for a workload without an autoscaler.
const notScaled = -1

// autoscalers finds the workloads that have an autoscaler after the change. For each cluster it stores the minimum
// number of pods that the autoscaler allows.
func (c *comparison) autoscalers(subjects map[manifest.Identity]*subject, before, after *render.Evaluation) {
	c.least = map[manifest.Identity][]int64{}
	for id, s := range subjects {
		was, is := s.sides(before, after)
		if !placement.IsAutoscaler(id.GroupKind) || is == nil {
			continue
		}
		c.spread(was, c.was)
		c.spread(is, c.is)
		for i := range c.clusters {
			content := contentOf(is, c.is[i])
			if failed := failure(is) != nil || errOf(is, c.is[i], nil) != nil; failed {
				content = contentOf(was, c.was[i]) // The cluster keeps its copy of the autoscaler.
			}
			if content != nil {
				c.scales(i, id, content)
			}
		}
	}
}

// scales stores the minimum of an autoscaler on a cluster for the workload that it scales.
func (c *comparison) scales(cluster int, by manifest.Identity, content map[string]any) {
	target, ok := placement.Scales(&unstructured.Unstructured{Object: content})
	if !ok {
		return
	}
	id := manifest.Identity{GroupKind: target.GroupKind, Namespace: by.Namespace, Name: target.Name}
	least := c.least[id]
	if least == nil {
		least = make([]int64, len(c.clusters))
		for i := range least {
			least[i] = notScaled
		}
		c.least[id] = least
	}
	pods := int64(1)
	for _, path := range []string{"/spec/minReplicas", "/spec/minReplicaCount"} {
		if n, set := valueAt(content, path).(int64); set {
			pods = n
		}
	}
	least[cluster] = max(least[cluster], pods)
}
