package manifest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FromObjects is [Read] for objects from an API server. file describes their origin and becomes their Place, without a
// line.
//
// namespaced, which may be nil, returns the scopes of further kinds. If the scope of a kind is not known, an object
// without a namespace is assumed to be cluster-scoped. The size of objects is not checked, because they are stored
// already. Lists are not divided into their items. [LocalConfig] has an effect only on CustomResourceDefinitions and
// Namespaces. A Namespace that names a rollout policy and does not ask to be propagated is in Namespaces only. Integers
// must be int64.
//
// A policy with mistakes is in the Set, because it is in force, and its problems are returned.
//
// The Set shares the objects with the caller. So it must not be modified while the objects are used elsewhere.
// FromObjects does not modify the objects.
func FromObjects(file string, objects []*unstructured.Unstructured, namespaced func(schema.GroupKind) (namespaced, known bool)) (*Set, []*Problem) {
	set, problems, _ := new(Previous).FromObjects(context.Background(), file, objects, namespaced) // The context never ends.
	return set, problems
}

// Previous remembers the results for the objects of an API server from the last call. For an identical object (the same
// pointer, not an equal object), only the uniqueness of the name is checked again. The objects must not be modified. A
// Previous is not safe for concurrent use.
type Previous struct {
	objects map[*unstructured.Unstructured]*object
}

// FromObjects is [FromObjects] for repeated calls. Soon after the end of ctx it returns the cause as an error; the
// results until then are remembered.
func (m *Previous) FromObjects(
	ctx context.Context, file string, objects []*unstructured.Unstructured, namespaced func(schema.GroupKind) (namespaced, known bool),
) (*Set, []*Problem, error) {
	c := &collector{namespaced: namespaced, objects: make([]*object, len(objects))}
	now := make(map[*unstructured.Unstructured]*object, len(objects))
	for i, u := range objects {
		c.objects[i] = m.recall(Place{File: file}, u)
		now[u] = c.objects[i]
	}
	m.objects = now
	set, problems, err := c.finish(ctx)
	if err != nil {
		return nil, nil, err
	}
	set.Live = true
	return set, problems, nil
}

// recall returns an object with its remembered results.
func (m *Previous) recall(place Place, u *unstructured.Unstructured) *object {
	if past := m.objects[u]; past != nil && past.Place == place {
		o := *past // An earlier problem may be a duplicate that no longer exists.
		o.wrong, o.problems = false, nil
		return &o
	}
	o := newObject(place, u, lines{})
	o.stored = true
	o.local = (o.local && explains(u.Object)) || (namesRollout(u.Object) && !asksToBePropagated(u.Object))
	return o
}
