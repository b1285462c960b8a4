package render

import (
	"fmt"
	"slices"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
)

// Scalers names the autoscaler of a workload on each cluster, as KIND NAME. On these clusters the controllers do not
// change spec.replicas of an existing copy.
type Scalers map[manifest.Identity]map[string]string

// ScalersIn returns the autoscalers among the outcomes.
func ScalersIn(outcomes []Outcome) Scalers {
	s := Scalers{}
	for i := range outcomes {
		o := &outcomes[i]
		target, ok := placement.Scales(o.Object.Content)
		if !ok || o.Held != "" {
			continue
		}
		id := manifest.Identity{GroupKind: target.GroupKind, Namespace: o.ID.Namespace, Name: target.Name}
		for j := range o.Clusters {
			if s[id] == nil {
				s[id] = map[string]string{}
			}
			name, by := o.ID.Kind+" "+o.ID.Name, s[id][o.Clusters[j].Name]
			if by == "" || name < by {
				s[id][o.Clusters[j].Name] = name
			}
		}
	}
	return s
}

// Of returns the autoscaler of an outcome's object by cluster, for the clusters of the object.
func (s Scalers) Of(o *Outcome) map[string]string {
	by := map[string]string{}
	for i := range o.Clusters {
		if name := s[o.ID][o.Clusters[i].Name]; name != "" {
			by[o.Clusters[i].Name] = name
		}
	}
	return by
}

// Left is a field that the controllers leave to the clusters once the copy exists.
type Left struct {
	// Path is the JSON pointer of the field.
	Path string `json:"path"`
	// Why is the reason.
	Why string `json:"why"`
	// Clusters are the clusters that control the field, by name.
	Clusters []string `json:"clusters"`
}

// String returns for example "/spec/replicas is left to the cluster after creation: HorizontalPodAutoscaler web scales
// it (eu-1, eu-2)".
func (l *Left) String() string {
	return fmt.Sprintf("%s is left to the cluster after creation: %s (%s)", l.Path, l.Why, Few(l.Clusters))
}

// Left returns the fields of an object that are left to shown clusters.
func (s Scalers) Left(o *Outcome) []Left {
	var all []Left
	for i := range o.Clusters {
		cluster := o.Clusters[i].Name
		name := s[o.ID][cluster]
		if name == "" || !o.Shows(i) {
			continue
		}
		why := name + " scales it"
		at := slices.IndexFunc(all, func(l Left) bool { return l.Why == why })
		if at < 0 {
			at = len(all)
			all = append(all, Left{Path: "/spec/replicas", Why: why})
		}
		all[at].Clusters = append(all[at].Clusters, cluster)
	}
	return all
}
