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

// watches keep the copies of the watched types up to date. They are safe for concurrent use.
type watches struct {
	member   string
	api      *connection
	decode   decoder
	observer observer

	mu  sync.Mutex
	all map[schema.GroupResource]*typeWatch // Watched types are never removed.
}

// typeWatch is the watch of the copies of one type. The lock of [watches] guards it.
type typeWatch struct {
	store *store
	stop  context.CancelFunc // Stops the reflector.
	// resting is whether the reflector has ended because the member does not serve the type.
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

// stores returns the copies of all types, in no order.
func (w *watches) stores() []*store {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*store, 0, len(w.all))
	for _, t := range w.all {
		all = append(all, t.store)
	}
	return all
}

// anyRests reports whether the watch of a type has ended because the member did not serve the type.
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
		t.stop() // The member does not serve that version, but perhaps this one.
		t.store.end()
	}
	if w.api.closed() {
		return make(chan struct{}) // No list follows, because the connection is closed.
	}
	t := &typeWatch{store: newStore(gvr, w.api.limits, w.decode)}
	w.all[resource] = t
	w.start(t)
	return t.store.synced
}

// notify reports a difference of a copy.
func (w *watches) notify(key Key, d difference) {
	if d.content {
		w.observer.changed(key)
	}
	if d.readiness {
		w.observer.readied(key)
	}
}

// settle waits for watches that are about to begin, so that no watch begins after the connection is closed.
func (w *watches) settle() {
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // The lock is only taken to wait.
}

// start begins to list and watch. The lock must be held.
func (w *watches) start(t *typeWatch) {
	ctx, stop := context.WithCancel(w.api.lifetime.ctx)
	t.stop, t.resting = stop, false
	r := w.reflector(ctx, &reflected{ctx, t.store, w.notify, w.observer.listed, turn{turns: w.observer.turns, member: w.member}})
	w.api.lifetime.watches.Go(func() {
		if reflector.Run(ctx, w.member+"/"+t.store.gvr.String(), r, pauses, pauses) {
			w.retire(ctx, t)
		}
	})
}

// reflector returns the reflector that keeps a store up to date. Ctx is the context of its watches.
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
			ctx, done := w.api.limits.account.begin(ctx) // The answer to a failed request for a watch counts like any other answer.
			defer done()
			events, err := by.watch(resumable(ctx, &goesOn, &w.api.broke), gvr, o)
			if lists && apierrors.IsInvalid(err) {
				return nil, brief(err) // The API server does not support watches that begin with a list. The reflector lists next, and reports that result.
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

// onError records the result of a list or watch, unless its context has ended. It returns the error for the reflector.
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
		// A type that is not served needs no right to list or watch it.
		w.api.rights.granted(action{"list", resource, ""})
		w.api.rights.granted(action{"watch", resource, ""})
	}
	return err
}

// watchRetry is the longest pause after a failed watch. With the default of half a minute, changes on a member would
// stay unseen that long after an outage of seconds.
const watchRetry = 5 * time.Second

// pauses are the pauses between the attempts of a failing watch.
var pauses = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 50, Cap: watchRetry}

// retire ends the watch of a type that the member does not serve. Until [watches.resume] begins it again, the types of
// the member are discovered regularly.
func (w *watches) retire(ctx context.Context, t *typeWatch) {
	w.mu.Lock()
	over := ctx.Err() != nil // The member has left, or another watch of the type has begun.
	first := !over && t.store.onUnserved()
	if !over {
		t.stop()
		t.resting = true
	}
	w.mu.Unlock()
	if !first {
		return
	}
	w.decode.log.Info("The cluster does not serve the type of some copies; Refract watches the type when the cluster serves it again",
		"type", t.store.gvr.GroupResource().String())
	t.store.each(func(key Key, _ Copy) bool { // All decisions that depend on these copies are made again, as at the end of a watch.
		w.observer.changed(key)
		return true
	})
}

// resume watches a type again if its watch has ended. The member serves the type now, possibly in another version.
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

// again lists and watches a type without delay, unless the store belongs to an earlier watch.
func (w *watches) again(s *store) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.all[s.gvr.GroupResource()]; t != nil && t.store == s && !w.api.closed() {
		t.stop()
		w.start(t)
	}
}
