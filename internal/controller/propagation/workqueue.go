package propagation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/internal/member"
	"refract.dev/internal/rescue"
)

// Key names an object of the hub, and its copies, whatever the version of its
// type.
type Key = member.Key

// workQueue is a queue of keys and the workers on it. A key is worked on by one
// worker at a time. Nothing runs for keys that nobody waits for: there is one for
// each member of a fleet, and most of them have nothing to do.
type workQueue[K comparable] struct {
	do      reconcile.TypedFunc[K]
	log     logr.Logger
	limit   int // Of workers.
	kind    string
	cluster string
	measure measures
	made    time.Time

	mu       sync.Mutex
	queue    queue[K]
	spawn    func() // Starts a worker; nil before the start.
	over     bool   // Nothing is taken up any more.
	running  int    // Workers.
	waking   int    // Those of them that are about to look for a key.
	workers  sync.WaitGroup
	timer    *time.Timer
	alarm    time.Duration // When the timer rings.
	alarming bool          // Whether it will.
}

// newWorkQueue returns work that is not begun; start begins it. Keys may be added
// before that. The name is that of a kind of work, followed for work on one cluster
// by a dash and its name.
//
// What do returns decides on the key: it comes again with the priority that it had
// after Result.RequeueAfter, or, if it failed or panicked, after a time that doubles
// with each failure in a row, unless the error is a reconcile.TerminalError. The other
// fields of the Result mean nothing.
func newWorkQueue[K comparable](name string, workers int, log logr.Logger, do reconcile.TypedFunc[K]) (*workQueue[K], error) {
	if workers < 1 {
		return nil, fmt.Errorf("queue %s: want at least one worker, got %d", name, workers)
	}
	kind, cluster, _ := strings.Cut(name, "-")
	return &workQueue[K]{
		do: do, log: log.WithValues("queue", kind), limit: workers,
		kind: kind, cluster: cluster, measure: measuresOf(kind), made: time.Now(),
	}, nil
}

// priority orders what waits: what somebody has just changed is not to wait for what
// is looked at once more.
type priority uint8

const (
	priorityCostly     priority = iota // Of those for whom much has been done: see [fair.Charges].
	priorityResync                     // Looked at again: a restart, a cluster that came back.
	priorityDependency                 // A policy, a cluster or a copy changed.
	priorityChanged                    // The object itself changed.
	priorityRequired                   // What others need: namespaces, CustomResourceDefinitions.
)

// add puts the key into the queue unless it is there. If it waits for a later time
// it waits no more, and if it is there with less priority it gets this one.
func (w *workQueue[K]) add(key K, u priority) { w.enqueue(key, u, 0) }

// addAfter puts the key into the queue when the time has passed, unless it comes
// into it earlier.
func (w *workQueue[K]) addAfter(key K, d time.Duration) { w.enqueue(key, priorityResync, d) }

func (w *workQueue[K]) enqueue(key K, u priority, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	now := w.now()
	w.queue.add(key, u, now+max(d, 0), now)
	w.proceed(now)
}

// start has the keys worked on until ctx ends, and waits for the workers. It can be
// called once; keys that are left, or are added later, are dropped.
func (w *workQueue[K]) start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, w.log)
	defer depths.join(w.kind, w.cluster, w.depth)()
	w.mu.Lock()
	w.spawn = func() { w.workers.Go(func() { w.run(ctx) }) }
	w.proceed(w.now())
	w.mu.Unlock()

	<-ctx.Done()
	w.mu.Lock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	w.workers.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue[K]{}
	return nil
}

// proceed sees to it that there are workers for what is due, and a timer for what
// is due next. The lock must be held.
func (w *workQueue[K]) proceed(now time.Duration) {
	if w.spawn == nil || w.over {
		return
	}
	w.queue.promote(now)
	for w.running < w.limit && w.waking < w.queue.ready {
		w.running++
		w.waking++
		w.spawn()
	}
	next, ok := w.queue.next()
	if !ok || (w.alarming && w.alarm <= next) {
		return
	}
	w.alarm, w.alarming = next, true
	if w.timer == nil {
		w.timer = time.AfterFunc(next-now, w.ring)
		return
	}
	w.timer.Reset(next - now)
}

// ring is called when a key may be due.
func (w *workQueue[K]) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarming = false
	w.proceed(w.now())
}

// run works on keys until none is due.
func (w *workQueue[K]) run(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		w.waking--
		if ctx.Err() != nil {
			break
		}
		key, u, since, ok := w.queue.get()
		if !ok {
			break
		}
		w.mu.Unlock()
		began := w.now()
		w.measure.waited.Observe((began - since).Seconds())
		o := w.try(ctx, key)
		now := w.now()
		w.measure.worked.Observe((now - began).Seconds())
		w.mu.Lock()
		w.queue.finish(key, u, o, now)
		w.waking++
		w.proceed(now)
	}
	w.running--
}

// try works on one key.
func (w *workQueue[K]) try(ctx context.Context, key K) outcome {
	result, err := w.rescued(ctx, key)
	switch {
	case err == nil:
		return outcome{after: result.RequeueAfter}
	case rescue.Is(err):
		w.measure.errors.Inc() // It is logged where it was rescued.
		return outcome{failed: true}
	case errors.Is(err, reconcile.TerminalError(nil)):
		w.measure.errors.Inc()
		w.log.Error(err, "Work on a key failed for good", "key", key)
		return outcome{}
	default:
		w.measure.errors.Inc()
		w.log.Error(err, "Work on a key failed; it is tried again", "key", key)
		return outcome{failed: true}
	}
}

func (w *workQueue[K]) rescued(ctx context.Context, key K) (_ reconcile.Result, err error) {
	defer rescue.To(&err, w.log, w.kind, "key", key)
	return w.do(ctx, key)
}

// size returns how many keys there are, due or not, those that are worked on included.
func (w *workQueue[K]) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.items.count
}

// depth returns how many keys are due.
func (w *workQueue[K]) depth() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.ready
}

// now is the time of the queue.
func (w *workQueue[K]) now() time.Duration { return time.Since(w.made) }
