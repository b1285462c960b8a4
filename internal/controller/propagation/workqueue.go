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
	do      func(context.Context, K, priority) (reconcile.Result, error)
	log     logr.Logger
	measure measures
	made    time.Time

	mu      sync.Mutex
	queue   queue[K]
	workers workers
	alarm   alarm // For the key that is due next.
	over    bool  // Nothing is taken up any more.
}

// workers are the goroutines that work on keys: as many as there are keys that are due, up to a limit.
type workers struct {
	// own are those that the queue has for itself. The limit may be higher: those beyond are taken from what all
	// queues share.
	own, limit int
	shared     *spare // Nil where the limit does not change.

	spawn   func() // Starts one; nil before the start.
	running int
	waking  int // Those of them that are about to look for a key.
	group   sync.WaitGroup
}

// wake sees to it that each key that is ready has a worker that is about to look for one, if there may be so many.
func (w *workers) wake(ready int) {
	for w.running < w.limit && w.waking < ready {
		if w.running >= w.own && !w.shared.take() {
			return
		}
		w.running++
		w.waking++
		w.spawn()
	}
}

// tooMany reports whether more run than may by now.
func (w *workers) tooMany() bool {
	return w.running > w.limit || w.running > w.own && w.shared.excess()
}

// end has one end that runs.
func (w *workers) end() {
	if w.running--; w.running >= w.own {
		w.shared.give()
	}
}

// alarm rings once, at the earliest time that it was set for.
type alarm struct {
	timer *time.Timer
	at    time.Duration
	set   bool
}

func (a *alarm) ringAt(at, now time.Duration, ring func()) {
	if a.set && a.at <= at {
		return
	}
	a.at, a.set = at, true
	if a.timer == nil {
		a.timer = time.AfterFunc(at-now, ring)
		return
	}
	a.timer.Reset(at - now)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// newWorkQueue returns work that is not begun; start begins it. Keys may be added
// before that. The name is that of a kind of work, followed for work on one cluster
// by a dash and its name.
//
// What do returns decides on the key: it comes again with the priority that it had
// after Result.RequeueAfter, or, if it failed or panicked, after a time that doubles
// with each failure in a row, unless the error is a reconcile.TerminalError. The other
// fields of the Result mean nothing.
func newWorkQueue[K comparable](name string, limit int, log logr.Logger, do reconcile.TypedFunc[K]) (*workQueue[K], error) {
	return newPriorityQueue(name, limit, log, func(ctx context.Context, key K, _ priority) (reconcile.Result, error) { return do(ctx, key) })
}

// newPriorityQueue is newWorkQueue for who has to know with which priority a key came.
func newPriorityQueue[K comparable](
	name string, limit int, log logr.Logger, do func(context.Context, K, priority) (reconcile.Result, error),
) (*workQueue[K], error) {
	if limit < 1 {
		return nil, fmt.Errorf("queue %s: want at least one worker, got %d", name, limit)
	}
	kind, cluster, _ := strings.Cut(name, "-")
	return &workQueue[K]{
		do: do, log: log.WithValues("queue", kind), measure: measuresOf(kind, cluster), made: time.Now(), workers: workers{own: limit, limit: limit},
	}, nil
}

// priority orders what waits: what somebody has just changed is not to wait for what
// is looked at once more.
type priority uint8

const (
	priorityCostly     priority = iota // The line of those for whom much has been done, see [fair.Charges], whatever their priority is.
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
	defer depths.join(w.measure.kind, w.measure.cluster, w.depth)()
	w.mu.Lock()
	w.workers.spawn = func() { w.workers.group.Go(func() { w.run(ctx) }) }
	w.proceed(w.now())
	w.mu.Unlock()

	<-ctx.Done()
	w.mu.Lock()
	w.over = true
	w.alarm.stop()
	w.mu.Unlock()
	w.workers.group.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue[K]{}
	return nil
}

// proceed sees to it that there are workers for what is due, and a timer for what
// is due next. The lock must be held.
func (w *workQueue[K]) proceed(now time.Duration) {
	if w.workers.spawn == nil || w.over {
		return
	}
	w.queue.promote(now)
	w.workers.wake(w.queue.ready)
	if next, ok := w.queue.next(); ok {
		w.alarm.ringAt(next, now, w.ring)
	}
}

// ring is called when a key may be due.
func (w *workQueue[K]) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm.set = false
	w.proceed(w.now())
}

// run works on keys until none is due.
func (w *workQueue[K]) run(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		w.workers.waking--
		if ctx.Err() != nil || w.workers.tooMany() {
			break
		}
		key, u, since, ok := w.queue.get()
		if !ok {
			break
		}
		w.mu.Unlock()
		began := w.now()
		w.measure.waited.Observe((began - since).Seconds())
		o := w.try(ctx, key, u)
		now := w.now()
		w.measure.worked.Observe((now - began).Seconds())
		w.mu.Lock()
		w.queue.finish(key, u, o, now)
		w.workers.waking++
		w.proceed(now)
	}
	w.workers.end()
}

// adapt has as many keys worked on at a time as a function says that is told whether others wait, and when that is. It
// never has fewer than the queue was made with.
func (w *workQueue[K]) adapt(limit func(waiting bool, now time.Duration) int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workers.limit = max(limit(w.queue.ready > 0, w.now()), w.workers.own)
}

// try works on one key.
func (w *workQueue[K]) try(ctx context.Context, key K, u priority) outcome {
	result, err := w.rescued(ctx, key, u)
	switch {
	case err == nil:
		return outcome{after: result.RequeueAfter}
	case rescue.Is(err):
		w.measure.errors.Inc() // It is logged where it was rescued.
		return outcome{failed: true}
	case errors.Is(err, reconcile.TerminalError(nil)):
		w.measure.errors.Inc()
		w.log.Error(err, "Reconciler error; the key is not tried again", "key", key)
		return outcome{}
	default:
		w.measure.errors.Inc()
		w.log.Error(err, "Reconciler error; the key is tried again", "key", key)
		return outcome{failed: true}
	}
}

func (w *workQueue[K]) rescued(ctx context.Context, key K, u priority) (_ reconcile.Result, err error) {
	defer rescue.To(&err, w.log, w.measure.kind, "key", key)
	return w.do(ctx, key, u)
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

// wanted returns how many keys are due, but for those that come again by themselves, and for those for whom much has been done.
func (w *workQueue[K]) wanted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.wanted
}

// now is the time of the queue.
func (w *workQueue[K]) now() time.Duration { return time.Since(w.made) }
