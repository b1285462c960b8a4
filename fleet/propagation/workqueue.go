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

	"refract.dev/fleet/member"
	"refract.dev/internal/rescue"
)

// Key names an object of the hub, and its copies, in all versions of its type.
type Key = member.Key

// workQueue is a queue of keys with its workers. At most one worker has a key at a time. Without due keys it has no
// goroutine: each member of a fleet has a queue, and most queues are idle.
type workQueue[K comparable] struct {
	do      func(context.Context, K, priority) (reconcile.Result, error)
	log     logr.Logger
	measure measures
	made    time.Time

	turn func(work string) // See [Options.Turn]; nil if it is not used.

	mu      sync.Mutex
	queue   queue[K]
	workers workers
	alarm   alarm // For the next key.
	over    bool  // Whether the queue has ended and ignores further keys.
}

// workers are the goroutines that work on keys: one for each due key, up to a limit.
type workers struct {
	// own is the queue's own number of workers. The limit may be higher; further workers are taken from the shared
	// ones.
	own, limit int
	shared     *spare // Nil where the limit does not change.

	spawn   func() // Starts a worker; nil before the start.
	running int
	waking  int // The running workers that are about to get a key.
	group   sync.WaitGroup
}

// wake starts workers for ready keys, up to the limit. Running workers that are about to get a key count as well.
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

// tooMany reports whether more workers are running than permitted now.
func (w *workers) tooMany() bool {
	return w.running > w.limit || w.running > w.own && w.shared.excess()
}

// end ends a running worker.
func (w *workers) end() {
	if w.running--; w.running >= w.own {
		w.shared.give()
	}
}

// alarm calls a function once, at the earliest time that was set.
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

// newWorkQueue returns a queue that has not started. Keys may be added before start. The name is the kind of work; for
// work on one cluster, a dash and the name of the cluster follow.
//
// The result of do decides whether the key is processed again. After success, the key comes again with its present
// priority after Result.RequeueAfter. After a failure or panic, the key comes again after a delay that doubles with
// each consecutive failure, unless the error is a reconcile.TerminalError. The other fields of the Result are ignored.
//
// It returns an error for a limit below one.
func newWorkQueue[K comparable](name string, limit int, log logr.Logger, do reconcile.TypedFunc[K]) (*workQueue[K], error) {
	return newPriorityQueue(name, limit, log, func(ctx context.Context, key K, _ priority) (reconcile.Result, error) { return do(ctx, key) })
}

// newPriorityQueue is [newWorkQueue] for a function that gets the priority of the key.
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

// priority orders due keys, so that recent changes do not wait for periodic checks.
type priority uint8

const (
	priorityCostly     priority = iota // The line of keys whose namespace has used much time, see [fair.Charges]. No key is added with it.
	priorityResync                     // Checked again: a restart, a cluster that came back.
	priorityDependency                 // A policy, a cluster or a copy changed.
	priorityChanged                    // The object itself changed.
	priorityRequired                   // Types that others need: namespaces, CustomResourceDefinitions.
)

// add makes the key due now, with this priority or its present one, whichever is higher.
func (w *workQueue[K]) add(key K, u priority) { w.enqueue(key, u, 0) }

// addAfter puts the key into the queue for a later time, unless the key is due earlier.
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

// start runs the workers until ctx ends, and waits for their end. It can be called once. Remaining and later keys are
// dropped.
func (w *workQueue[K]) start(ctx context.Context) error {
	ctx = ctrl.LoggerInto(ctx, w.log)
	defer depths.join(w.measure.kind, w.measure.cluster, w.depth)()
	w.mu.Lock()
	if w.turn = turnOf(ctx); w.turn != nil {
		w.queue.arrange(func(a, b K) bool { return fmt.Sprintf("%#v", a) < fmt.Sprintf("%#v", b) })
	}
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

// proceed starts workers for due keys, and sets the timer for the next key. The lock must be held.
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

// run works on keys until no key is due.
func (w *workQueue[K]) run(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		w.await("")
		w.workers.waking--
		if ctx.Err() != nil || w.workers.tooMany() {
			break
		}
		key, u, since, ok := w.queue.get()
		if !ok {
			break
		}
		if w.turn != nil {
			w.await(fmt.Sprintf("%s %s %#v", w.measure.kind, w.measure.cluster, key))
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

// await waits for the turn of some work, if turns are used. The lock must be held; await releases it while it waits.
func (w *workQueue[K]) await(work string) {
	if w.turn == nil {
		return
	}
	w.mu.Unlock()
	w.turn(work)
	w.mu.Lock()
}

// turnKey is the key of a context for [Options.Turn].
type turnKey struct{}

func turnOf(ctx context.Context) func(work string) {
	turn, _ := ctx.Value(turnKey{}).(func(string))
	return turn
}

// adapt calls limit, and sets the number of concurrent keys to the result. The arguments of limit are whether other
// keys wait, and the time since the queue was made. The number is never below the queue's own number of workers.
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
		w.measure.errors.Inc() // The recovery has logged the panic.
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

// size returns the number of keys, whether they are due, waiting or being worked on.
func (w *workQueue[K]) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue.items)
}

// depth returns the number of due keys.
func (w *workQueue[K]) depth() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.ready
}

// wanted returns the number of due keys without retries and costly keys.
func (w *workQueue[K]) wanted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.wanted
}

// now returns the time that has passed since the queue was made.
func (w *workQueue[K]) now() time.Duration { return time.Since(w.made) }
