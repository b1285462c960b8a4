package propagation

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/internal/member"
)

// Key names an object of the hub, and its copies, whatever the version of its
// type.
type Key = member.Key

// work is a queue of keys and the workers on it. A key is worked on by one
// worker at a time.
type work[K comparable] struct {
	queue   priorityqueue.PriorityQueue[K]
	workers controller.TypedController[K]
}

// newWork returns work that is not begun; Start begins it. Keys may be added
// before that.
func newWork[K comparable](name string, workers int, log logr.Logger, do reconcile.TypedFunc[K]) (*work[K], error) {
	w := &work[K]{queue: priorityqueue.New[K](name)}
	skip := true // One member may come, go and come again under one name.
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[K]{
		MaxConcurrentReconciles: workers,
		SkipNameValidation:      &skip,
		Reconciler:              do,
		LogConstructor: func(key *K) logr.Logger {
			if key == nil {
				return log
			}
			return log.WithValues("key", *key)
		},
		NewQueue: func(string, workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] { return w.queue },
	})
	if err != nil {
		return nil, err
	}
	w.workers = c
	return w, nil
}

// urgency orders what waits: what somebody has just changed is not to wait for what
// is looked at once more.
type urgency int

const (
	resync urgency = 0  // Looked at again: a restart, a cluster that came back.
	ripple urgency = 10 // A policy, a cluster or a copy changed.
	fresh  urgency = 20 // The object itself changed.
	first  urgency = 30 // What others need: namespaces, CustomResourceDefinitions.
)

// add puts the key into the queue unless it is there.
func (w *work[K]) add(key K, u urgency) {
	priority := int(u)
	w.queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, key)
}

// addAfter puts the key into the queue when the time has passed, unless it comes
// into it earlier.
func (w *work[K]) addAfter(key K, d time.Duration) {
	w.queue.AddWithOpts(priorityqueue.AddOpts{After: d}, key)
}

// start runs the workers until ctx ends, and waits for them.
func (w *work[K]) start(ctx context.Context) error { return w.workers.Start(ctx) }
