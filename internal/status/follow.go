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

// Source is a list of objects of the hub that can be followed.
type Source struct {
	list    func() client.ObjectList
	options []client.ListOption
	// missing is the error of an API server that does not know the type; ErrNoHub if
	// nil.
	missing error
}

// Propagations are the reports on the objects of a namespace, or of all if it is
// empty.
func Propagations(namespace string) Source {
	return Source{list: func() client.ObjectList { return &refractv1alpha1.PropagationList{} }, options: []client.ListOption{client.InNamespace(namespace)}}
}

// ClusterPropagations are the reports on objects that are cluster-scoped.
func ClusterPropagations() Source {
	return Source{list: func() client.ObjectList { return &refractv1alpha1.ClusterPropagationList{} }}
}

// Member is the one FederatedCluster of the name.
func Member(name string) Source {
	return Source{
		list:    func() client.ObjectList { return &corev1alpha1.FederatedClusterList{} },
		options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
	}
}

// Members are all FederatedClusters.
func Members() Source {
	return Source{list: func() client.ObjectList { return &corev1alpha1.FederatedClusterList{} }}
}

// InjectionPolicy is the one ServiceInjectionPolicy of the namespace and name.
func InjectionPolicy(namespace, name string) Source {
	return Source{
		list:    func() client.ObjectList { return &refractv1beta1.ServiceInjectionPolicyList{} },
		options: []client.ListOption{client.InNamespace(namespace), client.MatchingFields{"metadata.name": name}},
		missing: ErrNoInjection,
	}
}

// ErrNoHub is the error of an API server that is no hub.
var ErrNoHub = errors.New("the API server serves no Propagations: it is no hub, or its CustomResourceDefinitions are not installed")

// ErrNoInjection is the error of an API server that knows no ServiceInjectionPolicies.
var ErrNoInjection = errors.New("the API server serves no ServiceInjectionPolicies: nothing is injected into its pods")

// List reads what there is now in the sources.
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

// Event is something that is there or has changed.
type Event struct {
	// Object as it is now, or was before it was gone.
	Object client.Object
	// Gone is whether the object is no more.
	Gone bool
}

// Follow calls see once with all that is in the sources, then with every change, in
// the order of each source, until it returns true or an error, or ctx ends. It outlives
// restarts of the hub. Its error is that of see, of ctx, or of what may not be read.
func Follow(ctx context.Context, hub client.WithWatch, see func([]Event) (done bool, err error), sources ...Source) error {
	ctx, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard())) // That a watch begins again is not logged.
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

// change is what a follower has seen, or why it cannot go on.
type change struct {
	events []Event
	err    error
}

// follower follows one source.
type follower struct {
	source  Source
	hub     client.WithWatch
	known   map[types.UID]client.Object
	version string
}

// list reads all, and returns what is different from what was known.
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

// run sends changes until ctx ends or the source may not be read.
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

// watch sends changes until the hub does not remember what was known last, or ctx
// ends.
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
