// Package lookup finds objects by name for admission webhooks that refuse what refers to
// something which is not there.
//
// An informer answers from memory, but knows the past: nothing before it has synced, and
// for a moment nothing of what was just created. [Finder] says that an object is not there
// only after the API server has said so.
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

	"refract.dev/webhook/admission"
)

// ErrNotSynced is wrapped by what a [Finder] returns before the informer knows what there
// is.
var ErrNotSynced = errors.New("informers not ready")

// Informers are a cache that says whether it has synced, as cache.Cache does.
type Informers interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Live reads from the API server, as the API reader of a manager does. A cache would make
// a [Finder] useless.
type Live interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

// How much a storm of names that do not exist costs an API server: so many reads a second
// by one Finder, after so many at once, and never two of one object at the same time.
const (
	readsPerSecond = 50
	readsAtOnce    = 100
	// patience is how long a call may take, with its wait for its turn, for the read under way
	// and for its own. The default timeout of a webhook is 10 seconds.
	patience = 5 * time.Second
)

// Finder finds objects of the type T by name. It is safe for concurrent use.
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

// New returns a Finder, for instance New[corev1.ConfigMap](cache, reader). The cache must
// be started by the caller; its informer of T is made on the first call of a method.
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

// Get returns an object, which is the caller's own; the namespace is empty for what is
// cluster-scoped. What the informer has is returned as it has it, and so may have been
// changed or deleted a moment ago.
//
// What the informer does not have is read from the API server, also what it cannot have, as
// it is in a namespace that the cache does not watch. The error is one that
// apierrors.IsNotFound knows only if such a read, which began after Get was called, did not
// find the object. Every other error is [admission.Unavailable]: nothing is known of the
// object, and nothing is to be denied because of it. It wraps [ErrNotSynced] if the
// informer has not synced yet; nothing is read then.
//
// Reads are shared: however many ask for one object, there is one read of it at a time. All
// reads of a Finder are 50 a second at most, after 100 at once. Get returns after 5 seconds
// at most, or when the context ends: who would have to wait longer is told that the answer
// is unavailable.
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

// Ready returns [ErrNotSynced], or why there is no informer, until Get has answers. It does
// not wait.
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

// reads are those of one object: the one under way, and the one after it for those who
// asked when it had begun, as it may have missed what they know of.
type reads[T any] struct{ now, next *read[T] }

type read[T any] struct {
	done   chan struct{}
	object *T // Shared by those who wait.
	err    error
}

// read asks the API server.
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
		return nil, fmt.Errorf("a copy of %s is none", f.kind())
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
		// It does not end with the one who asked first: others wait for it.
		go f.run(context.WithoutCancel(ctx), key, of)
		return of.now
	}
	if of.next == nil {
		of.next = &read[T]{done: make(chan struct{})}
	}
	return of.next
}

// run reads until nobody waits for another read.
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
