package diff

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/placement"
)

// notScaled is the fewest pods where no autoscaler decides on them.
const notScaled = -1

// autoscalers looks up of which workloads an autoscaler decides on the number of
// pods after the change, on which clusters, and how many it leaves at least.
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
				content = contentOf(was, c.was[i]) // The cluster keeps it.
			}
			if content != nil {
				c.scales(i, id, content)
			}
		}
	}
}

// scales notes an autoscaler on a cluster.
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
