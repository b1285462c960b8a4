package member

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"refract.dev/internal/reflector"
)

// watches keep the copies of the types that are watched up to date. They are safe for many goroutines.
type watches struct {
	member   string
	api      *connection
	decode   decoder
	observer observer

	mu  sync.Mutex
	all map[schema.GroupResource]*typeWatch // A type that was watched once is not taken out of it.
}

// typeWatch is a watch of the copies of one type. It is guarded by the lock of [watches].
type typeWatch struct {
	store *store
	stop  context.CancelFunc // Of the reflector.
	// resting is whether the reflector has ended as the member does not serve the type.
	resting bool
}

// store returns the copies of a type; nil if it is not watched.
func (w *watches) store(resource schema.GroupResource) *store {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.all[resource]; t != nil {
		return t.store
	}
	return nil
}

// stores returns those of all types, in no order.
func (w *watches) stores() []*store {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*store, 0, len(w.all))
	for _, t := range w.all {
		all = append(all, t.store)
	}
	return all
}

// anyRests reports whether a type is not watched as the member did not serve it.
func (w *watches) anyRests() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.all {
		if t.resting {
			return true
		}
	}
	return false
}

// watch is [Copies.Watch].
func (w *watches) watch(gvr schema.GroupVersionResource) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	resource := gvr.GroupResource()
	if t, ok := w.all[resource]; ok {
		if t.store.gvr == gvr || !apierrors.IsNotFound(t.store.listError()) {
			return t.store.synced
		}
		t.stop() // The member does not serve that version; perhaps it serves this one.
		t.store.end()
	}
	if w.api.closed() {
		return make(chan struct{}) // Nobody will list anything any more.
	}
	t := &typeWatch{store: newStore(gvr, w.api.limits, w.decode)}
	w.all[resource] = t
	w.start(t)
	return t.store.synced
}

// notify tells what is different about a copy.
func (w *watches) notify(key Key, d difference) {
	if d.content {
		w.observer.changed(key)
	}
	if d.readiness {
		w.observer.readied(key)
	}
}

// settle waits for watches that are just beginning, so that none begins after the connection was closed.
func (w *watches) settle() {
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // Nothing is to be done with it.
}

// start begins to list and watch. The lock must be held.
func (w *watches) start(t *typeWatch) {
	ctx, stop := context.WithCancel(w.api.lifetime.ctx)
	t.stop, t.resting = stop, false
	r := w.reflector(ctx, &reflected{ctx, t.store, w.notify, w.observer.listed, turn{turns: w.observer.turns, member: w.member}})
	w.api.lifetime.watches.Go(func() {
		if reflector.Run(ctx, r, pauses, pauses) {
			w.retire(ctx, t)
		}
	})
}

// reflector makes what keeps a store up to date. The context is that of its watches.
func (w *watches) reflector(ctx context.Context, r *reflected) *cache.Reflector {
	if hasStatus(r.store.gvr.GroupResource()) {
		return reflect(ctx, w, r, &received{}, w.api.whole)
	}
	return reflect(ctx, w, r, &metav1.PartialObjectMetadata{}, w.api.metadata)
}

func reflect[O metav1.Object, L runtime.Object](
	life context.Context, w *watches, r *reflected, kind runtime.Object, by *objectsClient[O, L],
) *cache.Reflector {
	gvr := r.store.gvr
	var next resumption
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return by.list(ctx, gvr, "", o)
	}
	return cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			found, err := r.list(life, list)
			if err = w.onError(life, r.store, "list", err); err != nil {
				return nil, err
			}
			return found, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (_ watch.Interface, err error) {
			defer r.turn.giveOn(&err)
			o.LabelSelector = managed
			lists := o.SendInitialEvents != nil && *o.SendInitialEvents
			if err := r.awaitWatch(ctx, &next, lists); err != nil {
				return nil, w.onError(life, r.store, "watch", err)
			}
			ctx, end := context.WithCancel(ctx)
			var goesOn atomic.Bool
			goesOn.Store(!lists)
			if err := r.store.beginWatch(end, &goesOn); err != nil {
				end()
				return nil, w.onError(life, r.store, "watch", err)
			}
			ctx, done := w.api.limits.account.begin(ctx) // For an answer that is no watch.
			defer done()
			events, err := by.watch(resumable(ctx, &goesOn), gvr, o)
			if lists && apierrors.IsInvalid(err) {
				return nil, brief(err) // The API server knows no watches that begin with a list: it is asked for one, and then it is known how that went.
			}
			told := w.onError(life, r.store, "watch", err)
			if lists || life.Err() != nil {
				return events, told
			}
			return next.begun(events, err, told)
		},
	}, kind, r, cache.ReflectorOptions{
		Name:            w.member + "/" + gvr.String(),
		TypeDescription: gvr.String(),
		Backoff:         &pauses,
	})
}

// onError records how a list or watch went, unless that has ended meanwhile, and returns the error
// to fail with.
func (w *watches) onError(life context.Context, s *store, verb string, err error) error {
	resource := s.gvr.GroupResource()
	err = brief(w.api.unserved(life, s.gvr, err))
	if life.Err() != nil {
		return err
	}
	s.onError(err)
	if err != nil {
		w.observer.listed(resource, apierrors.IsNotFound(err)) // A type that is not served has no copies.
	}
	w.api.rights.note(action{verb, resource, ""}, err)
	if apierrors.IsNotFound(err) {
		// What is not there is not listed and not watched: neither right is missing.
		w.api.rights.granted(action{"list", resource, ""})
		w.api.rights.granted(action{"watch", resource, ""})
	}
	return err
}

// watchRetry is the longest that a watch that failed rests. The default of half a
// minute would have what happened on a member that was away for seconds go unseen
// for as long.
const watchRetry = 5 * time.Second

// pauses are those between attempts at a watch that fails.
var pauses = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: watchRetry}

// retire ends that a type is watched which the member does not serve. [watches.resume] begins
// it again: the member is asked for its types until then.
func (w *watches) retire(ctx context.Context, t *typeWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // The member leaves, or the type is watched in another way by now.
	}
	t.stop()
	t.resting = true
	if t.store.onUnserved() {
		w.decode.log.Info("The cluster does not serve a type of which it has, or is to have, copies; it is watched when the cluster serves it again",
			"type", t.store.gvr.GroupResource().String())
	}
}

// resume watches a type that the member serves, be it in another version, if it rested.
func (w *watches) resume(gvr schema.GroupVersionResource) {
	w.mu.Lock()
	t := w.all[gvr.GroupResource()]
	rested := t != nil && t.resting
	if rested && t.store.gvr == gvr && !w.api.closed() {
		t.store.onServed()
		w.start(t)
	}
	w.mu.Unlock()
	if rested && t.store.gvr != gvr {
		w.watch(gvr)
	}
}

// again lists and watches a type at once that was to be tried again some time, unless the store is that of a watch before.
func (w *watches) again(s *store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.all[s.gvr.GroupResource()]; t != nil && t.store == s && !w.api.closed() {
		t.stop()
		w.start(t)
	}
}
