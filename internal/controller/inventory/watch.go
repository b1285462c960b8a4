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
	// unservedInterval is how often a type is asked for that the hub does not serve.
	unservedInterval = 15 * time.Second
	// mostEntries is how many clusters an inventory may list: what comes after them is left out.
	mostEntries = 10_000
)

// listed are the objects of a type in a namespace of the hub, by the name of the cluster that each is about. Nothing else of
// them is kept.
type listed struct {
	gvr       schema.GroupVersionResource
	namespace string
	selector  string
	read      func(*unstructured.Unstructured) *entry // Nil if it is about no cluster.
	log       logr.Logger
	// changed is called with the name of a cluster of which something else is listed now. It must not block.
	changed func(name string)

	mu      sync.Mutex
	entries map[string]*entry
	known   bool // Whether all were listed, and the type is served.
}

// get returns what is listed of a cluster; nil if nothing is, for sure if it is known.
func (l *listed) get(name string) (e *entry, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[name], l.known
}

// run keeps the entries as they are on the hub until ctx ends.
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
				l.log.Error(err, "An inventory may not be listed", "type", l.gvr.GroupResource().String(), "namespace", l.namespace)
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
		if !reflector.Run(ctx, r, pauses, pauses) {
			return
		}
		l.mu.Lock()
		l.known = false // A type that is gone says nothing about clusters.
		l.mu.Unlock()
		if said = said && time.Since(began) < unservedInterval; !said {
			l.log.Info("The hub does not serve the type of an inventory: it is read when it does", "type", l.gvr.GroupResource().String())
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
		l.known = false // That a cluster is not among them does not mean that it is not listed.
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
		l.log.Info("An inventory lists more clusters than are taken from it", "type", l.gvr.Resource, "namespace", l.namespace, "most", mostEntries)
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

// readOne returns the name of the cluster that an object is about, and what it says; nil if nothing.
func (l *listed) readOne(obj any) (name string, e *entry) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return clusterOf(u), l.read(u)
	}
	return "", nil
}
