package diff

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
)

var autoscaler = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}

// notScaled is the fewest pods where no autoscaler decides on them.
const notScaled = -1

// autoscalers looks up of which workloads an autoscaler decides on the number of
// pods after the change, on which clusters, and how many it leaves at least.
func (c *comparison) autoscalers(subjects map[manifest.Identity]*subject, before, after *render.Evaluation) {
	c.least = map[manifest.Identity][]int64{}
	for id, s := range subjects {
		was, is := s.sides(before, after)
		if id.GroupKind != autoscaler || is == nil {
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
				c.scales(i, id.Namespace, content)
			}
		}
	}
}

// scales notes an autoscaler on a cluster.
func (c *comparison) scales(cluster int, namespace string, content map[string]any) {
	group := schema.FromAPIVersionAndKind(textAt(content, "/spec/scaleTargetRef/apiVersion"), "").Group
	id := manifest.Identity{
		GroupKind: schema.GroupKind{Group: group, Kind: textAt(content, "/spec/scaleTargetRef/kind")},
		Namespace: namespace, Name: textAt(content, "/spec/scaleTargetRef/name"),
	}
	least := c.least[id]
	if least == nil {
		least = make([]int64, len(c.clusters))
		for i := range least {
			least[i] = notScaled
		}
		c.least[id] = least
	}
	pods, ok := valueAt(content, "/spec/minReplicas").(int64)
	if !ok {
		pods = 1
	}
	least[cluster] = max(least[cluster], pods)
}
