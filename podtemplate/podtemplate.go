// Package podtemplate knows where each kind of workload keeps its pod template.
package podtemplate

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// Places are the places of a pod template's parts. They are shared and
// immutable.
type Places struct {
	// InitContainers is the place of the list of init containers.
	InitContainers tree.Pointer
	// Containers is the place of the list of containers.
	Containers tree.Pointer
}

// Lists returns the lists of containers in the order in which a name is looked
// up in them: a name in both means the init container.
func (p *Places) Lists() [2]tree.Pointer {
	return [2]tree.Pointer{p.InitContainers, p.Containers}
}

// Kinds says in words which kinds have a pod template.
const Kinds = "Pod, CronJob, Deployment, StatefulSet, DaemonSet, Job"

var (
	inPod      = places("/spec")
	inWorkload = places("/spec/template/spec")
	inCronJob  = places("/spec/jobTemplate/spec/template/spec")
)

// Of returns the places for a kind, whatever its version, or nil when the kind
// is not one of [Kinds].
func Of(kind schema.GroupKind) *Places {
	switch kind {
	case schema.GroupKind{Kind: "Pod"}:
		return inPod
	case schema.GroupKind{Group: "apps", Kind: "Deployment"},
		schema.GroupKind{Group: "apps", Kind: "StatefulSet"},
		schema.GroupKind{Group: "apps", Kind: "DaemonSet"},
		schema.GroupKind{Group: "batch", Kind: "Job"}:
		return inWorkload
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		return inCronJob
	default:
		return nil
	}
}

func places(podSpec string) *Places {
	return &Places{
		InitContainers: tree.MustParse(podSpec + "/initContainers"),
		Containers:     tree.MustParse(podSpec + "/containers"),
	}
}
