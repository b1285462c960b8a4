package propagation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var discard = logr.Discard()

// begin starts work for the length of a test. The returned function ends it and waits.
func begin[K comparable](t *testing.T, w *workQueue[K]) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := w.start(ctx); err != nil {
			t.Errorf("start(): %v", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func queueOf(t *testing.T, workers int, do reconcile.TypedFunc[string]) *workQueue[string] {
	t.Helper()
	w, err := newWorkQueue("test", workers, discard, do)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestQueueNeedsWorkers(t *testing.T) {
	if _, err := newWorkQueue[string]("test", 0, discard, nil); err == nil {
		t.Error("newWork(0 workers): want an error")
	}
}

func TestQueueTimes(t *testing.T) {
	type run struct {
		Key string
		At  time.Duration
	}
	cases := map[string]struct {
		reason string
		ask    func(w *workQueue[string])
		do     func(key string, nth int) (reconcile.Result, error)
		want   []run
	}{
		"BeforeTheStart": {
			reason: "Keys from before the start are worked on, the urgent ones first.",
			ask: func(w *workQueue[string]) {
				w.add("a", priorityResync)
				w.add("b", priorityRequired)
				w.add("b", priorityResync)
			},
			want: []run{{"b", 0}, {"a", 0}},
		},
		"After": {
			reason: "A delayed key waits. The earliest time counts, in whatever order the calls come.",
			ask: func(w *workQueue[string]) {
				w.addAfter("a", 3*time.Second)
				w.addAfter("b", 2*time.Second)
				w.addAfter("a", time.Second)
				w.addAfter("b", 5*time.Second)
				w.addAfter("c", 0)
				w.addAfter("d", -time.Second)
			},
			want: []run{{"c", 0}, {"d", 0}, {"a", time.Second}, {"b", 2 * time.Second}},
		},
		"BroughtForward": {
			reason: "A delayed key that is added for now is worked on at once, and only then.",
			ask: func(w *workQueue[string]) {
				w.addAfter("a", time.Second)
				w.add("a", priorityResync)
			},
			want: []run{{"a", 0}},
		},
		"AgainAfter": {
			reason: "A key comes again if the work requests it.",
			ask:    func(w *workQueue[string]) { w.add("a", priorityChanged) },
			do: func(_ string, nth int) (reconcile.Result, error) {
				return reconcile.Result{RequeueAfter: []time.Duration{time.Minute, time.Hour, 0}[nth]}, nil
			},
			want: []run{{"a", 0}, {"a", time.Minute}, {"a", time.Minute + time.Hour}},
		},
		"Failed": {
			reason: "A failed key is tried again, later each time.",
			ask:    func(w *workQueue[string]) { w.add("a", priorityChanged) },
			do: func(_ string, nth int) (reconcile.Result, error) {
				if nth < 3 {
					return reconcile.Result{RequeueAfter: time.Hour}, errors.New("no")
				}
				return reconcile.Result{}, nil
			},
			want: []run{{"a", 0}, {"a", 5 * time.Millisecond}, {"a", 15 * time.Millisecond}, {"a", 35 * time.Millisecond}},
		},
		"FailedForGood": {
			reason: "A key with a terminal error is not tried again.",
			ask:    func(w *workQueue[string]) { w.add("a", priorityChanged) },
			do: func(string, int) (reconcile.Result, error) {
				return reconcile.Result{}, reconcile.TerminalError(errors.New("never"))
			},
			want: []run{{"a", 0}},
		},
		"Panicked": {
			reason: "A panic counts as an error, and the other keys go on.",
			ask: func(w *workQueue[string]) {
				w.add("a", priorityChanged)
				w.add("b", priorityChanged)
			},
			do: func(key string, nth int) (reconcile.Result, error) {
				if key == "a" && nth == 0 {
					panic("oh")
				}
				return reconcile.Result{}, nil
			},
			want: []run{{"a", 0}, {"b", 0}, {"a", 5 * time.Millisecond}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []run
				times := map[string]int{}
				var begun time.Time
				w := queueOf(t, 1, func(_ context.Context, key string) (reconcile.Result, error) {
					got = append(got, run{key, time.Since(begun)})
					nth := times[key]
					times[key]++
					if tc.do == nil {
						return reconcile.Result{}, nil
					}
					return tc.do(key, nth)
				})
				begun = time.Now()
				tc.ask(w)
				end := begin(t, w)
				time.Sleep(2 * time.Hour) //nolint:forbidigo // Fake time in the synctest bubble.
				end()
				if diff := gocmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestQueueOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		gate := make(chan struct{})
		w := queueOf(t, 4, func(context.Context, string) (reconcile.Result, error) {
			runs.Add(1)
			<-gate
			return reconcile.Result{}, nil
		})
		end := begin(t, w)
		w.add("a", priorityChanged)
		synctest.Wait()
		for range 10 {
			w.add("a", priorityChanged)
			w.addAfter("a", time.Millisecond)
		}
		synctest.Wait()
		if got := runs.Load(); got != 1 {
			t.Errorf("%d workers have the same key", got)
		}
		gate <- struct{}{}
		synctest.Wait()
		if got := runs.Load(); got != 2 {
			t.Errorf("a key that was added during the work must be worked on once more: %d runs, want 2", got)
		}
		gate <- struct{}{}
		synctest.Wait()
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs, want 2", got)
		}
		end()
	})
}

func TestQueueWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		var at, most atomic.Int32
		w := queueOf(t, limit, func(context.Context, string) (reconcile.Result, error) {
			most.Store(max(most.Load(), at.Add(1)))
			time.Sleep(time.Second) //nolint:forbidigo // Fake time in the synctest bubble.
			at.Add(-1)
			return reconcile.Result{}, nil
		})
		end := begin(t, w)
		workers := func() int {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.workers.waking != 0 {
				t.Errorf("%d workers are waking without due keys", w.workers.waking)
			}
			return w.workers.running
		}
		if got := workers(); got != 0 {
			t.Errorf("an idle queue has %d workers, want 0", got)
		}
		w.add("x", priorityChanged)
		if got := workers(); got != 1 {
			t.Errorf("%d workers for one key, want 1", got)
		}
		for i := range 30 {
			w.add(fmt.Sprint(i), priorityChanged)
		}
		if got := workers(); got != limit || int(most.Load()) != limit {
			t.Errorf("%d workers for many keys, want %d", got, limit)
		}
		time.Sleep(time.Minute) //nolint:forbidigo // Fake time in the synctest bubble.
		if got := workers(); got != 0 || int(most.Load()) != limit {
			t.Errorf("%d workers when all is done, want 0; %d at most, want %d", got, most.Load(), limit)
		}
		end()
	})
}

func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		w := queueOf(t, 1, func(ctx context.Context, _ string) (reconcile.Result, error) {
			runs.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) //nolint:forbidigo // Fake time in the synctest bubble.
			return reconcile.Result{}, errors.New("interrupted")
		})
		end := begin(t, w)
		w.add("a", priorityChanged)
		w.add("b", priorityChanged)
		w.addAfter("c", time.Minute)
		synctest.Wait()
		begun := time.Now()
		end()
		if took := time.Since(begun); took != time.Second {
			t.Errorf("start() returned after %v; want it to wait for the work in flight, 1s", took)
		}
		w.add("d", priorityChanged)
		w.addAfter("e", time.Second)
		time.Sleep(time.Hour) //nolint:forbidigo // Fake time in the synctest bubble.
		if got := runs.Load(); got != 1 {
			t.Errorf("%d runs, want 1: no work begins after the end", got)
		}
		if len(w.queue.items) != 0 {
			t.Errorf("%d keys are kept after the end", len(w.queue.items))
		}
	})
}

func TestQueueLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		var runs int
		w, err := newWorkQueue("apply-eu-1", 1, log, func(ctx context.Context, _ string) (reconcile.Result, error) {
			if _, err := logr.FromContext(ctx); err != nil {
				t.Errorf("the context of do has no logger: %v", err)
			}
			runs++
			switch runs {
			case 1:
				return reconcile.Result{}, errors.New("no luck")
			case 2:
				panic("oh dear")
			default:
				return reconcile.Result{}, nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		end := begin(t, w)
		before := counted(t, queueErrors.WithLabelValues("apply"))
		w.add("k", priorityChanged)
		time.Sleep(time.Minute) //nolint:forbidigo // Fake time in the synctest bubble.
		end()
		if got := counted(t, queueErrors.WithLabelValues("apply")) - before; got != 2 {
			t.Errorf("%v errors are counted, want 2", got)
		}
		if len(lines) != 2 {
			t.Fatalf("want a line for each error, got %d: %q", len(lines), lines)
		}
		for i, words := range [][]string{{`"queue"="apply"`, `"key"="k"`, "no luck"}, {`"key"="k"`, "oh dear", "workqueue_test.go"}} {
			for _, word := range words {
				if !strings.Contains(lines[i], word) {
					t.Errorf("line %d has no %s: %s", i, word, lines[i])
				}
			}
		}
	})
}

func TestQueueDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		do := func(ctx context.Context, _ string) (reconcile.Result, error) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return reconcile.Result{}, nil
		}
		var ends []func()
		for i, name := range []string{"apply-eu-1", "apply-eu-1", "apply-us-1", "namespaces-eu-1", "namespaces-us-1"} {
			w, err := newWorkQueue(name, 1, discard, do)
			if err != nil {
				t.Fatal(err)
			}
			for key := range i + 2 {
				w.add(fmt.Sprint(key), priorityChanged)
			}
			w.addAfter("later", time.Hour)
			ends = append(ends, begin(t, w))
		}
		synctest.Wait()
		want := map[string]float64{"apply eu-1": 3, "apply us-1": 3, "namespaces ": 9}
		if diff := gocmp.Diff(want, depthsNow(t)); diff != "" {
			t.Errorf("due and waiting keys: -want, +got:\n%s", diff)
		}
		for _, end := range ends {
			end()
		}
		if diff := gocmp.Diff(map[string]float64{}, depthsNow(t)); diff != "" {
			t.Errorf("want no series of ended queues: -want, +got:\n%s", diff)
		}
	})
}

func depthsNow(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(depths)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := map[string]string{}
			for _, l := range m.GetLabel() {
				name[l.GetName()] = l.GetValue()
			}
			got[name["queue"]+" "+name["cluster"]] = m.GetGauge().GetValue()
		}
	}
	return got
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// TestQueueRace adds keys concurrently, and checks that no key is lost, and that two workers never have the same key.
func TestQueueRace(t *testing.T) {
	synctest.Test(t, raceQueue)
}

func raceQueue(t *testing.T) {
	t.Helper()
	const keys, adders, rounds = 50, 8, 2000
	var asked, seen [keys]atomic.Int64
	var busy [keys]atomic.Bool
	var runs atomic.Int64
	w, err := newWorkQueue("test", 4, discard, func(_ context.Context, key int) (reconcile.Result, error) {
		if !busy[key].CompareAndSwap(false, true) {
			t.Errorf("two workers have key %d", key)
		}
		defer busy[key].Store(false)
		seen[key].Store(asked[key].Load())
		switch n := runs.Add(1); {
		case n%101 == 0:
			return reconcile.Result{}, errors.New("no")
		case n%103 == 0:
			panic("oh")
		case n%11 == 0:
			return reconcile.Result{RequeueAfter: time.Microsecond}, nil
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	end := begin(t, w)
	var adding sync.WaitGroup
	for a := range adders {
		adding.Go(func() {
			for i := range rounds {
				key := (i*7 + a) % keys
				if i%50 == 0 {
					time.Sleep(time.Microsecond) //nolint:forbidigo // Lets timers ring between.
				}
				asked[key].Add(1)
				if i%5 == 0 {
					w.addAfter(key, time.Duration(i%40)*time.Microsecond)
					continue
				}
				w.add(key, priority(i%int(priorityRequired+1)))
			}
		})
	}
	adding.Wait()
	time.Sleep(time.Hour) //nolint:forbidigo // Fake time in the synctest bubble: by then all is done.
	w.mu.Lock()
	if len(w.queue.items) != 0 || w.workers.running != 0 {
		t.Errorf("%d keys and %d workers are left", len(w.queue.items), w.workers.running)
	}
	w.mu.Unlock()
	end()
	for key := range keys {
		if asked[key].Load() != seen[key].Load() {
			t.Errorf("key %d: %d calls of add, and the last run saw %d", key, asked[key].Load(), seen[key].Load())
		}
	}
}
