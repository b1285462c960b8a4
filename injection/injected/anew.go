package injected

import (
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"

	"refract.dev/injection/inject"
)

// Difference is an item that differs between a pod and a new pod that would be created now.
type Difference struct {
	// Is is the item in the existing pod; nil if it has no such item.
	Is *Item `json:"is,omitempty"`
	// Would is the item in a new pod; nil if a new pod would not have it.
	Would *Item `json:"would,omitempty"`
}

// anew returns a new pod that would be created now in place of the given pod, and a record of each policy's additions
// to it. The argument pod is JSON.
func anew(set *inject.Set, pod []byte) (*corev1.Pod, *inject.Record, error) {
	removals, err := inject.Revert(pod)
	if err != nil {
		return nil, nil, fmt.Errorf("looking for what was injected: %w", err)
	}
	before, err := patched(pod, removals)
	if err != nil {
		return nil, nil, err
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
	after, err := patched(before, result.Patch)
	if err != nil {
		return nil, nil, err
	}
	fresh := &corev1.Pod{}
	if err := json.Unmarshal(after, fresh); err != nil {
		return nil, nil, fmt.Errorf("reading a pod like this one: %w", err)
	}
	return fresh, gets, nil
}

// patched returns a pod with a JSON patch applied; a nil patch changes nothing.
func patched(pod, patch []byte) ([]byte, error) {
	if patch == nil {
		return pod, nil
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("reading the patch for a pod like this one: %w", err)
	}
	after, err := operations.Apply(pod)
	if err != nil {
		return nil, fmt.Errorf("patching a pod like this one: %w", err)
	}
	return after, nil
}

// differences returns the items that differ: first the items of the new pod, in their order, then the items that a new
// pod would not have.
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
