package lint

import (
	"refract.dev/internal/offline/render"
	"refract.dev/tree"
)

// checkScaled looks for workloads whose replicas are divided, and which an autoscaler scales on a
// cluster that has a share.
func checkScaled(outcomes []render.Outcome, placingBy map[tree.Policy]*placingPolicy, out *report) {
	scalers := render.ScalersIn(outcomes)
	for i := range outcomes {
		o := &outcomes[i]
		if o.Propagation == nil {
			continue
		}
		p := placingBy[*o.Propagation]
		if p == nil || !p.compiled.Divides || p.reported {
			continue
		}
		by := scalers.Of(o)
		var both []string
		for _, t := range o.Targets() {
			if t.Replicas != nil && by[t.Cluster] != "" {
				both = append(both, t.Cluster)
			}
		}
		if len(both) == 0 {
			continue
		}
		s := subjectOf(o.Object)
		out.add(p.finding(DividedAndScaled, "spec.schedulingMode", "divides the replicas of %s, which %s scales on each cluster", s.object, by[both[0]]).
			hint("use schedulingMode Duplicate and an override policy for the autoscaler's minReplicas and maxReplicas, or remove the autoscaler").
			on([]string{s.object.String()}, both))
	}
}
