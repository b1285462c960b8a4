package manifest

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FromObjects is [Read] for objects that an API server holds. Their Place is file,
// which says where they come from, without a line.
//
// A kind whose scope is not known otherwise is as namespaced says; that may be
// nil. Failing that, an object without a namespace is of a kind that has none.
// Objects are not too large, as they are stored; none is taken apart as a list,
// and none stays local but a CustomResourceDefinition, and a Namespace that names a
// rollout policy and does not ask to be propagated. Integers must be int64.
//
// A policy with mistakes is in the Set all the same, as it is in force, and its
// problems are returned.
//
// Nothing in the objects is modified. The Set shares it, so that it must not be
// modified either as long as the objects are in use elsewhere.
func FromObjects(file string, objects []*unstructured.Unstructured, namespaced func(schema.GroupKind) (namespaced, known bool)) (*Set, []*Problem) {
	set, problems, _ := new(Previous).FromObjects(context.Background(), file, objects, namespaced) // Which never ends.
	return set, problems
}

// Previous knows what was found out about the objects of an API server the last time, so that
// of those that are still the same, not equal ones, nothing needs to be found out again but
// whether they are alone with their names. Nobody may modify them. It is for one goroutine
// at a time.
type Previous struct {
	objects map[*unstructured.Unstructured]*object
}

// FromObjects is [FromObjects] for one time after the other. It returns an error, the cause,
// soon after ctx has ended; what was found out until then is known the next time.
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

// recall returns an object with what is known of it.
func (m *Previous) recall(place Place, u *unstructured.Unstructured) *object {
	if past := m.objects[u]; past != nil && past.Place == place {
		o := *past // What is wrong with it may be that there was another one.
		o.wrong, o.problems = false, nil
		return &o
	}
	o := newObject(place, u, lines{})
	o.stored = true
	o.local = (o.local && explains(u.Object)) || (namesRollout(u.Object) && !asksToBePropagated(u.Object))
	return o
}
