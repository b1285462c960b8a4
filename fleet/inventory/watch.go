package inventory

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"refract.dev/internal/reflector"
)

const (
	// unservedInterval is the interval between two attempts to read a type that the hub does not serve.
	unservedInterval = 15 * time.Second
	// mostEntries is the maximum number of clusters in an inventory. Further clusters are ignored.
	mostEntries = 10_000
)

// listed has the entries of one type in one namespace of the hub, by the name of the cluster. It does not keep the
// objects.
type listed struct {
	gvr       schema.GroupVersionResource
	namespace string
	selector  string
	read      func(*unstructured.Unstructured) *entry // Returns nil for an object without a cluster.
	log       logr.Logger
	// changed receives the name of each cluster whose entry has changed. It must not block.
	changed func(name string)

	mu      sync.Mutex
	entries map[string]*entry
	known   bool // Whether the type is served and all entries were read.
}

// get returns the entry of a cluster, nil if there is no entry. If known is false, an entry may exist although none is
// found.
func (l *listed) get(name string) (e *entry, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[name], l.known
}

// run keeps the entries up to date with the hub until ctx ends.
func (l *listed) run(ctx context.Context, hub dynamic.Interface) {
	api := hub.Resource(l.gvr).Namespace(l.namespace)
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = l.selector
		return o
	}
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := api.List(ctx, with(o))
			if apierrors.IsForbidden(err) {
				l.log.Error(err, "No right to list an inventory", "type", l.gvr.GroupResource().String(), "namespace", l.namespace)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, with(o))
		},
	}
	for said := false; ctx.Err() == nil; {
		r := cache.NewReflectorWithOptions(from, &unstructured.Unstructured{}, l, cache.ReflectorOptions{Name: l.gvr.String()})
		began := time.Now()
		pauses := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
		if !reflector.Run(ctx, l.gvr.String(), r, pauses, pauses) {
			return
		}
		l.mu.Lock()
		l.known = false // If the type is not served, its clusters are not necessarily gone.
		l.mu.Unlock()
		if said = said && time.Since(began) < unservedInterval; !said {
			l.log.Info("An inventory waits until the hub serves its type", "type", l.gvr.GroupResource().String())
			said = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(unservedInterval):
		}
	}
}

// Add implements [cache.ReflectorStore].
func (l *listed) Add(obj any) error { return l.Update(obj) }

// Update implements [cache.ReflectorStore].
func (l *listed) Update(obj any) error {
	name, e := l.readOne(obj)
	l.mu.Lock()
	switch {
	case e == nil:
		delete(l.entries, name)
	case l.entries[name] != nil || len(l.entries) < mostEntries:
		l.entries[name] = e
	default:
		l.known = false // An ignored entry may exist on the hub.
	}
	l.mu.Unlock()
	l.changed(name)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (l *listed) Delete(obj any) error {
	name, _ := l.readOne(obj)
	l.mu.Lock()
	delete(l.entries, name)
	l.mu.Unlock()
	l.changed(name)
	return nil
}

// Replace implements [cache.ReflectorStore].
func (l *listed) Replace(all []any, _ string) error {
	entries := make(map[string]*entry, len(all))
	for _, obj := range all[:min(len(all), mostEntries)] {
		if name, e := l.readOne(obj); e != nil {
			entries[name] = e
		}
	}
	if len(all) > mostEntries {
		l.log.Info("An inventory lists more clusters than the maximum", "type", l.gvr.Resource, "namespace", l.namespace, "most", mostEntries)
	}
	l.mu.Lock()
	before := l.entries
	l.entries, l.known = entries, len(all) <= mostEntries
	l.mu.Unlock()
	for name := range entries {
		l.changed(name)
	}
	for name := range before {
		if entries[name] == nil {
			l.changed(name)
		}
	}
	return nil
}

// Resync implements [cache.ReflectorStore].
func (l *listed) Resync() error { return nil }

// readOne returns the name of the cluster of an object, and its entry; nil for an object without a cluster.
func (l *listed) readOne(obj any) (name string, e *entry) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return clusterOf(u), l.read(u)
	}
	return "", nil
}
