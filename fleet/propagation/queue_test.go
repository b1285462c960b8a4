package propagation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestQueueOrder(t *testing.T) {
	const now = time.Hour
	cases := map[string]struct {
		reason string
		adds   func(q *queue[string])
		want   []string
	}{
		"OnceOnly": {
			reason: "A key is in the queue once, and keeps its place.",
			adds: func(q *queue[string]) {
				q.add("a", priorityChanged, now, now)
				q.add("b", priorityChanged, now, now)
				q.add("a", priorityChanged, now, now)
			},
			want: []string{"a", "b"},
		},
		"UrgentFirst": {
			reason: "A higher priority comes first; keys of equal priority come in the order of arrival.",
			adds: func(q *queue[string]) {
				for _, u := range []priority{priorityCostly, priorityResync, priorityDependency, priorityChanged, priorityRequired} {
					q.add(fmt.Sprintf("%d-a", u), u, now, now)
					q.add(fmt.Sprintf("%d-b", u), u, now, now)
				}
			},
			want: []string{"4-a", "4-b", "3-a", "3-b", "2-a", "2-b", "1-a", "1-b", "0-a", "0-b"},
		},
		"HigherPriorityWins": {
			reason: "A waiting key can be raised, to the end of its new line, and is never lowered.",
			adds: func(q *queue[string]) {
				q.add("a", priorityResync, now, now)
				q.add("b", priorityChanged, now, now)
				q.add("c", priorityChanged, now, now)
				q.add("a", priorityChanged, now, now)
				q.add("b", priorityResync, now, now)
			},
			want: []string{"b", "c", "a"},
		},
		"NotDelayed": {
			reason: "A key that is due stays due when it is added for later. Only its priority may rise.",
			adds: func(q *queue[string]) {
				q.add("a", priorityChanged, now, now)
				q.add("b", priorityResync, now, now)
				q.add("c", priorityDependency, now, now)
				q.add("a", priorityResync, now+1, now)
				q.add("b", priorityChanged, now+1, now)
			},
			want: []string{"a", "b", "c"},
		},
		"EarliestTime": {
			reason: "Of two times the earlier counts, and of two priorities the higher.",
			adds: func(q *queue[string]) {
				q.add("a", priorityResync, now+5, now)
				q.add("b", priorityResync, now+4, now)
				q.add("c", priorityResync, now+3, now)
				q.add("a", priorityResync, now+2, now)
				q.add("c", priorityResync, now+6, now)
				q.add("d", priorityResync, now+1, now)
				q.add("d", priorityChanged, now+7, now)
				q.promote(now + 10)
			},
			want: []string{"d", "a", "c", "b"},
		},
		"BroughtForward": {
			reason: "A delayed key that is added for now is due at once, with the higher of both priorities.",
			adds: func(q *queue[string]) {
				q.add("a", priorityChanged, now+5, now)
				q.add("b", priorityDependency, now, now)
				q.add("a", priorityResync, now, now)
			},
			want: []string{"a", "b"},
		},
		"NotYet": {
			reason: "A key is not taken before its time.",
			adds: func(q *queue[string]) {
				q.add("a", priorityRequired, now+2, now)
				q.add("b", priorityRequired, now+1, now)
				q.promote(now + 1)
			},
			want: []string{"b"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := &queue[string]{}
			tc.adds(q)
			q.taken = 0
			var got []string
			for {
				key, _, _, ok := q.get()
				if !ok {
					break
				}
				got = append(got, key)
				q.taken = 0 // Another test covers fairness.
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ntake(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestQueueFinish(t *testing.T) {
	const now = time.Hour
	type next struct {
		Priority priority
		At       time.Duration
		Due      bool
	}
	cases := map[string]struct {
		reason    string
		meanwhile func(q *queue[string])
		outcome   outcome
		want      *next // The next turn of the key that was taken with priorityDependency; nil if it has none.
	}{
		"Done": {reason: "A successful key is forgotten."},
		"Again": {
			reason:  "A requeued key comes again with the priority that it had.",
			outcome: outcome{after: time.Minute},
			want:    &next{Priority: priorityDependency, At: now + time.Minute},
		},
		"Failed": {
			reason:  "A failed key comes again soon.",
			outcome: outcome{failed: true},
			want:    &next{Priority: priorityDependency, At: now + firstBackoff},
		},
		"AskedMeanwhile": {
			reason:    "A key that is added during the work comes again, with the new priority.",
			meanwhile: func(q *queue[string]) { q.add("a", priorityResync, now-1, now-1) },
			want:      &next{Priority: priorityResync, At: now - 1, Due: true},
		},
		"AskedTwiceMeanwhile": {
			reason: "Then, too, the higher priority and the earlier time count.",
			meanwhile: func(q *queue[string]) {
				q.add("a", priorityRequired, now+time.Minute, now)
				q.add("a", priorityResync, now-1, now-1)
				q.add("a", priorityChanged, now-1, now-1)
			},
			want: &next{Priority: priorityRequired, At: now - 1, Due: true},
		},
		"AskedMeanwhileForLater": {
			reason:    "The earlier of the two times counts.",
			meanwhile: func(q *queue[string]) { q.add("a", priorityResync, now+time.Second, now-1) },
			outcome:   outcome{after: time.Minute},
			want:      &next{Priority: priorityDependency, At: now + time.Second},
		},
		"AskedMeanwhileForWhatHasPassed": {
			reason:    "A time that passed during the work means now.",
			meanwhile: func(q *queue[string]) { q.add("a", priorityResync, now-1, now-2) },
			outcome:   outcome{after: time.Minute},
			want:      &next{Priority: priorityDependency, At: now - 1, Due: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := &queue[string]{}
			q.add("a", priorityDependency, 0, 0)
			key, u, _, _ := q.get()
			if tc.meanwhile != nil {
				tc.meanwhile(q)
			}
			if _, _, _, ok := q.get(); ok {
				t.Fatal("take() returned a key that a worker has")
			}
			q.finish(key, u, tc.outcome, now)
			var got *next
			if e := q.items["a"]; e != nil {
				got = &next{Priority: e.priority, At: e.at, Due: e.place == due}
			}
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nfinish(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestQueueBackoff(t *testing.T) {
	q, now := &queue[string]{}, time.Duration(0)
	fail := func() time.Duration {
		q.promote(now)
		key, u, _, ok := q.get()
		if !ok {
			t.Fatalf("take() returned no key at %v", now)
		}
		q.finish(key, u, outcome{failed: true}, now)
		at, _ := q.next()
		after := at - now
		now = at
		return after
	}
	q.add("a", priorityChanged, now, now)
	var got []time.Duration
	for range 16 {
		got = append(got, fail())
	}
	ms := time.Millisecond
	want := []time.Duration{
		5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1280 * ms, 2560 * ms,
		5120 * ms, 10240 * ms, 20480 * ms, 30000 * ms, 30000 * ms, 30000 * ms,
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("want delays that double up to a bound: -want, +got:\n%s", diff)
	}
	for range 300 {
		fail()
	}
	q.promote(now)
	key, u, _, _ := q.get()
	q.finish(key, u, outcome{after: time.Second}, now)
	now += time.Second
	if after := fail(); after != firstBackoff {
		t.Errorf("want the delays to start again after a success: got %v, want %v", after, firstBackoff)
	}
}

func TestQueueFairness(t *testing.T) {
	q := &queue[string]{}
	q.add("low", priorityResync, 0, 0)
	q.add("middle", priorityDependency, 1, 1)
	var low, middle int
	for i := range 100 * fairness {
		now := time.Duration(i + 2)
		q.add(fmt.Sprintf("fresh-%d", i), priorityChanged, now, now)
		key, u, _, _ := q.get()
		q.finish(key, u, outcome{}, now)
		switch key {
		case "low":
			low = i
		case "middle":
			middle = i
		}
	}
	if low == 0 || low >= 2*fairness || middle == 0 || middle >= 3*fairness {
		t.Errorf("want other keys taken in spite of a steady stream of urgent ones: low was number %d, middle number %d", low, middle)
	}
}

// model is a simple queue that need not be fast.
type model struct {
	keys map[int]*modelKey
	seq  int
	now  time.Duration
}

type modelKey struct {
	key, seq int
	priority priority
	at       time.Duration
	wanted   bool
	busy     bool
	failures int
}

func (m *model) add(key int, u priority, at, now time.Duration) {
	k := m.keys[key]
	if k == nil {
		k = &modelKey{key: key}
		m.keys[key] = k
	}
	m.seq++
	switch {
	case !k.wanted:
		k.wanted, k.priority, k.at, k.seq = true, u, at, m.seq
	case k.at <= now:
		if u > k.priority {
			k.priority, k.seq = u, m.seq
		}
	default:
		k.priority = max(k.priority, u)
		if at <= now {
			k.seq = m.seq
		}
		k.at = min(k.at, at)
	}
}

// becomeReady lines up the keys that became due since the last call, in the order of their times.
func (m *model) becomeReady(now time.Duration) {
	var keys []*modelKey
	for _, k := range m.keys {
		if k.wanted && !k.busy && k.at > m.now && k.at <= now {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b *modelKey) int { return cmp.Compare(a.at, b.at) })
	for _, k := range keys {
		m.seq++
		k.seq = m.seq
	}
	m.now = now
}

// due returns the keys that are due, the next first.
func (m *model) due(now time.Duration) []*modelKey {
	var keys []*modelKey
	for _, k := range m.keys {
		if k.wanted && !k.busy && k.at <= now {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b *modelKey) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.seq, b.seq))
	})
	return keys
}

func (m *model) finish(key int, u priority, o outcome, now time.Duration) {
	k := m.keys[key]
	k.busy = false
	m.seq++
	k.seq = m.seq
	switch {
	case o.failed:
		m.add(key, u, now+min(firstBackoff<<k.failures, lastBackoff), now)
		k.failures++
		return
	case o.after > 0:
		m.add(key, u, now+o.after, now)
	}
	k.failures = 0
	if !k.wanted {
		delete(m.keys, key)
	}
}

// TestQueueModel compares the queue with the simple model while it grows and shrinks.
func TestQueueModel(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 0))
		q, m := &queue[int]{}, &model{keys: map[int]*modelKey{}}
		type work struct {
			key      int
			priority priority
		}
		var busy []work
		now, keys := time.Duration(0), 1
		for step := range 4000 {
			now += 1 + time.Duration(random.IntN(int(2*time.Millisecond)))
			q.promote(now)
			m.becomeReady(now)
			if step%1000 == 0 {
				keys = []int{400, 3, 150, 20}[step/1000]
			}
			switch u := priority(random.IntN(int(priorityRequired) + 1)); random.IntN(5) {
			case 0, 1:
				key := random.IntN(keys)
				q.add(key, u, now, now)
				m.add(key, u, now, now)
			case 2:
				key, at := random.IntN(keys), now+1+time.Duration(random.IntN(int(50*time.Millisecond)))
				q.add(key, u, at, now)
				m.add(key, u, at, now)
			case 3:
				all := m.due(now)
				q.taken = 0
				key, u, since, ok := q.get()
				if ok != (len(all) > 0) {
					t.Fatalf("seed %d, step %d: take() = %v with %d keys due", seed, step, ok, len(all))
				}
				if !ok {
					continue
				}
				k := all[0]
				if k.key != key || k.priority != u || k.at != since {
					t.Fatalf("seed %d, step %d: take() = %d, %d, %v; want %+v", seed, step, key, u, since, *k)
				}
				k.busy, k.wanted = true, false
				busy = append(busy, work{key, u})
			default:
				if len(busy) == 0 {
					continue
				}
				i := random.IntN(len(busy))
				o := []outcome{{}, {}, {}, {failed: true}, {after: time.Millisecond}}[random.IntN(5)]
				q.finish(busy[i].key, busy[i].priority, o, now)
				m.finish(busy[i].key, busy[i].priority, o, now)
				busy = slices.Delete(busy, i, i+1)
			}
			if len(q.items) != len(m.keys) {
				t.Fatalf("seed %d, step %d: the queue knows %d keys, want %d", seed, step, len(q.items), len(m.keys))
			}
		}
	}
}

func TestQueueGivesMemoryBack(t *testing.T) {
	const many = 20_000
	cases := map[string]struct {
		reason string
		stay   int
	}{
		"Empty":    {reason: "No memory is kept after a burst."},
		"FewStay":  {reason: "A few keys that are retried do not keep the memory of many.", stay: 10},
		"SomeStay": {reason: "The same for more keys.", stay: 1000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := &queue[Key]{}
			for i := range many {
				q.add(nthKey(i), priorityResync, 0, 0)
			}
			for {
				key, u, _, ok := q.get()
				if !ok {
					break
				}
				o := outcome{}
				if tc.stay > 0 && key.Name < nthKey(tc.stay).Name {
					o.failed = true
				}
				q.finish(key, u, o, 0)
			}
			if len(q.items) != tc.stay || q.most > max(4*tc.stay, fewItems) {
				t.Errorf("%s\nwant %d items, got %d in a map that had %d", tc.reason, tc.stay, len(q.items), q.most)
			}
			q.promote(lastBackoff)
			if q.ready != tc.stay {
				t.Errorf("%s\n%d keys are due again, want %d", tc.reason, q.ready, tc.stay)
			}
			for i := range tc.stay {
				if q.items[nthKey(i)] == nil {
					t.Errorf("key %d is lost", i)
				}
			}
		})
	}
}

// TestQueueMemory bounds the memory of a waiting key.
func TestQueueMemory(t *testing.T) {
	const most = 215
	for _, n := range []int{5_000, 30_000, 100_000} {
		keys := make([]Key, n)
		for i := range keys {
			keys[i] = nthKey(i)
		}
		q := &queue[Key]{}
		heap, _ := growth(func() {
			for i := range keys {
				q.add(keys[i], priorityResync, 0, 0)
			}
		})
		got := heap / float64(n)
		if got > most {
			t.Errorf("with %d keys: %.0f bytes for each, want at most %d", n, got, most)
		}
		runtime.KeepAlive(q)
	}
}

// growth returns the growth of the heap, and of heap and stacks together, in bytes.
func growth(do func()) (heap, all float64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap = float64(after.HeapAlloc) - float64(before.HeapAlloc)
	return heap, heap + float64(after.StackInuse) - float64(before.StackInuse)
}

func nthKey(i int) Key {
	return Key{
		GroupResource:  schema.GroupResource{Group: "apps", Resource: "deployments"},
		NamespacedName: types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("web-%06d", i)},
	}
}

// BenchmarkQueue compares the queue with that of controller-runtime: it adds and processes a burst of keys, as after
// a restart.
func BenchmarkQueue(b *testing.B) {
	const n = 100_000
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = nthKey(i)
	}
	own := func(b *testing.B) (add, work func()) {
		b.Helper()
		w, err := newWorkQueue[Key]("bench", 1, discard, nil)
		if err != nil {
			b.Fatal(err)
		}
		add = func() {
			for i := range keys {
				w.add(keys[i], priorityChanged)
			}
		}
		return add, func() {
			for range n {
				w.mu.Lock()
				key, u, _, _ := w.queue.get()
				w.mu.Unlock()
				w.mu.Lock()
				w.queue.finish(key, u, outcome{}, w.now())
				w.mu.Unlock()
			}
		}
	}
	theirs := func(b *testing.B) (add, work func()) {
		b.Helper()
		q := priorityqueue.New[Key]("bench")
		b.Cleanup(q.ShutDown)
		priority := 20
		add = func() {
			for i := range keys {
				q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys[i])
			}
			for q.Len() < n {
				runtime.Gosched()
			}
		}
		return add, func() {
			for range n {
				key, _, _ := q.GetWithPriority()
				q.Done(key)
			}
		}
	}
	for _, by := range []struct {
		name    string
		prepare func(*testing.B) (add, work func())
	}{{"Own", own}, {"ControllerRuntime", theirs}} {
		name, prepare := by.name, by.prepare
		b.Run(name+"/Time", func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				add, work := prepare(b)
				add()
				work()
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
		b.Run(name+"/Memory", func(b *testing.B) {
			var bytes float64
			for range b.N {
				add, _ := prepare(b)
				heap, _ := growth(add)
				bytes += heap / n
				runtime.KeepAlive(add)
			}
			b.ReportMetric(bytes/float64(b.N), "B/waiting-key")
		})
	}
}

// BenchmarkIdleQueues compares 1,000 idle queues with those of controller-runtime, which have a worker each. A member has
// two queues.
func BenchmarkIdleQueues(b *testing.B) {
	const n = 1000
	for _, by := range []struct {
		name  string
		begin func(b *testing.B, ctx context.Context) any
	}{
		{"Own", func(b *testing.B, ctx context.Context) any {
			b.Helper()
			w, err := newWorkQueue("bench", appliersByMember, discard, func(context.Context, Key) (reconcile.Result, error) { return reconcile.Result{}, nil })
			if err != nil {
				b.Fatal(err)
			}
			go func() { _ = w.start(ctx) }()
			w.add(nthKey(0), priorityChanged)
			return w
		}},
		{"ControllerRuntime", func(b *testing.B, ctx context.Context) any {
			b.Helper()
			q := priorityqueue.New[Key]("bench")
			context.AfterFunc(ctx, q.ShutDown)
			for range appliersByMember {
				go func() {
					for {
						key, _, over := q.GetWithPriority()
						if over {
							return
						}
						q.Done(key)
					}
				}()
			}
			q.Add(nthKey(0))
			return q
		}},
	} {
		b.Run(by.name, func(b *testing.B) {
			for b.Loop() {
				ctx, stop := context.WithCancel(b.Context())
				all := make([]any, n)
				before := runtime.NumGoroutine()
				_, bytes := growth(func() {
					for i := range all {
						all[i] = by.begin(b, ctx)
					}
					<-time.After(100 * time.Millisecond)
				})
				b.ReportMetric(bytes/n, "B/queue")
				b.ReportMetric(float64(runtime.NumGoroutine()-before)/n, "goroutines/queue")
				runtime.KeepAlive(all)
				stop()
				<-time.After(100 * time.Millisecond)
			}
		})
	}
}

// TestQueueArranged: keys with the same time come in the given order, others in the order of their arrival.
func TestQueueArranged(t *testing.T) {
	var q queue[string]
	for _, key := range []string{"d", "b", "c"} {
		q.add(key, priorityChanged, 1, 1)
	}
	q.arrange(func(a, b string) bool { return a < b })
	q.add("e", priorityChanged, 1, 1)
	q.add("z", priorityChanged, 2, 2)
	q.add("a", priorityChanged, 3, 3)
	var got []string
	for {
		key, _, _, ok := q.get()
		if !ok {
			break
		}
		got = append(got, key)
	}
	if diff := gocmp.Diff([]string{"b", "c", "d", "e", "z", "a"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
