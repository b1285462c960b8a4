package propagation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/member"
	"refract.dev/internal/reflector"
	"refract.dev/local"
	"refract.dev/placement"
)

// rediscoverInterval is how often the hub is asked for its types although no CRD
// has changed: aggregated API servers come and go without one.
const rediscoverInterval = 30 * time.Second

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// refused is how long it rests after a type may not be listed on the hub, which is so for good if the account has the right to some types
// alone. A right that somebody gives is taken up within half a minute.
var refused = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 50, Cap: 30 * time.Second}

// sources are the objects of the hub that ask to be propagated, of every type
// that the hub serves. Types are followed as they are added and removed.
type sources struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface
	log       logr.Logger
	// notify is called for each object that came, changed or went; initial says that
	// it was there when its type was first listed.
	notify func(key Key, initial bool)

	wake    chan struct{} // The types may have changed.
	told    chan struct{} // Closed when the hub has said which types it has.
	watches sync.WaitGroup

	mu    sync.RWMutex
	types map[schema.GroupResource]*sourceType
	// wanted are objects without a label that travel with others.
	wanted map[schema.GroupResource]map[types.NamespacedName]bool
	// deletions are those that watches told of and nobody has taken note of.
	deletions map[Key]*deletion
	// defined are the types that a CustomResourceDefinition was seen of, by its name.
	defined    map[string]bool
	discovered bool            // Whether the types were discovered once.
	doubtful   map[string]bool // Groups that the hub could not tell of the last time.
	// passedOver are the types that may not be listed, and unsaid whether some of them are yet to be logged.
	passedOver map[schema.GroupResource]bool
	unsaid     bool
	// hung has, of each version of a type that took long to be converted to in vain, until when that is not tried.
	hung map[schema.GroupVersionResource]time.Time
}

// deletion is one that a watch told of: somebody deleted the object by a call, or took
// its label away.
type deletion struct {
	created metav1.Time // When the object was made.
	owned   bool        // Whether it had an owner.
}

// sourceType is one type and its labelled objects. A selector cannot say "one
// label or the other", so there is a view for each.
type sourceType struct {
	gvr        schema.GroupVersionResource
	versions   []string // Those that the hub serves, the preferred one first.
	kind       string
	namespaced bool
	views      []*view
	// others is the view of the objects that travel with others; nil while there are
	// none.
	others *view
	ctx    context.Context //nolint:containedctx // The life of its views.
	stop   context.CancelFunc
	// resting is whether it is not watched, as the hub does not serve it though discovery
	// has listed it; missed is how often that was found since it did.
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

// run follows the hub's types until ctx ends.
func (s *sources) run(ctx context.Context) error {
	crds := &view{changed: func(name types.NamespacedName, _ bool) {
		s.mu.Lock()
		s.defined[name.Name] = true
		s.mu.Unlock()
		s.lookAgain()
	}}
	defer s.watches.Wait()
	s.watches.Go(func() { s.reflector(crdResource, "", crds, func() {}).RunWithContext(ctx) })
	tick := time.NewTicker(rediscoverInterval)
	defer tick.Stop()
	for {
		if err := s.discover(ctx); err != nil {
			s.log.Error(err, "Cannot discover all types of the hub")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// lookAgain has the types discovered anew, soon.
func (s *sources) lookAgain() {
	select {
	case s.wake <- struct{}{}:
	default: // It is to be done already.
	}
}

// discover begins to watch types that are new and forgets those that are removed.
func (s *sources) discover(ctx context.Context) error {
	groups, lists, err := discovery.ServerGroupsAndResources(s.discovery)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return fmt.Errorf("discovering types: %w", err)
	}
	doubtful := doubtfulGroups(partial)
	var touched []Key
	found := map[schema.GroupResource]bool{}
	s.mu.Lock()
	for _, r := range member.ServedTypes(groups, lists) {
		if !member.Propagates(r.GroupVersion().WithKind(r.Kind).GroupKind(), r.Verbs) {
			continue
		}
		found[r.GroupResource()] = true
		t := s.types[r.GroupResource()]
		switch {
		case t == nil || t.gvr != r.GroupVersionResource:
			touched = append(touched, s.watchType(ctx, r)...)
		case t.resting:
			s.begin(ctx, t)
		}
		if t != nil && !slices.Equal(t.versions, r.Versions) {
			touched = append(touched, t.keys()...) // Some clusters may be sent another version.
		}
		s.types[r.GroupResource()].versions = r.Versions
	}
	for resource, t := range s.types {
		if !found[resource] && !doubtful[resource.Group] {
			t.stop()
			delete(s.types, resource)
			touched = append(touched, t.keys()...)
		}
	}
	if !s.discovered {
		close(s.told)
	}
	s.discovered, s.doubtful = true, doubtful
	s.mu.Unlock()
	for _, key := range touched {
		s.notify(key, false)
	}
	return err
}

func doubtfulGroups(partial *discovery.ErrGroupDiscoveryFailed) map[string]bool {
	doubtful := map[string]bool{}
	if partial != nil {
		for gv := range partial.Groups {
			doubtful[gv.Group] = true
		}
	}
	return doubtful
}

// watchType watches a type, in place of another version of it, whose keys it
// returns. The lock must be held.
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

// viewLabels select the objects of each of the views of a type.
var viewLabels = []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel}

// begin watches what the views of a type are of. The lock must be held.
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

// watch keeps a view of a type up to date until the type is forgotten, or the hub does not
// serve it. The lock must be held.
func (s *sources) watch(t *sourceType, selector string, into *view) {
	ctx := t.ctx
	s.watches.Go(func() {
		served := func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			t.missed = 0
		}
		if reflector.Run(ctx, s.reflector(t.gvr, selector, into, served), *patience(), refused) {
			s.rest(ctx, t)
		}
	})
}

// rest ends that a type is watched which the hub does not serve, until discovery lists it.
// It is asked soon, and less and less often: it may be behind, or ahead with a type that is
// about to be served.
func (s *sources) rest(ctx context.Context, t *sourceType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return // It was said of another of its views, or it is forgotten.
	}
	t.stop()
	t.resting = true
	if t.missed == 0 {
		s.log.Info("The hub does not serve a type any more; it is watched when the hub lists it again", "type", t.gvr.GroupResource().String())
	}
	time.AfterFunc(min(firstRest<<t.missed, rediscoverInterval), s.lookAgain)
	t.missed = min(t.missed+1, restsCounted)
}

const (
	// firstRest is how soon the hub is asked for its types when it does not serve one.
	firstRest = 200 * time.Millisecond
	// restsCounted is how often that doubles: until there is no need.
	restsCounted = 8
)

// viewOf makes a view of objects of a type.
func (s *sources) viewOf(resource schema.GroupResource) *view {
	keyed := func(name types.NamespacedName) Key { return Key{GroupResource: resource, NamespacedName: name} }
	return &view{
		changed: func(name types.NamespacedName, initial bool) { s.notify(keyed(name), initial) },
		deleted: func(name types.NamespacedName, last *unstructured.Unstructured) {
			s.mu.Lock()
			s.deletions[keyed(name)] = &deletion{created: last.GetCreationTimestamp(), owned: len(last.GetOwnerReferences()) > 0}
			s.mu.Unlock()
		},
	}
}

// deletion returns what a watch told of the deletion of an object, until that is
// [sources.noted]; nil if nothing.
func (s *sources) deletion(key Key) *deletion {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.deletions[key]
}

// noted forgets a deletion, unless the watch has told of another since.
func (s *sources) noted(key Key, d *deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deletions[key] == d {
		delete(s.deletions, key)
	}
}

// watchOthers begins to watch the objects of a type that have no label. The lock must
// be held.
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

// want has an object followed that travels with others and may have no label.
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

// unwant ends that.
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

// resource returns the resource of a kind.
func (s *sources) resource(kind schema.GroupKind) (schema.GroupResource, bool) {
	t := s.kind(kind)
	if t == nil {
		return schema.GroupResource{}, false
	}
	return t.gvr.GroupResource(), true
}

// served waits until the hub has said which types it has, and returns what says whether it
// has one, or may have, and which version of it the hub prefers, if that is known.
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

// scope says whether a kind is namespaced, if the hub serves it.
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

// all returns the keys of all objects that have a label; complete is false while
// some may be missing.
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

// resources returns the resources of which objects can be propagated.
func (s *sources) resources() []schema.GroupResource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Keys(s.types))
}

// objects returns all objects that have a label, and those that travel with them.
// They are shared and must not be modified.
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

// reflector lists and watches the objects of a type that the selector chooses. It calls
// served each time that the hub lets it.
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
			s.log.Error(err, "Objects of a type cannot be listed on the hub, and are not propagated until they can", "type", gvr.GroupResource().String())
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
			case !into.asked(): // The first list may be a watch, which is tried until it works.
				onError(err)
			}
			return w, err
		},
	}
	return cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, into, cache.ReflectorOptions{
		Name: "hub/" + gvr.String(), TypeDescription: gvr.String(), Backoff: patience(),
	})
}

// sayAfter is how long types are gathered that may not be listed, for one line of the log.
const sayAfter = 2 * time.Second

// passOver notes that a type may not be listed on the hub: the account has the right to some types alone.
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

// listed notes that a type may be listed.
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
	s.log.Info("Types may not be listed on the hub, and their objects are not propagated; refract check names those that carry a label", "types", types)
}

// unlisted reports whether a type may not be listed on the hub.
func (s *sources) unlisted(resource schema.GroupResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.passedOver[resource]
}

// again is when to look again for an object of which nothing is known yet.
func (s *sources) again(resource schema.GroupResource) time.Duration {
	if s.unlisted(resource) {
		return refused.Cap
	}
	return 200 * time.Millisecond
}

// source is what is known of a key on the hub.
type source struct {
	object *unstructured.Unstructured // Nil when there is none; shared, not to be modified.
	// withdrawn is the object if it is there, and neither asks to be propagated nor travels with others.
	withdrawn *unstructured.Unstructured
	gvr       schema.GroupVersionResource
	kind      string
	// versions are those in which the hub serves the type, the preferred one first.
	versions []string
}

// get returns the object that the key names, as it was last seen. Known is false
// while the type is being listed. That there is no object is no proof that it is
// gone: see [sources.gone].
func (s *sources) get(key Key) (src source, known bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.getLocked(key)
}

// getLocked is get for who holds the lock.
func (s *sources) getLocked(key Key) (src source, known bool) {
	t := s.types[key.GroupResource]
	if t == nil {
		return source{}, s.discovered // Before that, nothing is known of any type.
	}
	src = source{gvr: t.gvr, kind: t.kind, versions: t.versions}
	views := t.views
	if t.others != nil && s.wanted[key.GroupResource][key.NamespacedName] {
		views = append(slices.Clone(views), t.others)
	}
	for _, v := range views {
		obj, synced := v.get(key.NamespacedName)
		if !synced {
			return source{}, false
		}
		if obj != nil && (src.object == nil || version(obj) > version(src.object)) {
			src.object = obj
		}
	}
	return src, true
}

// look asks the hub for an object that no cache has. It returns the object if it travels with
// others or is withdrawn, and unless it travels, why its copies are to be deleted: Missing, TypeDeleted if the hub does not serve the
// type any more, Deleted if it is being deleted, or Withdrawn if it does not ask to be
// propagated. It returns neither if the copies are to stay.
//
// Copies are removed on proof only. A cache may be behind, as an object passes from one label
// to the other through two watches, and a type may be missing because an API server has just
// begun. So either a server that serves the type does not find the object, or the type was
// that of a CRD, which is not found. Kubernetes' own types, and those of API servers that
// cannot be reached now, do not go away.
func (s *sources) look(ctx context.Context, key Key, src source) (obj *unstructured.Unstructured, gone cause, err error) {
	if src.gvr.Resource != "" {
		live, err := readByName(ctx, s.dynamic.Resource(src.gvr).Namespace(key.Namespace), key.GroupResource, key.Name)
		switch {
		case err == nil && s.keep(key, live):
			return live, "", nil
		case err == nil && asksNothing(live) == causeWithdrawn:
			return live, causeWithdrawn, nil
		case err == nil:
			return nil, asksNothing(live), nil
		case notFound(err):
			return nil, causeMissing, nil
		case !apierrors.IsNotFound(err):
			return nil, "", fmt.Errorf("looking for the source of copies: %w", err)
		}
	}
	s.mu.RLock()
	doubtful := s.doubtful[key.Group]
	s.mu.RUnlock()
	if doubtful || scheme.Scheme.IsGroupRegistered(key.Group) {
		return nil, "", nil
	}
	_, err = readByName(ctx, s.dynamic.Resource(crdResource), crdResource.GroupResource(), key.GroupResource.String())
	switch {
	case notFound(err):
		return nil, causeType, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, "", fmt.Errorf("looking for the type of copies: %w", err)
	}
	return nil, "", nil
}

// asksNothing says of an object that is there why its copies are to be deleted; nothing if it
// asks to be propagated.
func asksNothing(obj *unstructured.Unstructured) cause {
	_, asks, _, _ := placement.Named(obj.GetLabels(), obj.GetNamespace()) //nolint:dogsled // A label that is not valid asks, too.
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return causeDeleted
	case !asks:
		return causeWithdrawn
	default:
		return ""
	}
}

// around returns what was deleted around an object that is deleted or being deleted: its type, or
// its namespace, which is being deleted, is not there, or was made after the object.
// It returns Missing if the hub does not say. Namespaces and types outlive what is in
// them, and the hub is asked after the object went: the one that took it along cannot
// be taken for one that is still whole.
func (s *sources) around(ctx context.Context, key Key, told *deletion) (cause, error) {
	s.mu.RLock()
	custom := s.defined[key.GroupResource.String()]
	s.mu.RUnlock()
	for _, holder := range []struct {
		cause    cause
		resource schema.GroupVersionResource
		name     string
		is       bool
	}{
		{causeType, crdResource, key.GroupResource.String(), custom},
		{causeNamespace, namespaceResource, key.Namespace, key.Namespace != ""},
	} {
		if !holder.is {
			continue
		}
		live, err := s.dynamic.Resource(holder.resource).Get(ctx, holder.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return holder.cause, nil
		case apierrors.IsForbidden(err):
			return causeMissing, nil
		case err != nil:
			return "", fmt.Errorf("looking for what was deleted around the source of copies: %w", err)
		}
		made := live.GetCreationTimestamp()
		if live.GetDeletionTimestamp() != nil || (told != nil && told.created.Before(&made)) {
			return holder.cause, nil
		}
	}
	return "", nil
}

// readByName reads one object as it is now, of whatever type, by a list of its name. A
// right to get every type would be one to nodes/proxy and pods/exec as well, which a
// list does not reach. The error is as that of a get: [apierrors.IsNotFound] if there
// is no such object, and what the server says if it does not serve the type.
//
// A server may not heed the selector: so the object is looked for in what it lists,
// and that it is not in a part of a list proves nothing.
func readByName(ctx context.Context, in dynamic.ResourceInterface, of schema.GroupResource, name string) (*unstructured.Unstructured, error) {
	list, err := in.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			return &list.Items[i], nil
		}
	}
	if list.GetContinue() != "" {
		return nil, fmt.Errorf("listing %s by the name %s: want a whole list, got a part without it", of, name)
	}
	return nil, apierrors.NewNotFound(of, name)
}

// keep adds an object to those that travel with others, if it is wanted there.
func (s *sources) keep(key Key, obj *unstructured.Unstructured) bool {
	s.mu.RLock()
	var others *view
	if t := s.types[key.GroupResource]; t != nil {
		others = t.others
	}
	wanted := s.wanted[key.GroupResource][key.NamespacedName]
	s.mu.RUnlock()
	if !wanted || others == nil {
		return false
	}
	others.fetched(obj)
	return true
}

// notFound tells an object that is not there from a path that is not served.
func notFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

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
	// deleted, if it is not nil, is called before changed when a watch told of a
	// deletion.
	deleted func(name types.NamespacedName, last *unstructured.Unstructured)
	keep    func(types.NamespacedName) bool // Which objects are kept; nil for all.

	mu     sync.RWMutex
	synced bool
	err    error // Of the last list.
	items  map[types.NamespacedName]*unstructured.Unstructured
}

func (v *view) get(name types.NamespacedName) (*unstructured.Unstructured, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.items[name], v.synced
}

// asked reports whether the hub has answered to the first list, be it with an error.
func (v *view) asked() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.synced || v.err != nil
}

// onError is told how a list went, and reports whether it is the first of several
// that fail.
func (v *view) onError(err error) (first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	first = err != nil && v.err == nil
	v.err = err
	return first
}

// drop forgets an object that is not kept any more.
func (v *view) drop(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.items, name)
}

// fetched keeps an object that was read, unless a newer one is known.
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

// Resync is called by the reflector; there is nothing to do.
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
