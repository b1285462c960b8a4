package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"refract.dev/kit/webhook/admission"
)

// informers are a cache with the objects of a client.
type informers struct {
	client.Reader

	synced atomic.Bool
	err    error
	// unknown is the cache's error for every object.
	unknown error
}

func (i *informers) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if i.unknown != nil {
		return i.unknown
	}
	return i.Reader.Get(ctx, key, obj, opts...)
}

func (i *informers) GetInformer(_ context.Context, _ client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	var o cache.InformerGetOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.BlockUntilSynced == nil || *o.BlockUntilSynced {
		return nil, errors.New("this would wait")
	}
	return informer{synced: &i.synced}, i.err
}

type informer struct {
	cache.Informer

	synced *atomic.Bool
}

func (i informer) HasSynced() bool { return i.synced.Load() }

// live is an API server. Each read takes a while, and returns the state at its start.
type live struct {
	takes time.Duration
	err   error

	mu      sync.Mutex
	objects map[client.ObjectKey]bool
	reads   int
}

func (l *live) create(key client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.objects[key] = true
}

func (l *live) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads
}

func (l *live) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	l.mu.Lock()
	l.reads++
	there := l.objects[key]
	l.mu.Unlock()
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.err != nil {
		return l.err
	}
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	return nil
}

func newFinder(cached ...client.Object) (*Finder[corev1.ConfigMap, *corev1.ConfigMap], *informers, *live) {
	i := &informers{Reader: fake.NewClientBuilder().WithObjects(cached...).Build()}
	i.synced.Store(true)
	l := &live{takes: time.Second, objects: map[client.ObjectKey]bool{}}
	return New[corev1.ConfigMap](i, l), i, l
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// TestGet runs with a fake clock, like most tests here.
func TestGet(t *testing.T) {
	cases := map[string]struct {
		reason    string
		namespace string
		prepare   func(*informers, *live)
		err       string
		notFound  bool
		notSynced bool
		reads     int
	}{
		"Cached":    {reason: "The API server is not asked.", namespace: "menu"},
		"NotSynced": {reason: "Nothing is known yet.", namespace: "menu", prepare: func(i *informers, _ *live) { i.synced.Store(false) }, err: "informers not ready", notSynced: true},
		"NoInformer": {
			reason: "Nothing will ever be known.", namespace: "menu", prepare: func(i *informers, _ *live) { i.err = errors.New("no such kind") },
			err: "getting the informer of ConfigMap: no such kind",
		},
		"JustCreated": {
			reason: "The informer does not know of it yet.", namespace: "new",
			prepare: func(_ *informers, l *live) { l.create(client.ObjectKey{Namespace: "new", Name: "tomato"}) }, reads: 1,
		},
		"ClusterScoped": {
			reason: "There is no namespace.", prepare: func(_ *informers, l *live) { l.create(client.ObjectKey{Name: "tomato"}) }, reads: 1,
		},
		"OtherNamespace": {
			reason: "The cache knows of some namespaces alone.", namespace: "new",
			prepare: func(i *informers, l *live) {
				i.unknown = errors.New(`unable to get: new/tomato because of unknown namespace for the cache`)
				l.create(client.ObjectKey{Namespace: "new", Name: "tomato"})
			}, reads: 1,
		},
		"Nowhere": {reason: "The API server has said so.", namespace: "new", err: `configmaps "tomato" not found`, notFound: true, reads: 1},
		"Down": {
			reason: "Nobody knows.", namespace: "new", prepare: func(_ *informers, l *live) { l.err = errors.New("connection refused") },
			err: `looking up ConfigMap "new/tomato": connection refused`, reads: 1,
		},
		"Slow": {
			reason: "Nobody waits for ever.", prepare: func(_ *informers, l *live) { l.takes = time.Hour },
			err: `looking up ConfigMap "tomato": context deadline exceeded`, reads: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, i, l := newFinder(configMap("menu", "tomato"))
				if tc.prepare != nil {
					tc.prepare(i, l)
				}
				got, err := f.Get(t.Context(), tc.namespace, "tomato")
				text := ""
				if err != nil {
					text = err.Error()
				} else if got.Namespace != tc.namespace || got.Name != "tomato" {
					t.Errorf("%s\ngot %s/%s", tc.reason, got.Namespace, got.Name)
				}
				if diff := cmp.Diff([]any{tc.err, tc.notFound, tc.notSynced, tc.reads},
					[]any{text, apierrors.IsNotFound(err), errors.Is(err, ErrNotSynced), l.count()}); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
				wantUnavailable(t, err, tc.err != "" && !tc.notFound)
				synctest.Wait()
				if len(f.reads) != 0 {
					t.Errorf("%s\nReads are forgotten: got %v", tc.reason, f.reads)
				}
			})
		})
	}
}

// wantUnavailable checks whether an error is an Unavailable error or a denial.
func wantUnavailable(t *testing.T, err error, want bool) {
	t.Helper()
	if denied := err != nil && !isUnavailable(err); want == denied && err != nil {
		t.Errorf("denied %t because of %v", denied, err)
	}
}

// isUnavailable reports whether an error has the type of Unavailable errors.
func isUnavailable(err error) bool {
	return fmt.Sprintf("%T", err) == fmt.Sprintf("%T", admission.Unavailable(errors.New("")))
}

func TestReady(t *testing.T) {
	f, i, _ := newFinder()
	if err := f.Ready(); err != nil {
		t.Error(err)
	}
	i.synced.Store(false)
	if err := f.Ready(); !errors.Is(err, ErrNotSynced) {
		t.Errorf("want %v, got %v", ErrNotSynced, err)
	}
}

// TestReadBeforeItWasThere: a call that arrives during a read gets the result of the next read, because the running
// read began before the object existed.
func TestReadBeforeItWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		var first, second error
		var waiting sync.WaitGroup
		waiting.Go(func() { _, first = f.Get(t.Context(), "", "tomato") })
		synctest.Wait()
		l.create(client.ObjectKey{Name: "tomato"})
		waiting.Go(func() { _, second = f.Get(t.Context(), "", "tomato") })
		waiting.Wait()
		if !apierrors.IsNotFound(first) || second != nil {
			t.Errorf("It was not there for the first and is there for the second: got %v and %v", first, second)
		}
	})
}

// TestManyAskForOne: calls share reads, and each gets its own object.
func TestManyAskForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		l.create(client.ObjectKey{Name: "tomato"})
		var waiting sync.WaitGroup
		got := make([]*corev1.ConfigMap, 1000)
		for i := range got {
			waiting.Go(func() {
				var err error
				if got[i], err = f.Get(t.Context(), "", "tomato"); err != nil {
					t.Error(err)
					return
				}
				got[i].Data = map[string]string{"mine": fmt.Sprint(i)}
			})
		}
		waiting.Wait()
		for i, object := range got {
			if mine := fmt.Sprint(i); object == nil || object.Data["mine"] != mine {
				t.Fatalf("want an object with what %s has written, got %v", mine, object)
			}
		}
		if n := l.count(); n > 2 {
			t.Errorf("want at most 2 reads, got %d", n)
		}
	})
}

// TestStorm: many unknown names cost an API server a bounded number of reads. No call reports an object as missing
// without a read.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		start := time.Now()
		var waiting sync.WaitGroup
		var notFound, unavailable atomic.Int64
		for i := range 2000 {
			waiting.Go(func() {
				_, err := f.Get(t.Context(), "", fmt.Sprint("name-", i))
				switch {
				case apierrors.IsNotFound(err):
					notFound.Add(1)
				case isUnavailable(err):
					unavailable.Add(1)
				default:
					t.Errorf("got %v", err)
				}
			})
		}
		waiting.Wait()
		if n := int64(l.count()); n > readsAtOnce+readsPerSecond*5+1 || n < readsAtOnce || notFound.Load() > n || notFound.Load()+unavailable.Load() != 2000 {
			t.Errorf("%d reads for %d that are not there, and %d unavailable", n, notFound.Load(), unavailable.Load())
		}
		if took := time.Since(start); took > patience+time.Second {
			t.Errorf("want it to take %s at most, got %s", patience, took)
		}
	})
}

// TestCallerLeaves: a canceled call gets no denial, and the other calls get their answer.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		l.create(client.ObjectKey{Name: "tomato"})
		ctx, cancel := context.WithCancel(t.Context())
		var first, second error
		var waiting sync.WaitGroup
		waiting.Go(func() { _, first = f.Get(ctx, "", "tomato") })
		synctest.Wait()
		waiting.Go(func() { _, second = f.Get(t.Context(), "", "tomato") })
		synctest.Wait()
		cancel()
		waiting.Wait()
		if !isUnavailable(first) || !errors.Is(first, context.Canceled) || second != nil {
			t.Errorf("got %v and %v", first, second)
		}
	})
}

// TestPatience: a call does not wait for another call's read and then as long again for its own.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		l.takes = time.Hour
		var waiting sync.WaitGroup
		for i := range 3 {
			waiting.Go(func() {
				<-time.After(time.Duration(i) * 100 * time.Millisecond)
				start := time.Now()
				_, err := f.Get(t.Context(), "", "tomato")
				if took := time.Since(start); took > patience || !isUnavailable(err) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d: got %v after %s", i, err, took)
				}
			})
		}
		waiting.Wait()
		<-time.After(patience) // The duration of the next read.
		synctest.Wait()
		if len(f.reads) != 0 {
			t.Errorf("Reads are forgotten: got %v", f.reads)
		}
	})
}

// TestEndedContext: a call with an ended context reads nothing.
func TestEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, l := newFinder()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Get(ctx, "", "tomato"); !isUnavailable(err) || !errors.Is(err, context.Canceled) || l.count() > 0 {
			t.Errorf("got %v after %d reads", err, l.count())
		}
	})
}
