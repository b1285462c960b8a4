// Package lookup finds objects by name, for admission webhooks that reject references to missing objects.
//
// An informer answers from memory, but its memory is late: it is empty until the informer has synced, and misses
// objects that were created a moment ago. [Finder] reports an object as missing only after the API server has said so.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/kit/webhook/admission"
)

// ErrNotSynced is wrapped by the errors that a [Finder] returns before its informer has synced.
var ErrNotSynced = errors.New("informers not ready")

// Informers are a cache that reports whether it has synced, such as cache.Cache.
type Informers interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Live reads from the API server, such as the API reader of a manager. It must not be a cache, because then a [Finder]
// would report objects as missing that the cache does not have yet.
type Live interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// Limits of the reads of one Finder, so that many names of missing objects do not overload the API server: a burst of
// readsAtOnce, then readsPerSecond. Two reads of the same object never run at the same time.
const (
	readsPerSecond = 50
	readsAtOnce    = 100
	// patience is the limit of a call, including the waits for its turn, for the running read of the same object and
	// for its own read. The default timeout of a webhook is 10 seconds.
	patience = 5 * time.Second
)

// Finder finds objects of type T by name. It is safe for concurrent use.
type Finder[T any, PT interface {
	*T
	client.Object
}] struct {
	informers Informers
	live      Live
	patience  time.Duration
	turns     interface {
		Wait(ctx context.Context) error
	}

	mu    sync.Mutex
	reads map[types.NamespacedName]*reads[T]
}

// New returns a Finder, for example New[corev1.ConfigMap](cache, reader). The caller starts the cache. The first call
// of a method creates its informer of T.
func New[T any, PT interface {
	*T
	client.Object
}](informers Informers, live Live) *Finder[T, PT] {
	return &Finder[T, PT]{
		informers: informers, live: live, patience: patience,
		turns: flowcontrol.NewTokenBucketRateLimiter(readsPerSecond, readsAtOnce),
		reads: map[types.NamespacedName]*reads[T]{},
	}
}

// Get returns an object, which the caller owns. The namespace is empty for cluster-scoped objects. An object from the
// informer may be out of date: it may have been changed or deleted a moment ago.
//
// Get reads an object from the API server if the informer does not have it. This includes objects in namespaces that
// the cache does not watch. The error is a NotFound error, see apierrors.IsNotFound, only if a read that began after
// the call of Get did not find the object. Every other error is [admission.Unavailable]: the object may exist, so the
// webhook must not deny the request because of it. If the informer has not synced yet, Get does not read, and the error
// wraps [ErrNotSynced].
//
// Calls share reads: at most one read of the same object runs at a time. All reads of a Finder together are limited to
// 50 a second, after a burst of 100. Get returns after at most 5 seconds, or when the context ends, and then with an
// Unavailable error.
func (f *Finder[T, PT]) Get(ctx context.Context, namespace, name string) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	if err := f.synced(ctx); err != nil {
		return nil, admission.Unavailable(err)
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	out := new(T)
	if err := f.informers.Get(ctx, key, PT(out)); err == nil {
		return out, nil
	}
	out, err := f.read(ctx, key)
	switch {
	case err == nil:
		return out, nil
	case apierrors.IsNotFound(err):
		return nil, err
	default:
		return nil, admission.Unavailable(fmt.Errorf("looking up %s %q: %w", f.kind(), shown(key), err))
	}
}

// Ready returns nil once Get can answer. Until then it returns [ErrNotSynced], or the reason that there is no informer.
// It does not wait.
func (f *Finder[T, PT]) Ready() error { return f.synced(context.Background()) }

func (f *Finder[T, PT]) synced(ctx context.Context) error {
	informer, err := f.informers.GetInformer(ctx, PT(new(T)), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("getting the informer of %s: %w", f.kind(), err)
	}
	if !informer.HasSynced() {
		return ErrNotSynced
	}
	return nil
}

func (f *Finder[T, PT]) kind() string { return reflect.TypeFor[T]().Name() }

func shown(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// reads are the reads of one object. A call that arrives after now has begun joins next, because now may miss an object
// that the caller knows of.
type reads[T any] struct{ now, next *read[T] }

type read[T any] struct {
	done   chan struct{}
	object *T // Shared by all callers that wait for the read.
	err    error
}

// read reads the object from the API server, and returns a copy for the caller.
func (f *Finder[T, PT]) read(ctx context.Context, key types.NamespacedName) (*T, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := f.join(ctx, key)
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.err != nil {
		return nil, r.err
	}
	own, ok := PT(r.object).DeepCopyObject().(PT)
	if !ok {
		return nil, fmt.Errorf("a copy of %s has another type", f.kind())
	}
	return own, nil
}

// join returns a read that has not begun yet.
func (f *Finder[T, PT]) join(ctx context.Context, key types.NamespacedName) *read[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.reads[key]
	if of == nil {
		of = &reads[T]{now: &read[T]{done: make(chan struct{})}}
		f.reads[key] = of
		// The read does not end with its first caller, because other callers wait for it.
		go f.run(context.WithoutCancel(ctx), key, of)
		return of.now
	}
	if of.next == nil {
		of.next = &read[T]{done: make(chan struct{})}
	}
	return of.next
}

// run reads until no caller waits for another read.
func (f *Finder[T, PT]) run(ctx context.Context, key types.NamespacedName, of *reads[T]) {
	for r := of.now; r != nil; r = f.following(key, of) {
		r.object, r.err = f.ask(ctx, key)
		close(r.done)
	}
}

func (f *Finder[T, PT]) following(key types.NamespacedName, of *reads[T]) *read[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	of.now, of.next = of.next, nil
	if of.now == nil {
		delete(f.reads, key)
	}
	return of.now
}

func (f *Finder[T, PT]) ask(ctx context.Context, key types.NamespacedName) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	if err := f.turns.Wait(ctx); err != nil {
		return nil, fmt.Errorf("waiting for a turn to read: %w", err)
	}
	out := new(T)
	if err := f.live.Get(ctx, key, PT(out)); err != nil {
		return nil, err
	}
	return out, nil
}
