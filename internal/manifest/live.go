package manifest

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FromObjects is [Read] for objects that an API server holds. Their Place is file,
// which says where they come from, without a line.
//
// A kind whose scope is not known otherwise is as namespaced says; that may be
// nil. Failing that, an object without a namespace is of a kind that has none.
// Objects are not too large, as they are stored; none is taken apart as a list,
// and none but a CustomResourceDefinition stays local. Integers must be int64.
//
// A policy with mistakes is in the Set all the same, as it is in force, and its
// problems are returned.
//
// Nothing in the objects is modified. The Set shares it, so that it must not be
// modified either as long as the objects are in use elsewhere.
func FromObjects(file string, objects []*unstructured.Unstructured, namespaced func(schema.GroupKind) (namespaced, known bool)) (*Set, []*Problem) {
	c := &collector{namespaced: namespaced, objects: make([]*object, len(objects))}
	for i, u := range objects {
		c.objects[i] = newObject(Place{File: file}, u, lines{})
		c.objects[i].stored = true
		c.objects[i].local = c.objects[i].local && isDefinition(u.Object)
	}
	set, problems := c.finish()
	set.Live = true
	return set, problems
}
