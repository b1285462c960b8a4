// Package podtemplate finds the pod templates in all kinds of workloads, and the objects that a template refers to.
package podtemplate

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/tree"
)

// Places are the places of the parts of a pod template. They are shared and immutable.
type Places struct {
	// Spec is the place of the pod's spec.
	Spec tree.Pointer
	// InitContainers is the place of the list of init containers.
	InitContainers tree.Pointer
	// Containers is the place of the list of containers.
	Containers tree.Pointer

	parts [len(ListKeys)][few][len(partKeys)]tree.Pointer
}

// Part is a member of a container.
type Part int

// The parts that policies can change.
const (
	Image Part = iota
	Command
	Args
	Env
)

var partKeys = [...]string{Image: "image", Command: "command", Args: "args", Env: "env"}

// String returns the key of the member.
func (p Part) String() string { return partKeys[p] }

// few is the number of containers in each list for which places are precomputed; most lists are not longer.
const few = 8

// Part returns the place of one member of a container. Argument list is the index in [Places.Lists], and argument index
// is the container's index in that list.
func (p *Places) Part(list, index int, part Part) tree.Pointer {
	if index < few {
		return p.parts[list][index][part]
	}
	return p.Lists()[list].At(index).Member(part.String())
}

// Lists returns the lists of containers, in the order of the search for a container's name: a name in both lists
// belongs to the init container.
func (p *Places) Lists() [2]tree.Pointer {
	return [2]tree.Pointer{p.InitContainers, p.Containers}
}

// ListKeys are the keys of the lists of containers in a pod's spec, in the order
// of [Places.Lists].
var ListKeys = [...]string{"initContainers", "containers"}

// Kinds lists the kinds with a pod template, for messages.
const Kinds = "Pod, CronJob, Deployment, StatefulSet, DaemonSet, Job"

var (
	inPod      = places("/spec")
	inWorkload = places("/spec/template/spec")
	inCronJob  = places("/spec/jobTemplate/spec/template/spec")
)

// Of returns the places for a kind in any version, or nil if the kind is not one of [Kinds].
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

func places(spec string) *Places {
	at := tree.MustParse(spec)
	p := &Places{Spec: at, InitContainers: at.Member(ListKeys[0]), Containers: at.Member(ListKeys[1])}
	for list, place := range p.Lists() {
		for index := range few {
			for part, key := range partKeys {
				p.parts[list][index][part] = place.At(index).Member(key)
			}
		}
	}
	return p
}
