package propagation

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/fleet/policy/local"
)

func (t *sourceType) keys() []Key {
	var keys []Key
	for _, v := range t.views {
		for _, name := range v.names() {
			keys = append(keys, Key{GroupResource: t.gvr.GroupResource(), NamespacedName: name})
		}
	}
	return keys
}

// view is a store of objects that a reflector keeps up to date.
type view struct {
	changed func(name types.NamespacedName, initial bool)
	// When a watch reports a deletion, deleted is called, and then changed. deleted may be nil.
	deleted func(name types.NamespacedName, last *unstructured.Unstructured)
	keep    func(types.NamespacedName) bool // Selects the objects to keep; nil for all.

	mu     sync.RWMutex
	synced bool
	err    error // The error of the last list.
	items  map[types.NamespacedName]*unstructured.Unstructured
}

func (v *view) get(name types.NamespacedName) (*unstructured.Unstructured, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.items[name], v.synced
}

// asked reports whether the first list has ended, with success or an error.
func (v *view) asked() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced || v.err != nil
}

// onError records the result of a list, and reports whether it is the first failure after a success.
func (v *view) onError(err error) (first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	first = err != nil && v.err == nil
	v.err = err
	return first
}

// drop removes an object from the view.
func (v *view) drop(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.items, name)
}

// fetched stores an object that was read, unless the view has a newer version.
func (v *view) fetched(obj *unstructured.Unstructured) {
	u, name, ok := named(obj)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if before := v.items[name]; before != nil && version(before) >= version(u) {
		return
	}
	if v.items == nil {
		v.items = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	v.items[name] = u
}

func (v *view) names() []types.NamespacedName {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(maps.Keys(v.items))
}

// Add is called by the reflector.
func (v *view) Add(obj any) error {
	u, name, ok := named(obj)
	if !ok || (v.keep != nil && !v.keep(name)) {
		return nil
	}
	v.mu.Lock()
	if v.items == nil {
		v.items = map[types.NamespacedName]*unstructured.Unstructured{}
	}
	v.items[name] = u
	v.mu.Unlock()
	v.changed(name, false)
	return nil
}

// Update is called by the reflector.
func (v *view) Update(obj any) error { return v.Add(obj) }

// Delete is called by the reflector, also for an object that lost the label.
func (v *view) Delete(obj any) error {
	u, name, ok := named(obj)
	if !ok || (v.keep != nil && !v.keep(name)) {
		return nil
	}
	v.mu.Lock()
	delete(v.items, name)
	v.mu.Unlock()
	if v.deleted != nil {
		v.deleted(name, u)
	}
	v.changed(name, false)
	return nil
}

// Replace is called by the reflector with the result of a list.
func (v *view) Replace(list []any, _ string) error {
	items := make(map[types.NamespacedName]*unstructured.Unstructured, len(list))
	for _, obj := range list {
		if u, name, ok := named(obj); ok && (v.keep == nil || v.keep(name)) {
			items[name] = u
		}
	}
	v.mu.Lock()
	before, first := v.items, !v.synced
	v.items, v.synced = items, true
	v.mu.Unlock()
	for name := range before {
		if _, ok := items[name]; !ok {
			v.changed(name, false)
		}
	}
	for name, u := range items {
		if was := before[name]; was == nil || was.GetResourceVersion() != u.GetResourceVersion() {
			v.changed(name, first)
		}
	}
	return nil
}

// Resync is called by the reflector, and does nothing.
func (v *view) Resync() error { return nil }

func named(obj any) (*unstructured.Unstructured, types.NamespacedName, bool) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, types.NamespacedName{}, false
	}
	u.Object = local.WithoutManagers(u.Object)
	return u, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, true
}

func version(u *unstructured.Unstructured) uint64 {
	v, _ := strconv.ParseUint(u.GetResourceVersion(), 10, 64) // Zero only if the server breaks its own contract.
	return v
}
