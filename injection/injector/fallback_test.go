package injector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// stale has a cache and an API server with different policies.
type stale struct {
	cache    *Cache
	fallback *liveFallback
	live     atomic.Pointer[[]string] // The policies that a list returns.
	lists    atomic.Int64
	takes    time.Duration // The duration of a list.
	err      error
}

func beside(t *testing.T, here, live []string) *stale {
	t.Helper()
	s := &stale{cache: full(t, here...)}
	s.live.Store(&live)
	s.fallback = newLiveFallback(nil, s.cache)
	s.fallback.list = func(ctx context.Context, namespace string) (*inject.Set, error) {
		s.lists.Add(1)
		list := &unstructured.UnstructuredList{}
		for _, text := range *s.live.Load() { // The list has the policies at its begin.
			if p := policy(t, text); p.GetNamespace() == namespace {
				list.Items = append(list.Items, *p)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(s.takes):
			return s.cache.read(list), s.err
		}
	}
	return s
}

// create creates a pod whose template has the given hash, and returns the hash of the injected policies.
func (s *stale) create(t *testing.T, hash string) string {
	t.Helper()
	return s.createFrom(t, fmt.Sprintf(`{metadata: {labels: {role: frontend}, annotations: {refract.dev/injection-hash: "%s"}}, spec: {containers: [{name: a}]}}`, hash))
}

func (s *stale) createFrom(t *testing.T, text string) string {
	t.Helper()
	pod, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	here, err := s.cache.Set("shop").Inject(pod)
	if err != nil {
		t.Fatal(err)
	}
	return s.fallback.settle(t.Context(), "shop", pod, here).Hash
}

// hashOf returns the hash that these policies give.
func hashOf(t *testing.T, policies ...string) string {
	t.Helper()
	t.Helper()
	return beside(t, policies, nil).createFrom(t, `{metadata: {labels: {role: frontend}}, spec: {containers: [{name: a}]}}`)
}

var (
	newer  = changed(database, "6379", "7000", "generation: 1", "generation: 2")
	newest = changed(database, "6379", "8000", "generation: 1", "generation: 3")
)

// outcomes returns a function that counts the outcomes of live fallbacks since its last call.
func outcomes(t *testing.T) func() map[string]int {
	t.Helper()
	all := []string{fallbackFound, fallbackShared, fallbackDifferent, fallbackRemembered, fallbackLimited, fallbackFailed}
	before := map[string]int{}
	count := func() map[string]int {
		since := map[string]int{}
		for _, outcome := range all {
			n := int(counted(t, fallbacks.WithLabelValues(outcome)))
			if n > before[outcome] {
				since[outcome] = n - before[outcome]
			}
			before[outcome] = n
		}
		return since
	}
	count()
	return count
}

// TestNewestListIsRemembered: if lists do not end in the order of their begin, the list that began last is remembered.
func TestNewestListIsRemembered(t *testing.T) {
	began := time.Unix(0, 0)
	older, newest := &listing{begun: began}, &listing{begun: began.Add(time.Second)}
	here, other, same := &inject.Result{Hash: "a", TemplateHash: "b"}, &inject.Result{Hash: "b"}, &inject.Result{Hash: "a"}
	cases := map[string]struct {
		reason   string
		lists    []*listing
		result   *inject.Result // The result of each list.
		want     *listing
		negative bool
	}{
		"First":         {"The listing is newer than the cache.", []*listing{older}, other, older, false},
		"InOrder":       {"The last listing is the newest.", []*listing{older, newest}, other, newest, false},
		"OtherWayRound": {"The listing that ends last is older.", []*listing{newest, older}, other, newest, false},
		"Same":          {"The listing gives the same result as the cache, so the hash is an old one.", []*listing{older}, same, nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := &cached{negative: map[string]bool{}}
			for _, l := range tc.lists {
				m.remember(here, tc.result, l)
			}
			if got, negative := m.recall("b"); got != tc.want || negative != tc.negative {
				t.Errorf("%s\nrecall(): want %v, %t, got %v, %t", tc.reason, tc.want, tc.negative, got, negative)
			}
		})
	}
}

func TestLiveFallback(t *testing.T) {
	was, is, old := hashOf(t, database), hashOf(t, newer), "0123456789abcdef"
	type step struct {
		hash    string // The hash in the template.
		want    string // The expected hash of the pod.
		outcome string // Empty without a handshake.
		lists   int64  // The number of lists so far.
		learn   string // A policy that the cache gets before the step.
	}
	cases := map[string]struct {
		reason     string
		here, live []string
		steps      []step
	}{
		"NoHash": {
			reason: "Most pods have no hash.",
			here:   []string{database}, live: []string{newer},
			steps: []step{{hash: "", want: was}},
		},
		"Same": {
			reason: "The cache is up to date.",
			here:   []string{database}, live: []string{database},
			steps: []step{{hash: was, want: was}},
		},
		"Behind": {
			reason: "One list serves all pods until the cache is up to date.",
			here:   []string{database}, live: []string{newer},
			steps: []step{
				{hash: is, want: is, outcome: fallbackFound, lists: 1},
				{hash: is, want: is, outcome: fallbackShared, lists: 1},
				{hash: is, want: is, lists: 1, learn: newer},
			},
		},
		"First": {
			reason: "The cache has no policy of the namespace yet.",
			live:   []string{database},
			steps: []step{
				{hash: was, want: was, outcome: fallbackFound, lists: 1},
				{hash: was, want: was, outcome: fallbackShared, lists: 1},
			},
		},
		"Rollback": {
			reason: "An old hash costs one list, until policies change.",
			here:   []string{database}, live: []string{database},
			steps: []step{
				{hash: old, want: was, outcome: fallbackDifferent, lists: 1},
				{hash: old, want: was, outcome: fallbackRemembered, lists: 1},
				{hash: "another", want: was, outcome: fallbackDifferent, lists: 2},
				{hash: old, want: was, outcome: fallbackRemembered, lists: 2},
				{hash: old, want: is, outcome: fallbackDifferent, lists: 3, learn: newer},
			},
		},
		"RollbackWhileBehind": {
			reason: "A pod with an old hash gets the current policies, not the cached ones.",
			here:   []string{database}, live: []string{newer},
			steps: []step{
				{hash: old, want: is, outcome: fallbackDifferent, lists: 1},
				{hash: old, want: is, outcome: fallbackRemembered, lists: 1},
				{hash: is, want: is, outcome: fallbackShared, lists: 1},
			},
		},
		"Gone": {
			reason: "The last policy was deleted, and the cache still has it.",
			here:   []string{database},
			steps:  []step{{hash: old, want: "", outcome: fallbackDifferent, lists: 1}},
		},
		"OtherNamespace": {
			reason: "Policies of other namespaces have no effect.",
			here:   []string{database}, live: []string{database},
			steps: []step{
				{hash: old, want: was, outcome: fallbackDifferent, lists: 1},
				{hash: old, want: was, outcome: fallbackRemembered, lists: 1, learn: changed(database, "shop", "bank")},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := beside(t, tc.here, tc.live)
			since := outcomes(t)
			for i, step := range tc.steps {
				if step.learn != "" {
					s.live.Store(&[]string{step.learn})
					s.cache.update(policy(t, step.learn))
				}
				if got := s.create(t, step.hash); got != step.want {
					t.Errorf("%s\nStep %d: the pod has hash %q, want %q", tc.reason, i, got, step.want)
				}
				want := map[string]int{}
				if step.outcome != "" {
					want[step.outcome] = 1
				}
				if diff := cmp.Diff(want, since()); diff != "" {
					t.Errorf("%s\nStep %d: outcomes: -want, +got:\n%s", tc.reason, i, diff)
				}
				if got := s.lists.Load(); got != step.lists {
					t.Errorf("%s\nStep %d: there were %d lists, want %d", tc.reason, i, got, step.lists)
				}
			}
		})
	}
}

// TestOptedOutPodsDoNotShakeHands: a pod that has opted out causes no list.
func TestOptedOutPodsDoNotShakeHands(t *testing.T) {
	s := beside(t, []string{database}, []string{newer})
	s.createFrom(t, `{metadata: {labels: {role: frontend}, annotations: {refract.dev/injection-hash: a, refract.dev/inject: "false"}}, spec: {containers: [{name: a}]}}`)
	if s.lists.Load() != 0 {
		t.Error("The policies were listed.")
	}
}

// TestManyShakeHands: all pods of a recreated workload are created at the same time, and share a list.
func TestManyShakeHands(t *testing.T) {
	is := hashOf(t, newer)
	synctest.Test(t, func(t *testing.T) {
		s := beside(t, []string{database}, []string{newer})
		s.takes = 50 * time.Millisecond
		var pods sync.WaitGroup
		for range 100 {
			pods.Go(func() {
				if got := s.create(t, is); got != is {
					t.Errorf("A pod has hash %q, want %q", got, is)
				}
			})
		}
		pods.Wait()
		if got := s.lists.Load(); got != 1 {
			t.Errorf("There were %d lists, want one for all", got)
		}
	})
}

// TestListThatBeganBefore: a list that began before the policy changed does not count for a pod that was recreated
// after the change.
func TestListThatBeganBefore(t *testing.T) {
	is, last := hashOf(t, newer), hashOf(t, newest)
	synctest.Test(t, func(t *testing.T) {
		s := beside(t, []string{database}, []string{newer})
		s.takes = 50 * time.Millisecond
		var pods sync.WaitGroup
		pods.Go(func() { s.create(t, is) })
		synctest.Wait()
		s.live.Store(&[]string{newest})
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // The time is that of the test.
		if got := s.create(t, last); got != last {
			t.Errorf("The pod has hash %q, want %q", got, last)
		}
		pods.Wait()
		if got := s.lists.Load(); got != 2 {
			t.Errorf("There were %d lists, want two: the first had not seen the change", got)
		}
	})
}

// TestSlowList: the API server does not answer a list in time.
func TestSlowList(t *testing.T) {
	was, is := hashOf(t, database), hashOf(t, newer)
	synctest.Test(t, func(t *testing.T) {
		s := beside(t, []string{database}, []string{newer})
		s.takes = time.Minute
		begun := time.Now()
		if got := s.create(t, is); got != was {
			t.Errorf("The pod has hash %q, want what is known here, %q", got, was)
		}
		if waited := time.Since(begun); waited != listPatience {
			t.Errorf("It waited for %s", waited)
		}
		synctest.Wait()
		s.takes = 0
		if got := s.create(t, is); got != is {
			t.Errorf("The next pod has hash %q, want %q", got, is)
		}
	})
}

func TestFailedList(t *testing.T) {
	was := hashOf(t, database)
	s := beside(t, []string{database}, []string{newer})
	s.err = errors.New("forbidden")
	if got := s.create(t, "a"); got != was {
		t.Errorf("The pod has hash %q, want what is known here, %q", got, was)
	}
}

// TestListsAreLimited: a user who writes a different hash on every pod causes only a limited number of lists.
func TestListsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beside(t, []string{database}, []string{database})
		since := outcomes(t)
		for i := range 1000 {
			s.create(t, fmt.Sprintf("%016x", i))
		}
		if diff := cmp.Diff(map[string]int{fallbackDifferent: listsAtOnce, fallbackLimited: 1000 - listsAtOnce}, since()); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		time.Sleep(time.Second) //nolint:forbidigo // The time is that of the test.
		for i := range 1000 {
			s.create(t, fmt.Sprintf("%016x", 10_000+i))
		}
		if got := since()[fallbackDifferent]; got != listsPerSecond {
			t.Errorf("There were %d lists in the second after, want %d", got, listsPerSecond)
		}
	})
}

// TestMemoryIsBounded: the number of remembered hashes and namespaces is bounded.
func TestMemoryIsBounded(t *testing.T) {
	h := newLiveFallback(nil, newCache(logr.Discard()))
	m := h.cached("shop")
	for i := range 10 * mostHashes {
		m.remember(&inject.Result{TemplateHash: fmt.Sprint(i)}, &inject.Result{}, &listing{})
	}
	if len(m.negative) > mostHashes {
		t.Errorf("There are %d hashes.", len(m.negative))
	}
	for i := range 2 * mostNamespaces {
		h.cached(fmt.Sprint(i))
	}
	if len(h.known) > mostNamespaces {
		t.Errorf("There are %d namespaces.", len(h.known))
	}
}

// TestListIsLive: the list is read with the client, and policies that cannot be decoded are skipped.
func TestListIsLive(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := refractv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		policy(t, database), policy(t, changed(database, "shop", "bank")), policy(t, changed(database, "allow-database", "broken", "{matchLabels: {role: frontend}}", "{matchExpressions: [{key: a, operator: Foo}]}")),
	).Build()
	var live client.Reader = c
	set, err := newLiveFallback(live, newCache(logr.Discard())).list(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range set.Policies() {
		got = append(got, p.Namespace()+"/"+p.Name())
	}
	if diff := cmp.Diff([]string{"shop/allow-database"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
