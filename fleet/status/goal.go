package status

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

// Goal is a state of an object that a user can wait for.
type Goal string

// Goals.
const (
	// Synced: every cluster that should have a copy has the wanted one, and no other cluster has a copy.
	Synced Goal = "synced"
	// Ready: the copies are ready, too.
	Ready Goal = "ready"
	// Deleted: the object has no Propagation any more, because no cluster has a copy.
	Deleted Goal = "deleted"
)

// Want identifies the object and the generation that the Propagation must describe.
type Want struct {
	// UID of the object on the hub.
	UID types.UID
	// Generation is the minimum observed generation; 0 for kinds without one.
	Generation int64
}

// Of reports whether the object has reached the goal, and describes its progress in one line. A nil object has no
// Propagation.
func (g Goal) Of(o *Object, want Want) (reached bool, line string) {
	switch {
	case o == nil && g == Deleted:
		return true, "deleted"
	case o == nil:
		return false, "it has no report yet"
	case g == Deleted:
		return false, leftOf(o)
	case o.UID != want.UID:
		return false, "the report is about a deleted object of this name"
	case o.Status.ObservedGeneration < want.Generation:
		return false, fmt.Sprintf("the report is for generation %d, want %d", o.Status.ObservedGeneration, want.Generation)
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

// progress returns the number of clusters that have reached the goal, and the first obstacle.
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
	return fmt.Sprintf("still on %s", output.Count(left, "cluster", "clusters"))
}

// Obstacles returns a line for each cluster that prevents the goal, failures first. A nil object has no obstacles.
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
