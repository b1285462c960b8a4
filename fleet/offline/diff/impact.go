package diff

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// Impact is an effect of a change other than the changed content.
type Impact struct {
	Effect Effect `json:"effect"`
	// Path is the place that causes the impact; empty for the object as a whole.
	Path string `json:"path,omitempty"`
	// Message is one sentence without a final period.
	Message string `json:"message"`
}

// Effect is the kind of an impact.
type Effect string

// Effects.
const (
	// Refused: the API server rejects the change, so nothing changes.
	Refused Effect = "refused"
	// Rolling: pods are replaced.
	Rolling Effect = "rolls"
	// Restarting: containers restart in their pod.
	Restarting Effect = "restarts"
	// ScalingUp and ScalingDown: the number of replicas changes.
	ScalingUp   Effect = "scalesUp"
	ScalingDown Effect = "scalesDown"
	// Autoscaling: the object asks for a different number of replicas, but an autoscaler determines it.
	Autoscaling Effect = "autoscales"
	// Waiting: pods are replaced later, at another event.
	Waiting Effect = "waits"
	// Taking: further objects or data are deleted with the object.
	Taking Effect = "takes"
	// Approving: nothing changes before a user approves it.
	Approving Effect = "awaitsApproval"
)

// edit is a change of an existing object.
type edit struct {
	kind          schema.GroupKind
	before, after map[string]any
	least         int64 // As in copies.
	steps         []step
}

// impacts returns the further effects of the edit, and the number of replaced pods.
func (e *edit) impacts() ([]Impact, Rolls) {
	if e.kind == pod {
		return e.impactsOfPod(), Rolls{}
	}
	if refused := e.refusals(); len(refused) > 0 {
		return refused, Rolls{} // The API server writes nothing.
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

// scaling returns the impact of a changed number of replicas.
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
	if e.least != notScaled && is > 0 { // With zero replicas, the autoscaler is disabled.
		return Impact{
			Effect: Autoscaling, Path: replicas.String(),
			Message: fmt.Sprintf("requests %d → %d replicas; existing copies keep theirs, as an autoscaler on the cluster sets %s",
				was, is, replicas),
		}, true
	}
	effect := ScalingUp
	if is < was {
		effect = ScalingDown
	}
	return Impact{Effect: effect, Path: replicas.String(), Message: fmt.Sprintf("scales %d → %d", was, is)}, true
}

// replicasOf returns the number of pods of a workload: one if the object has no number.
func replicasOf(object map[string]any) int64 {
	v, err := tree.Lookup(object, replicas)
	n, ok := v.(int64)
	if err != nil || !ok {
		return 1
	}
	return n
}

// roll returns the impact of a changed pod template.
func (e *edit) roll() (Impact, Rolls, bool) {
	template, ok := templateOf(e.kind)
	if !ok || e.same(template) {
		return Impact{}, Rolls{}, false
	}
	i := Impact{Effect: Waiting, Path: template.String()}
	strategy := textAt(e.after, "/spec/updateStrategy/type")
	switch {
	case e.kind == cronJob:
		i.Message = "the next run has the new pod template; current runs do not change"
	case e.kind == replicaSet:
		i.Message = "only new pods have the new pod template"
	case e.kind == deployment && valueAt(e.after, "/spec/paused") == true:
		i.Message = "does not roll while it is paused"
	case e.kind != deployment && strategy == "OnDelete":
		i.Message = "a pod is replaced only after its deletion (updateStrategy OnDelete)"
	case e.kind == daemonSet:
		i.Effect, i.Message = Rolling, "rolls: the pod template changes"
		return i, Rolls{Workloads: 1, DaemonSets: 1}, true
	default:
		return e.rollReplicas(i)
	}
	return i, Rolls{}, true
}

// rollReplicas is [edit.roll] for a workload with a number of replicas.
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
		i.Message = "replaces no pod now: it applies to none"
		return i, Rolls{}, true
	case e.kind == deployment && textAt(e.after, "/spec/strategy/type") == "Recreate":
		i.Message = "rolls, all pods at once (strategy Recreate): the pod template changes"
	default:
		i.Message = "rolls: the pod template changes"
	}
	i.Effect = Rolling
	return i, Rolls{Workloads: 1, Pods: pods, Autoscaled: autoscaled}, true
}

// templateOf returns the place of the pod template for the kinds of workloads whose template can change.
func templateOf(kind schema.GroupKind) (tree.Pointer, bool) {
	if kind == replicaSet { // podtemplate does not list ReplicaSets, because Deployments create them.
		return tree.MustParse("/spec/template"), true
	}
	places := podtemplate.Of(kind)
	if places == nil || kind == pod || kind == job {
		return tree.Pointer{}, false
	}
	return tree.MustParse(strings.TrimSuffix(places.Spec.String(), "/spec")), true
}

// same reports whether the value at a place stays the same, or changes only in its notation.
func (e *edit) same(place tree.Pointer) bool {
	was, wasErr := tree.Lookup(e.before, place)
	is, isErr := tree.Lookup(e.after, place)
	return ((wasErr == nil) == (isErr == nil) && tree.Equal(was, is)) || e.only(place.String(), (*step).respells)
}

// only reports whether all steps at a place fulfill a condition.
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

// valueAt returns the value at a place; nil if the object has no value there.
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

// taken describes the losses that come with the deletion of an object of a kind.
var taken = map[schema.GroupKind]string{
	{Kind: "Namespace"}:             "everything in it is deleted with it",
	{Kind: "PersistentVolumeClaim"}: "its data may be deleted with it",
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: "all objects of the kind that it defines are deleted with it",
}

// impactsOfDeletion returns the losses that come with the deletion of an object of the kind.
func impactsOfDeletion(kind schema.GroupKind) []Impact {
	message, ok := taken[kind]
	if !ok {
		return nil
	}
	return []Impact{{Effect: Taking, Message: message}}
}
