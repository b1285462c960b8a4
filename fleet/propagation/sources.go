package propagation

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/reflector"
)

// rediscoverInterval is the interval between discoveries of the hub's types, even without a changed CRD: aggregated
// API servers come and go without one.
const rediscoverInterval = 30 * time.Second

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// refused is the back-off after the hub has refused to list a type. This may be permanent, if the account has rights
// to some types only. The controllers use a new right within half a minute.
var refused = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 50, Cap: 30 * time.Second}

// sources are the objects of the hub that ask to be propagated, of all types that the hub serves. They adapt when
// types are added or removed.
type sources struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	log       logr.Logger
	// notify is called for each new, changed or deleted object. initial is whether the object was in the first list
	// of its type.
	notify func(key Key, initial bool)

	wake    chan struct{} // Signals that the types may have changed.
	told    chan struct{} // Closed after the first discovery.
	watches sync.WaitGroup

	mu    sync.RWMutex
	types map[schema.GroupResource]*sourceType
	// wanted are the followers, which may have no label.
	wanted map[schema.GroupResource]map[types.NamespacedName]bool
	// deletions are the reported deletions that the decider has not recorded yet.
	deletions map[Key]*deletion
	// defined are the types whose CustomResourceDefinition was seen, by its name.
	defined    map[string]bool
	discovered bool            // Whether the types have been discovered.
	doubtful   map[string]bool // Groups that the last discovery could not read.
	// passedOver are the types that the account may not list. unsaid is whether some of them are still to be logged.
	passedOver map[schema.GroupResource]bool
	unsaid     bool
	// hung has the versions of types whose conversion took long and failed, with the time until which they are not
	// tried.
	hung map[schema.GroupVersionResource]time.Time
}

// deletion is a deletion that a watch reported: a call deleted the object, or its label was removed.
type deletion struct {
	uid     types.UID
	created metav1.Time // The creation time of the object.
	owned   bool        // Whether it had an owner.
}

// sourceType is one type with its labeled objects. It has a view for each label, because a selector cannot express
// "one label or the other".
type sourceType struct {
	gvr        schema.GroupVersionResource
	versions   []string // The served versions, the preferred one first.
	kind       string
	namespaced bool
	views      []*view
	// others is the view of the followers; nil for a type without followers.
	others *view
	ctx    context.Context //nolint:containedctx // Ends the watches of its views.
	stop   context.CancelFunc
	// resting is whether the watches have ended because the hub does not serve the type, although discovery has
	// listed it. missed is how often this has happened since the hub last served it.
	resting bool
	missed  int
}

func newSources(dyn dynamic.Interface, disco discovery.DiscoveryInterface, log logr.Logger) *sources {
	return &sources{
		dynamic: dyn, discovery: disco, log: log, notify: func(Key, bool) {},
		wake:      make(chan struct{}, 1),
		told:      make(chan struct{}),
		types:     map[schema.GroupResource]*sourceType{},
		wanted:    map[schema.GroupResource]map[types.NamespacedName]bool{},
		deletions: map[Key]*deletion{},
		defined:   map[string]bool{},
		hung:      map[schema.GroupVersionResource]time.Time{},

		passedOver: map[schema.GroupResource]bool{},
	}
}

// watchType watches a type. If it replaces another version of the type, it returns the keys of that version. The lock
// must be held.
func (s *sources) watchType(ctx context.Context, r *member.ServedType) (before []Key) {
	gvr := r.GroupVersionResource
	if t := s.types[gvr.GroupResource()]; t != nil {
		t.stop()
		before = t.keys()
	}
	t := &sourceType{gvr: gvr, kind: r.Kind, namespaced: r.Namespaced}
	s.types[gvr.GroupResource()] = t
	for range viewLabels {
		t.views = append(t.views, s.viewOf(gvr.GroupResource()))
	}
	s.begin(ctx, t)
	if len(s.wanted[gvr.GroupResource()]) > 0 {
		s.watchOthers(t)
	}
	return before
}

// viewLabels are the label selectors of the views of a type.
var viewLabels = []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel}

// begin starts the watches for the views of a type. The lock must be held.
func (s *sources) begin(ctx context.Context, t *sourceType) {
	t.ctx, t.stop = context.WithCancel(ctx)
	t.resting = false
	for i, label := range viewLabels {
		s.watch(t, label, t.views[i])
	}
	if t.others != nil {
		s.watch(t, "", t.others)
	}
}

// watch keeps a view of a type up to date until the type is removed, or the hub does not serve it. The lock must be
// held.
func (s *sources) watch(t *sourceType, selector string, into *view) {
	ctx := t.ctx
	s.watches.Go(func() {
		served := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.missed = 0
		}
		if reflector.Run(ctx, t.gvr.String()+selector, s.reflector(t.gvr, selector, into, served), *patience(), refused) {
			s.rest(ctx, t)
		}
	})
}

// rest stops the watches of a type that the hub does not serve, until discovery lists the type again. It requests
// discoveries at once and then at growing intervals, because discovery may be outdated, or list a type that will be
// served soon.
func (s *sources) rest(ctx context.Context, t *sourceType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return // Another view has reported it already, or the type is removed.
	}
	t.stop()
	t.resting = true
	if t.missed == 0 {
		s.log.Info("The hub no longer serves a type; it is watched when the hub serves it again", "type", t.gvr.GroupResource().String())
	}
	time.AfterFunc(min(firstRest<<t.missed, rediscoverInterval), s.lookAgain)
	t.missed = min(t.missed+1, restsCounted)
}

const (
	// firstRest is the delay of the first discovery after the hub did not serve a type.
	firstRest = 200 * time.Millisecond
	// restsCounted bounds how often the delay doubles; rediscoverInterval is reached before.
	restsCounted = 8
)

// viewOf makes a view of objects of a type.
func (s *sources) viewOf(resource schema.GroupResource) *view {
	keyed := func(name types.NamespacedName) Key { return Key{GroupResource: resource, NamespacedName: name} }
	return &view{
		changed: func(name types.NamespacedName, initial bool) { s.notify(keyed(name), initial) },
		deleted: func(name types.NamespacedName, last *unstructured.Unstructured) {
			s.mu.Lock()
			s.deletions[keyed(name)] = &deletion{uid: last.GetUID(), created: last.GetCreationTimestamp(), owned: len(last.GetOwnerReferences()) > 0}
			s.mu.Unlock()
		},
	}
}

// deletion returns the reported deletion of an object until [sources.noted] forgets it; nil for none.
func (s *sources) deletion(key Key) *deletion {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.deletions[key]
}

// noted removes a deletion that was handled, unless the watch has reported a newer deletion of the key.
func (s *sources) noted(key Key, d *deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deletions[key] == d {
		delete(s.deletions, key)
	}
}

// watchOthers starts a watch of the followers of a type, which may have no label. The lock must be held.
func (s *sources) watchOthers(t *sourceType) {
	resource := t.gvr.GroupResource()
	t.others = s.viewOf(resource)
	t.others.keep = func(name types.NamespacedName) bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.wanted[resource][name]
	}
	s.watch(t, "", t.others)
}

// want adds an object to the followers, which are watched even without a label.
func (s *sources) want(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.wanted[key.GroupResource]
	if names[key.NamespacedName] {
		return
	}
	if names == nil {
		names = map[types.NamespacedName]bool{}
		s.wanted[key.GroupResource] = names
	}
	names[key.NamespacedName] = true
	if t := s.types[key.GroupResource]; t != nil && t.others == nil {
		s.watchOthers(t)
	}
}

// unwant removes an object from the followers.
func (s *sources) unwant(key Key) {
	s.mu.Lock()
	delete(s.wanted[key.GroupResource], key.NamespacedName)
	var others *view
	if t := s.types[key.GroupResource]; t != nil {
		others = t.others
	}
	s.mu.Unlock()
	if others != nil {
		others.drop(key.NamespacedName)
	}
}

// resource returns the resource of a kind; false if the hub does not serve it.
func (s *sources) resource(kind schema.GroupKind) (schema.GroupResource, bool) {
	t := s.kind(kind)
	if t == nil {
		return schema.GroupResource{}, false
	}
	return t.gvr.GroupResource(), true
}

// served waits for the first discovery. It returns a function that reports whether the hub has, or may have, a type,
// and the version that the hub prefers, if it is known.
func (s *sources) served(ctx context.Context) (hub func(schema.GroupResource) (version string, has bool), err error) {
	select {
	case <-s.told:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return func(resource schema.GroupResource) (string, bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if t := s.types[resource]; t != nil {
			return t.gvr.Version, true
		}
		return "", s.doubtful[resource.Group]
	}, nil
}

// scope returns whether a kind is namespaced. known is whether the hub serves it.
func (s *sources) scope(kind schema.GroupKind) (namespaced, known bool) {
	t := s.kind(kind)
	return t != nil && t.namespaced, t != nil
}

// kind returns the type of a kind; nil if the hub does not serve it.
func (s *sources) kind(kind schema.GroupKind) *sourceType {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for resource, t := range s.types {
		if resource.Group == kind.Group && t.kind == kind.Kind {
			return t
		}
	}
	return nil
}

// all returns the keys of all labeled objects. complete is false while some may be missing.
func (s *sources) all() (keys []Key, complete bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	complete = s.discovered
	for _, t := range s.types {
		for _, v := range t.views {
			complete = complete && v.asked()
		}
		keys = append(keys, t.keys()...)
	}
	return keys, complete
}

// companions returns the keys of all followers, whether the hub has them or not.
func (s *sources) companions() (keys []Key) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for resource, names := range s.wanted {
		for name := range names {
			keys = append(keys, Key{GroupResource: resource, NamespacedName: name})
		}
	}
	return keys
}

// resources returns the resources with objects that can be propagated.
func (s *sources) resources() []schema.GroupResource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.types))
}

// objects returns all labeled objects and their followers. They are shared and read-only.
func (s *sources) objects() []*unstructured.Unstructured {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []*unstructured.Unstructured
	for resource, t := range s.types {
		seen := map[types.NamespacedName]bool{}
		for _, v := range append(slices.Clone(t.views), t.others) {
			if v == nil {
				continue
			}
			for _, name := range v.names() {
				if src, known := s.getLocked(Key{GroupResource: resource, NamespacedName: name}); known && src.object != nil && !seen[name] {
					seen[name] = true
					all = append(all, src.object)
				}
			}
		}
	}
	return all
}

// reflector returns a reflector that lists and watches the objects of a type with a label selector. It calls served
// after each successful request.
func (s *sources) reflector(gvr schema.GroupVersionResource, selector string, into *view, served func()) *cache.Reflector {
	resource := s.dynamic.Resource(gvr)
	onError := func(err error) {
		first := into.onError(err)
		switch {
		case err == nil:
			s.listed(gvr.GroupResource())
		case apierrors.IsForbidden(err):
			s.passOver(gvr.GroupResource())
		case first && !apierrors.IsNotFound(err):
			s.log.Error(err, "Cannot list objects of a type on the hub; they are not propagated meanwhile", "type", gvr.GroupResource().String())
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := resource.List(ctx, o)
			onError(err)
			if err == nil {
				served()
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			w, err := resource.Watch(ctx, o)
			switch {
			case err == nil:
				s.listed(gvr.GroupResource())
				served()
			case !into.asked(): // The first list may be a watch, which the reflector repeats until it succeeds.
				onError(err)
			}
			return w, err
		},
	}
	return cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, into, cache.ReflectorOptions{
		Name: "hub/" + gvr.String(), TypeDescription: gvr.String(), Backoff: patience(),
	})
}

// sayAfter is the time for collecting types that may not be listed before the log gets one line for them.
const sayAfter = 2 * time.Second

// passOver records that the account may not list a type on the hub, because it has rights to some types only.
func (s *sources) passOver(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passedOver[resource] {
		return
	}
	s.passedOver[resource] = true
	if !s.unsaid {
		s.unsaid = true
		time.AfterFunc(sayAfter, s.sayPassedOver)
	}
}

// listed records that the account may list a type.
func (s *sources) listed(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.passedOver, resource)
}

func (s *sources) sayPassedOver() {
	s.mu.Lock()
	s.unsaid = false
	var types []string
	for resource := range s.passedOver {
		types = append(types, resource.String())
	}
	s.mu.Unlock()
	slices.Sort(types)
	s.log.Info("No right to list types on the hub, so their objects are not propagated; refract check names those with a label", "types", types)
}

// unlisted reports whether the account may not list a type on the hub.
func (s *sources) unlisted(resource schema.GroupResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.passedOver[resource]
}

// again returns the delay before another look for an object that is not known yet.
func (s *sources) again(resource schema.GroupResource) time.Duration {
	if s.unlisted(resource) {
		return refused.Cap
	}
	return 200 * time.Millisecond
}
