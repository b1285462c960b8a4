package member

import (
	"context"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// Copy is what is known of an object on a member that carries the managed
// label.
type Copy struct {
	UID types.UID
	// Source is the annotation that names the hub and the object there.
	Source string
	// MadeFor is the hub for whose copies this namespace was made, if it was.
	MadeFor string
	// Hash is that of the content it was last applied with.
	Hash string
	// Deleting is whether its deletion has begun.
	Deleting bool

	version uint64 // Its resourceVersion.
}

// Key names an object on a member, whatever the version of its type.
type Key struct {
	schema.GroupResource
	types.NamespacedName
}

// copies are the managed objects of one type on one member: a store that a
// reflector keeps up to date. It holds a few hundred bytes for each.
type copies struct {
	gvr    schema.GroupVersionResource
	stop   context.CancelFunc // Of the reflector.
	notify func(Key)

	mu     sync.RWMutex
	synced chan struct{} // Closed after the first list.
	items  map[types.NamespacedName]Copy
	err    error // Of the last list or watch.
}

func newCopies(gvr schema.GroupVersionResource, stop context.CancelFunc, notify func(Key)) *copies {
	return &copies{
		gvr:    gvr,
		stop:   stop,
		notify: notify,
		synced: make(chan struct{}),
		items:  map[types.NamespacedName]Copy{},
	}
}

func (c *copies) hasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

func (c *copies) get(name types.NamespacedName) (Copy, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	item, ok := c.items[name]
	return item, ok
}

func (c *copies) key(name types.NamespacedName) Key {
	return Key{GroupResource: c.gvr.GroupResource(), NamespacedName: name}
}

// put keeps what is newer: the answer to our own write comes before the event
// of the watch, and an older event may come after it.
func (c *copies) put(name types.NamespacedName, item Copy) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.items[name]
	if ok && before.UID == item.UID && before.version >= item.version {
		return false
	}
	c.items[name] = item
	return !ok || before.UID != item.UID || before.Source != item.Source || before.Hash != item.Hash || before.Deleting != item.Deleting
}

func (c *copies) drop(name types.NamespacedName, uid types.UID) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, ok := c.items[name]; !ok || before.UID != uid {
		return false
	}
	delete(c.items, name)
	return true
}

// Add is called by the reflector.
func (c *copies) Add(obj any) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	if c.put(name, copyOf(m)) {
		c.notify(c.key(name))
	}
	return nil
}

// Update is called by the reflector.
func (c *copies) Update(obj any) error { return c.Add(obj) }

// Delete is called by the reflector, also for a copy that lost its label.
func (c *copies) Delete(obj any) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: m.Namespace, Name: m.Name}
	if c.drop(name, m.UID) {
		c.notify(c.key(name))
	}
	return nil
}

// Replace is called by the reflector with the result of a list.
func (c *copies) Replace(list []any, _ string) error {
	listed := make(map[types.NamespacedName]Copy, len(list))
	for _, obj := range list {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			listed[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = copyOf(m)
		}
	}
	c.mu.Lock()
	before := c.items
	c.items = listed
	c.sync()
	c.mu.Unlock()
	for name := range before {
		if _, ok := listed[name]; !ok {
			c.notify(c.key(name))
		}
	}
	for name, item := range listed {
		if was, ok := before[name]; !ok || was.UID != item.UID || was.Hash != item.Hash || was.Deleting != item.Deleting {
			c.notify(c.key(name))
		}
	}
	return nil
}

// heard is told how a list or watch went. A type that the member does not serve
// has no copies: that is known, too.
func (c *copies) heard(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	if apierrors.IsNotFound(err) {
		c.sync()
	}
}

func (c *copies) listError() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.err
}

// sync marks the copies as known. The lock must be held.
func (c *copies) sync() {
	if !c.hasSynced() {
		close(c.synced)
	}
}

// Resync is called by the reflector; there is nothing to do.
func (c *copies) Resync() error { return nil }

func copyOf(m *metav1.PartialObjectMetadata) Copy {
	version, _ := strconv.ParseUint(m.ResourceVersion, 10, 64) // Zero only if the server breaks its own contract.
	return Copy{
		UID:      m.UID,
		Source:   m.Annotations[refractv1alpha1.SourceAnnotation],
		MadeFor:  m.Annotations[refractv1alpha1.NamespaceAnnotation],
		Hash:     m.Annotations[refractv1alpha1.AppliedAnnotation],
		Deleting: m.DeletionTimestamp != nil,
		version:  version,
	}
}
