package injected

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"

	"refract.dev/inject"
)

// Difference is what a pod would have otherwise if it were created now.
type Difference struct {
	// Is is what it has; nil if it lacks it.
	Is *Item `json:"is,omitempty"`
	// Would is what it would have; nil if it would not have it any more.
	Would *Item `json:"would,omitempty"`
}

// anew returns the pod as it would be if it were created now, and which policies
// would put what into it.
func anew(set *inject.Set, pod *corev1.Pod, record *inject.Record) (*corev1.Pod, *inject.Record, error) {
	before, err := json.Marshal(without(pod, record))
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the pod: %w", err)
	}
	result, err := set.Inject(before)
	if err != nil {
		return nil, nil, fmt.Errorf("injecting into a pod like this one: %w", err)
	}
	gets := &inject.Record{}
	for i := range result.Applied {
		a := &result.Applied[i]
		gets.Applied = append(gets.Applied, inject.RecordApplied{
			Policy: a.Policy.Name(), Env: a.Env, EnvFrom: a.EnvFrom, Volumes: a.Volumes, Mounts: a.Mounts,
		})
	}
	after := before
	if len(result.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(result.Patch)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the patch for a pod like this one: %w", err)
		}
		if after, err = patch.Apply(before); err != nil {
			return nil, nil, fmt.Errorf("patching a pod like this one: %w", err)
		}
	}
	fresh := &corev1.Pod{}
	if err := json.Unmarshal(after, fresh); err != nil {
		return nil, nil, fmt.Errorf("reading a pod like this one: %w", err)
	}
	return fresh, gets, nil
}

// without returns a copy of a pod without what a record says that policies added.
func without(pod *corev1.Pod, record *inject.Record) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range record.Applied {
		a := &record.Applied[i]
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return slices.Contains(a.Volumes, v.Name) })
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for j := range containers {
				c := &containers[j]
				c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return slices.Contains(a.Env, v.Name) })
				c.EnvFrom = slices.DeleteFunc(c.EnvFrom, func(s corev1.EnvFromSource) bool { return slices.Contains(a.EnvFrom, sourceID(&s)) })
				c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
					return slices.Contains(a.Mounts, path.Clean(m.MountPath))
				})
			}
		}
	}
	return pod
}

// differences returns what is otherwise, in the order of what would be, and then
// what would be no more.
func differences(is, would []Item) []Difference {
	find := func(in []Item, like *Item) *Item {
		at := slices.IndexFunc(in, func(i Item) bool { return i.Kind == like.Kind && i.Name == like.Name })
		if at < 0 {
			return nil
		}
		return &in[at]
	}
	var found []Difference
	for i := range would {
		w := &would[i]
		has := find(is, w)
		if has == nil || has.Says != w.Says || !slices.Equal(has.Containers, w.Containers) {
			found = append(found, Difference{Is: has, Would: w})
		}
	}
	for i := range is {
		if find(would, &is[i]) == nil {
			found = append(found, Difference{Is: &is[i]})
		}
	}
	return found
}
