package diff

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// Impact is what a change does besides changing the object.
type Impact struct {
	Effect Effect `json:"effect"`
	// Path is the place that matters; empty for the object as a whole.
	Path string `json:"path,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
}

// Effect sorts impacts.
type Effect string

// Effects.
const (
	// Refused is that the API server refuses the change, so that nothing happens.
	Refused Effect = "refused"
	// Rolling is that pods are replaced.
	Rolling Effect = "rolls"
	// Restarting is that containers restart in their pod.
	Restarting Effect = "restarts"
	// ScalingUp and ScalingDown are that the number of replicas changes.
	ScalingUp   Effect = "scalesUp"
	ScalingDown Effect = "scalesDown"
	// Autoscaling is that another number of replicas is asked for, and an autoscaler
	// decides on it.
	Autoscaling Effect = "autoscales"
	// Waiting is that pods are replaced later, when something else happens.
	Waiting Effect = "waits"
	// Taking is that more goes with what is deleted.
	Taking Effect = "takes"
	// Approving is that nothing happens before somebody approves it.
	Approving Effect = "awaitsApproval"
)

// edit is an object that becomes another.
type edit struct {
	kind          schema.GroupKind
	before, after map[string]any
	least         int64 // As in copies.
	steps         []step
}

// impacts returns what the edit does besides, and how many pods it replaces.
func (e *edit) impacts() ([]Impact, Rolls) {
	if e.kind == pod {
		return e.impactsOfPod(), Rolls{}
	}
	if refused := e.refusals(); len(refused) > 0 {
		return refused, Rolls{} // Nothing is written.
	}
	var impacts []Impact
	if s, ok := e.scaling(); ok {
		impacts = append(impacts, s)
	}
	roll, rolls, ok := e.roll()
	if ok {
		impacts = append(impacts, roll)
	}
	return impacts, rolls
}

// apps returns a kind of the group apps.
func apps(kind string) schema.GroupKind { return schema.GroupKind{Group: "apps", Kind: kind} }

var (
	deployment  = apps("Deployment")
	statefulSet = apps("StatefulSet")
	daemonSet   = apps("DaemonSet")
	replicaSet  = apps("ReplicaSet")

	job     = schema.GroupKind{Group: "batch", Kind: "Job"}
	cronJob = schema.GroupKind{Group: "batch", Kind: "CronJob"}
	pod     = schema.GroupKind{Kind: "Pod"}
)

var replicas = tree.MustParse("/spec/replicas")

// scaling returns the impact of another number of replicas.
func (e *edit) scaling() (Impact, bool) {
	switch e.kind {
	case deployment, statefulSet, replicaSet:
	default:
		return Impact{}, false
	}
	was, is := replicasOf(e.before), replicasOf(e.after)
	if was == is {
		return Impact{}, false
	}
	if e.least != notScaled && is > 0 { // None asked for switches the autoscaler off.
		return Impact{
			Effect: Autoscaling, Path: replicas.String(),
			Message: fmt.Sprintf("asks for %d → %d replicas; copies that exist keep theirs: %s is left to the cluster, as an autoscaler scales it",
				was, is, replicas),
		}, true
	}
	effect := ScalingUp
	if is < was {
		effect = ScalingDown
	}
	return Impact{Effect: effect, Path: replicas.String(), Message: fmt.Sprintf("scales %d → %d", was, is)}, true
}

// replicasOf returns how many pods the workload asks for: one if it does not say.
func replicasOf(object map[string]any) int64 {
	v, err := tree.Lookup(object, replicas)
	n, ok := v.(int64)
	if err != nil || !ok {
		return 1
	}
	return n
}

// roll returns the impact of another pod template.
func (e *edit) roll() (Impact, Rolls, bool) {
	template, ok := templateOf(e.kind)
	if !ok || e.same(template) {
		return Impact{}, Rolls{}, false
	}
	i := Impact{Effect: Waiting, Path: template.String()}
	strategy := textAt(e.after, "/spec/updateStrategy/type")
	switch {
	case e.kind == cronJob:
		i.Message = "the next run has the new pod template; one that runs is left alone"
	case e.kind == replicaSet:
		i.Message = "only pods to come have the new pod template"
	case e.kind == deployment && valueAt(e.after, "/spec/paused") == true:
		i.Message = "does not roll as long as it is paused"
	case e.kind != deployment && strategy == "OnDelete":
		i.Message = "a pod is replaced only when somebody deletes it (updateStrategy OnDelete)"
	case e.kind == daemonSet:
		i.Effect, i.Message = Rolling, "rolls: the pod template changes"
		return i, Rolls{Workloads: 1, DaemonSets: 1}, true
	default:
		return e.rollReplicas(i)
	}
	return i, Rolls{}, true
}

// rollReplicas is roll for a workload that has a number of pods.
func (e *edit) rollReplicas(i Impact) (Impact, Rolls, bool) {
	pods, autoscaled := replicasOf(e.after), 0
	if e.least != notScaled && pods > 0 {
		pods, autoscaled = max(pods, e.least), 1
	}
	// Source: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#partitions
	if partition, ok := valueAt(e.after, "/spec/updateStrategy/rollingUpdate/partition").(int64); ok && e.kind == statefulSet {
		pods = max(pods-partition, 0)
	}
	switch {
	case pods == 0:
		i.Message = "replaces no pod now: there are none that it applies to"
		return i, Rolls{}, true
	case e.kind == deployment && textAt(e.after, "/spec/strategy/type") == "Recreate":
		i.Message = "rolls, all pods at once (strategy Recreate): the pod template changes"
	default:
		i.Message = "rolls: the pod template changes"
	}
	i.Effect = Rolling
	return i, Rolls{Workloads: 1, Pods: pods, Autoscaled: autoscaled}, true
}

// templateOf returns the place of the pod template of a kind of workload that can
// have another one.
func templateOf(kind schema.GroupKind) (tree.Pointer, bool) {
	if kind == replicaSet { // Which no policy knows as a workload: Deployments make them.
		return tree.MustParse("/spec/template"), true
	}
	places := podtemplate.Of(kind)
	if places == nil || kind == pod || kind == job {
		return tree.Pointer{}, false
	}
	return tree.MustParse(strings.TrimSuffix(places.Spec.String(), "/spec")), true
}

// same reports whether what is at a place stays as it is, or is only written in
// another way.
func (e *edit) same(place tree.Pointer) bool {
	was, wasErr := tree.Lookup(e.before, place)
	is, isErr := tree.Lookup(e.after, place)
	return ((wasErr == nil) == (isErr == nil) && tree.Equal(was, is)) || e.only(place.String(), (*step).respells)
}

// only reports whether all changes at a place are of a sort.
func (e *edit) only(place string, ofSort func(*step) bool) bool {
	for i := range e.steps {
		s := &e.steps[i]
		inside := tree.Covers(place, s.Path)
		if (inside && !ofSort(s)) || (!inside && tree.Covers(s.Path, place)) {
			return false
		}
	}
	return true
}

// valueAt returns what is at a place, nil if nothing is.
func valueAt(object map[string]any, place string) any {
	v, err := tree.Lookup(object, tree.MustParse(place))
	if err != nil {
		return nil
	}
	return v
}

func textAt(object map[string]any, place string) string {
	text, _ := valueAt(object, place).(string)
	return text
}

// taken says what is deleted with an object of a kind.
var taken = map[schema.GroupKind]string{
	{Kind: "Namespace"}:             "everything in it is deleted with it",
	{Kind: "PersistentVolumeClaim"}: "its data may be deleted with it",
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "all objects of the kind that it defines are deleted with it",
}

// impactsOfDeletion returns what goes with an object of the kind.
func impactsOfDeletion(kind schema.GroupKind) []Impact {
	message, ok := taken[kind]
	if !ok {
		return nil
	}
	return []Impact{{Effect: Taking, Message: message}}
}
