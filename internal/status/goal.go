package status

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

// Goal is what can be waited for.
type Goal string

// Goals.
const (
	// Synced: every cluster holds what belongs there.
	Synced Goal = "synced"
	// Ready: that is ready on every cluster, too.
	Ready Goal = "ready"
	// Deleted: nothing is reported on the object any more, as no cluster has a copy.
	Deleted Goal = "deleted"
)

// Want is which object, in which state, a report must be about.
type Want struct {
	// UID of the object on the hub.
	UID types.UID
	// Generation is the least that must be observed; 0 for kinds without one.
	Generation int64
}

// Of reports whether the object has reached the goal, and says in one line how far
// it is. A nil object is one on which nothing is reported.
func (g Goal) Of(o *Object, want Want) (reached bool, line string) {
	switch {
	case o == nil && g == Deleted:
		return true, "deleted"
	case o == nil:
		return false, "nothing is reported on it yet"
	case g == Deleted:
		return false, leftOf(o)
	case o.UID != want.UID:
		return false, "what is reported is about an object of this name that is gone"
	case o.Status.ObservedGeneration < want.Generation:
		return false, fmt.Sprintf("generation %d is reported, and it is at %d", o.Status.ObservedGeneration, want.Generation)
	}
	conditions, count := []string{refractv1alpha1.ConditionSynced}, o.Status.Synced
	if g == Ready {
		conditions, count = append(conditions, refractv1alpha1.ConditionReady), o.Status.Ready
	}
	reached = true
	for _, name := range conditions {
		c := o.Condition(name)
		reached = reached && c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= o.Status.ObservedGeneration
	}
	return reached, g.progress(o, count, reached)
}

// progress says how many clusters have reached the goal, and what is in the way of
// the first that has not.
func (g Goal) progress(o *Object, count int32, reached bool) string {
	clusters := output.Count(int(o.Status.Placed), "cluster", "clusters")
	line := fmt.Sprintf("%s on %d of %s", g, count, clusters)
	if reached {
		line = fmt.Sprintf("%s on %s", g, clusters)
	}
	if reason := inTheWay(o.Status); reason != "" {
		return line + "; " + reason
	}
	obstacles := g.Obstacles(o)
	if len(obstacles) == 0 {
		return line
	}
	line += "; " + obstacles[0]
	if more := len(obstacles) - 1; more > 0 {
		line += fmt.Sprintf("; and %d more", more)
	}
	return line
}

func leftOf(o *Object) string {
	left := 0
	for i := range o.Status.Clusters {
		if Holds(&o.Status.Clusters[i]) {
			left++
		}
	}
	return fmt.Sprintf("on %s still", output.Count(left, "cluster", "clusters"))
}

// Obstacles returns a line for each cluster that keeps the object from the goal:
// first those where something is wrong. A nil object has none.
func (g Goal) Obstacles(o *Object) []string {
	if o == nil {
		return nil
	}
	var wrong, waiting []string
	for i := range o.Status.Clusters {
		r := &o.Status.Clusters[i]
		text := r.Name + ": "
		switch {
		case g == Deleted && !Holds(r), g == Synced && r.State == refractv1alpha1.StateSynced, g == Ready && right(r):
			continue
		case r.State != refractv1alpha1.StateSynced:
			text += cmp.Or(r.Reason, string(r.State))
			if r.Message != "" {
				text += ": " + oneLine(r.Message)
			}
		case g == Deleted:
			text += "has a copy"
		default:
			text += string(r.Readiness)
			if r.ReadinessMessage != "" {
				text += ": " + oneLine(r.ReadinessMessage)
			}
		}
		if failed(r) {
			wrong = append(wrong, text)
		} else {
			waiting = append(waiting, text)
		}
	}
	return append(wrong, waiting...)
}
