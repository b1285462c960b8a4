package status

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Source is a list of objects of the hub, for [List] and [Follow].
type Source struct {
	list    func() client.ObjectList
	options []client.ListOption
	// missing is the error for an API server without the type; nil means ErrNoHub.
	missing error
}

// Propagations returns the source of all Propagations of a namespace, or of all namespaces if it is empty.
func Propagations(namespace string) Source {
	return Source{list: func() client.ObjectList { return &refractv1alpha1.PropagationList{} }, options: []client.ListOption{client.InNamespace(namespace)}}
}

// ClusterPropagations returns the source of all ClusterPropagations.
func ClusterPropagations() Source {
	return Source{list: func() client.ObjectList { return &refractv1alpha1.ClusterPropagationList{} }}
}

// Member returns the source of the FederatedCluster with this name.
func Member(name string) Source {
	return Source{
		list:    func() client.ObjectList { return &corev1alpha1.FederatedClusterList{} },
		options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
	}
}

// Members returns the source of all FederatedClusters.
func Members() Source {
	return Source{list: func() client.ObjectList { return &corev1alpha1.FederatedClusterList{} }}
}

// InjectionPolicy returns the source of the ServiceInjectionPolicy with this namespace and name.
func InjectionPolicy(namespace, name string) Source {
	return Source{
		list:    func() client.ObjectList { return &refractv1beta1.ServiceInjectionPolicyList{} },
		options: []client.ListOption{client.InNamespace(namespace), client.MatchingFields{"metadata.name": name}},
		missing: ErrNoInjection,
	}
}

// ErrNoHub is returned for an API server that is not a hub.
var ErrNoHub = errors.New("the API server serves no Propagations: it is no hub, or its CustomResourceDefinitions are not installed")

// ErrNoInjection is returned for an API server that does not serve ServiceInjectionPolicies.
var ErrNoInjection = errors.New("the API server serves no ServiceInjectionPolicies: nothing is injected into its pods")

// List returns the current objects of the sources.
func List(ctx context.Context, hub client.Client, sources ...Source) ([]client.Object, error) {
	var objects []client.Object
	for _, source := range sources {
		more, _, err := source.read(ctx, hub)
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func (s *Source) read(ctx context.Context, hub client.Client) (objects []client.Object, version string, err error) {
	list := s.list()
	if err := hub.List(ctx, list, s.options...); err != nil {
		switch {
		case meta.IsNoMatchError(err) && s.missing != nil:
			return nil, "", s.missing
		case meta.IsNoMatchError(err):
			return nil, "", ErrNoHub
		}
		return nil, "", fmt.Errorf("reading from the API server: %w", err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, "", err
	}
	for _, item := range items {
		if o, ok := item.(client.Object); ok {
			objects = append(objects, o)
		}
	}
	return objects, list.GetResourceVersion(), nil
}

// Event is an existing, changed or deleted object.
type Event struct {
	// Object is the current object, or the last known state of a deleted one.
	Object client.Object
	// Gone is whether the object was deleted.
	Gone bool
}

// Follow calls the function see with all existing objects of the sources, and then with every change. It ends when the
// function returns true or an error, or when ctx ends. The changes of one source come in order. Follow continues after
// restarts of the hub. It returns the error of the function, of ctx, or of a rejected read.
func Follow(ctx context.Context, hub client.WithWatch, see func([]Event) (done bool, err error), sources ...Source) error {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // The discarded logger suppresses lines about restarted watches.
	var followers sync.WaitGroup
	defer followers.Wait()
	defer stop()
	var first []Event
	following := make([]*follower, len(sources))
	for i := range sources {
		f := &follower{source: sources[i], hub: hub, known: map[types.UID]client.Object{}}
		events, err := f.list(ctx)
		if err != nil {
			return err
		}
		first = append(first, events...)
		following[i] = f
	}
	if done, err := see(first); done || err != nil {
		return err
	}
	changes := make(chan change)
	for _, f := range following {
		followers.Go(func() { f.run(ctx, changes) })
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c := <-changes:
			if c.err != nil {
				return c.err
			}
			if done, err := see(c.events); done || err != nil {
				return err
			}
		}
	}
}

// change has the events of a follower, or the error that ended it.
type change struct {
	events []Event
	err    error
}

// follower lists and watches one source.
type follower struct {
	source  Source
	hub     client.WithWatch
	known   map[types.UID]client.Object
	version string
}

// list reads all objects, and returns the differences from the known ones.
func (f *follower) list(ctx context.Context) ([]Event, error) {
	objects, version, err := f.source.read(ctx, f.hub)
	if err != nil {
		return nil, err
	}
	f.version = version
	var events []Event
	now := make(map[types.UID]client.Object, len(objects))
	for _, o := range objects {
		now[o.GetUID()] = o
		if was := f.known[o.GetUID()]; was == nil || was.GetResourceVersion() != o.GetResourceVersion() {
			events = append(events, Event{Object: o})
		}
	}
	for uid, o := range f.known {
		if now[uid] == nil {
			events = append(events, Event{Object: o, Gone: true})
		}
	}
	f.known = now
	return events, nil
}

// run sends changes until ctx ends or the API server rejects a read.
func (f *follower) run(ctx context.Context, changes chan<- change) {
	send := func(c change) {
		select {
		case changes <- c:
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		if err := f.watch(ctx, send); err != nil {
			send(change{err: err})
			return
		}
		events, err := f.list(ctx)
		send(change{events: events, err: err})
		if err != nil {
			return
		}
	}
}

// watch sends changes until the resourceVersion is too old for the hub, or ctx ends.
func (f *follower) watch(ctx context.Context, send func(change)) error {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, f.version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.hub.Watch(ctx, f.source.list(), append([]client.ListOption{&client.ListOptions{Raw: &o}}, f.source.options...)...)
		},
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) {
				return fmt.Errorf("following the API server: %w", err)
			}
			return nil
		}
		o, ok := event.Object.(client.Object)
		if !ok {
			continue
		}
		gone := event.Type == watch.Deleted
		if f.known[o.GetUID()] = o; gone {
			delete(f.known, o.GetUID())
		}
		send(change{events: []Event{{Object: o, Gone: gone}}})
	}
	return nil
}
