package restart

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"refract.dev/internal/rescue"
)

// extract is the part of an object that is stored.
type extract interface {
	comparable
	metav1.ObjectMetaAccessor
}

// store has the extracts of all objects of one type, by namespace and name. A reflector writes to it. A stored extract
// is never modified.
type store[T extract] struct {
	read    func(*unstructured.Unstructured) (T, error)
	succeed func(is, was T) // Called with a new extract and the previous one, before the new one is stored; nil if not needed.
	changed func(namespace string)
	log     logr.Logger

	mu     sync.RWMutex
	synced bool
	items  map[string]map[string]T
}

func newStore[T extract](log logr.Logger, changed func(string), read func(*unstructured.Unstructured) (T, error)) *store[T] {
	return &store[T]{read: read, changed: changed, log: log, items: map[string]map[string]T{}}
}

// get returns the extract of an object, or the zero value.
func (s *store[T]) get(namespace, name string) T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[namespace][name]
}

// all returns the extracts of a namespace, in no order.
func (s *store[T]) all(namespace string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]T, 0, len(s.items[namespace]))
	for _, item := range s.items[namespace] {
		out = append(out, item)
	}
	return out
}

// has reports whether the namespace has any object of the type.
func (s *store[T]) has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items[namespace]) > 0
}

func (s *store[T]) hasSynced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// Transformer lets the reflector replace each object of a list by its extract at once. The complete objects may need
// too much memory.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.extract(obj) }
}

var _ cache.TransformingStore = (*store[*pod])(nil)

// extract returns the extract of an object. The reflector may pass an extract.
func (s *store[T]) extract(obj any) (T, error) {
	if known, ok := obj.(T); ok {
		return known, nil
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		var none T
		return none, fmt.Errorf("watching: want an object, got %T", obj)
	}
	return s.readSafely(u)
}

// readSafely extracts an object. A panic becomes an error.
func (s *store[T]) readSafely(u *unstructured.Unstructured) (_ T, err error) {
	defer rescue.To(&err, s.log, "reading an object", "kind", u.GetKind(), "namespace", u.GetNamespace(), "name", u.GetName())
	return s.read(u)
}

// Add is called by the reflector.
func (s *store[T]) Add(obj any) error {
	item, err := s.extract(obj)
	if err != nil {
		return err
	}
	o := item.GetObjectMeta()
	s.mu.Lock()
	of := s.items[o.GetNamespace()]
	if of == nil {
		of = map[string]T{}
		s.items[o.GetNamespace()] = of
	}
	s.succeeds(item)
	of[o.GetName()] = item
	s.mu.Unlock()
	s.changed(o.GetNamespace())
	return nil
}

// succeeds calls succeed with a new extract and the previous extract of the same object. The lock must be held.
func (s *store[T]) succeeds(item T) {
	o := item.GetObjectMeta()
	if was, known := s.items[o.GetNamespace()][o.GetName()]; known && s.succeed != nil {
		s.succeed(item, was)
	}
}

// Update is called by the reflector.
func (s *store[T]) Update(obj any) error { return s.Add(obj) }

// Delete is called by the reflector.
func (s *store[T]) Delete(obj any) error {
	item, err := s.extract(obj)
	if err != nil {
		return err
	}
	o := item.GetObjectMeta()
	s.mu.Lock()
	delete(s.items[o.GetNamespace()], o.GetName())
	if len(s.items[o.GetNamespace()]) == 0 {
		delete(s.items, o.GetNamespace())
	}
	s.mu.Unlock()
	s.changed(o.GetNamespace())
	return nil
}

// Replace is called by the reflector with the result of a list.
func (s *store[T]) Replace(list []any, _ string) error {
	items := map[string]map[string]T{}
	for _, obj := range list {
		item, err := s.extract(obj)
		if err != nil {
			if !rescue.Is(err) {
				s.log.Error(err, "Cannot read an object")
			}
			continue
		}
		o := item.GetObjectMeta()
		if items[o.GetNamespace()] == nil {
			items[o.GetNamespace()] = map[string]T{}
		}
		items[o.GetNamespace()][o.GetName()] = item
	}
	s.mu.Lock()
	for _, of := range items {
		for _, item := range of {
			s.succeeds(item)
		}
	}
	namespaces := map[string]bool{}
	for namespace := range s.items {
		namespaces[namespace] = true
	}
	for namespace := range items {
		namespaces[namespace] = true
	}
	s.items, s.synced = items, true
	s.mu.Unlock()
	for namespace := range namespaces {
		s.changed(namespace)
	}
	return nil
}

// Resync is called by the reflector and does nothing.
func (s *store[T]) Resync() error { return nil }

// follow updates the store with the objects of a type until ctx ends.
func (s *store[T]) follow(ctx context.Context, from dynamic.Interface, gvr schema.GroupVersionResource) {
	resource := from.Resource(gvr)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return resource.Watch(ctx, o)
		},
	}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, from), &unstructured.Unstructured{}, s, cache.ReflectorOptions{
		Name: "rollout/" + gvr.String(), TypeDescription: gvr.String(), Backoff: relisting(),
	}).RunWithContext(ctx)
}

// relisting returns the delays before a failed list is repeated. They are at most a few seconds, so that the store
// recovers soon after an outage of the API server.
func relisting() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: 2 * time.Second}
}

// view has a store for each watched type.
type view struct {
	policies  *store[*authored]
	pods      *store[*pod]
	workloads map[schema.GroupKind]*store[*workload]
}

// The watched types except for policies and pods.
var workloadTypes = []struct {
	kind     schema.GroupKind
	resource schema.GroupVersionResource
}{
	{schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
	{schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}},
	{schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}},
	{schema.GroupKind{Group: "apps", Kind: "DaemonSet"}, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}},
	{schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}},
	{schema.GroupKind{Kind: "ReplicationController"}, schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"}},
}

var (
	podResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	policyResource = schema.GroupVersionResource{Group: "refract.dev", Version: "v1beta1", Resource: "serviceinjectionpolicies"}
)

// newView returns an empty view. It calls changed with the namespace of each object that was created, changed or
// deleted.
func newView(log logr.Logger, now func() time.Time, changed func(namespace string)) *view {
	v := &view{
		policies:  newStore(log, changed, readAuthored),
		pods:      newStore(log, changed, readPod),
		workloads: map[schema.GroupKind]*store[*workload]{},
	}
	v.pods.succeed = func(is, was *pod) { is.succeed(was, now()) }
	for _, t := range workloadTypes {
		v.workloads[t.kind] = newStore(log, changed, readWorkload)
	}
	return v
}

// follow updates the view until ctx ends. It returns as soon as all types have been listed once.
func (v *view) follow(ctx context.Context, from dynamic.Interface, running *sync.WaitGroup) error {
	running.Go(func() { v.policies.follow(ctx, from, policyResource) })
	running.Go(func() { v.pods.follow(ctx, from, podResource) })
	synced := []cache.InformerSynced{v.policies.hasSynced, v.pods.hasSynced}
	for _, t := range workloadTypes {
		running.Go(func() { v.workloads[t.kind].follow(ctx, from, t.resource) })
		synced = append(synced, v.workloads[t.kind].hasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	return nil
}

// workload returns the extract of an object of a known class, or nil if it does not exist.
func (v *view) workload(namespace string, r ref) *workload {
	of := v.workloads[r.groupKind()]
	if of == nil {
		return nil
	}
	w := of.get(namespace, r.name)
	if w == nil || w.uid != r.uid {
		return nil
	}
	return w
}
