package evolution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/test/harness"
)

const (
	// all is the number of pizzas. The first half is stored in v1alpha1, the rest in v1beta1. In each half, clients
	// created every second pizza in v1alpha1 and the others in v1beta1.
	all = 2000
	// paged is the page size of lists. Pages are small, so that the webhook often stops in the middle of a list.
	paged = 200
	// applied is the number of pizzas that two managers apply, each in its own version.
	applied = 200
	// counted is the number of pizzas at the end whose count clients increment all the time.
	counted = 100
	// changes is the number of changes of the webhook's certificate under load. Before every second change the webhook
	// is killed.
	changes = 8
)

// menu are the toppings to choose from.
var menu = []string{"mozzarella", "tomato", "salami", "ananas", "рукола", "青椒"}

// toppingsOf returns the toppings of the pizza with this number. Some occur twice.
func toppingsOf(i int) []string {
	var out []string
	for j := range i%5 + 1 {
		out = append(out, menu[(i+j*j)%len(menu)])
	}
	slices.Sort(out) // The order has no meaning, and v1beta1 does not keep it.
	return out
}

func nameOf(i int) string { return fmt.Sprintf("pizza-%04d", i) }

// order returns toppings in the form of a version.
func order(version string, toppings []string) []any {
	var out []any
	for i := 0; i < len(toppings); {
		n := 1
		for i+n < len(toppings) && toppings[i+n] == toppings[i] {
			n++
		}
		if version == beta {
			out = append(out, map[string]any{"name": toppings[i], "quantity": int64(n)})
		} else {
			for range n {
				out = append(out, toppings[i])
			}
		}
		i += n
	}
	return out
}

// tasted returns the toppings of a pizza in any version, sorted.
func tasted(pizza map[string]any) ([]string, error) {
	list, _, err := unstructured.NestedSlice(pizza, "spec", "toppings")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		switch e := e.(type) {
		case string:
			out = append(out, e)
		case map[string]any:
			n, _ := e["quantity"].(int64)
			for range n {
				out = append(out, e["name"].(string))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// check returns an error unless the pizza has the content for its number.
func check(pizza *unstructured.Unstructured) error {
	var i int
	if _, err := fmt.Sscanf(pizza.GetName(), "pizza-%d", &i); err != nil {
		return err
	}
	got, err := tasted(pizza.Object)
	if err != nil {
		return err
	}
	cost, _, _ := unstructured.NestedFloat64(pizza.Object, "status", "cost")
	switch want := toppingsOf(i); {
	case !slices.Equal(want, got):
		return fmt.Errorf("%s in %s has toppings %q, want %q", pizza.GetName(), pizza.GetAPIVersion(), got, want)
	case cost != costOf(i):
		return fmt.Errorf("%s in %s costs %v, want %v", pizza.GetName(), pizza.GetAPIVersion(), cost, costOf(i))
	case pizza.GetLabels()["number"] != fmt.Sprint(i):
		return fmt.Errorf("%s in %s has labels %v", pizza.GetName(), pizza.GetAPIVersion(), pizza.GetLabels())
	}
	return nil
}

func costOf(i int) float64 { return float64(i) + 0.25 }

func limited(n int64) metav1.ListOptions { return metav1.ListOptions{Limit: n} }
func created() metav1.CreateOptions      { return metav1.CreateOptions{FieldManager: "cook"} }
func deleted() metav1.DeleteOptions      { return metav1.DeleteOptions{} }

// TestNothingIsLost: two managers apply the same pizzas in two versions, and clients list, get and write them, some in
// both versions. Stored objects have both versions. Meanwhile the test kills and restarts the webhook, and replaces its
// certificate by one of another authority. Afterwards, etcd must contain unchanged pizzas byte for byte, and changed
// pizzas with the last acknowledged change.
func TestNothingIsLost(t *testing.T) {
	k := shared
	if err := k.rotate(0); err != nil {
		t.Fatal(err)
	}
	k.serve(t)
	t.Cleanup(func() {
		k.kill()
		if t.Failed() {
			t.Logf("the webhook: %s", k.logTail())
		}
	})
	k.define(t)
	k.create(t, 0, all/2)
	k.store(t, beta)
	k.create(t, all/2, all)
	for range 2 { // The second apply changes nothing.
		for i := range applied {
			if err := k.apply(t.Context(), i*(all/applied)); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := k.stored(t)
	if n := len(before); n != all {
		t.Fatalf("etcd holds %d pizzas, want %d", n, all)
	}
	if versions := storedIn(t, before); versions[alpha] < all/4 || versions[beta] < all/2 {
		t.Fatalf("pizzas are stored in %v, want many in both versions", versions)
	}
	k.list(t)

	s := &guests{k: k, well: map[string]*atomic.Int64{}, counts: map[string]int64{}}
	s.storm(t)
	t.Logf("%s", s)

	k.list(t)
	after := k.stored(t)
	if len(after) != len(before) {
		t.Errorf("etcd holds %d pizzas, want %d as before", len(after), len(before))
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		name := key[strings.LastIndexByte(key, '/')+1:]
		if count, changes := s.counts[name]; changes {
			k.counted(t, name, after[key], count)
		} else if !bytes.Equal(before[key], after[key]) {
			t.Errorf("etcd must hold the unchanged %s as before\n%s\ngot\n%s", name, before[key], after[key])
		}
	}
}

// create creates pizzas, each with a status, every second one in v1beta1.
func (k *kitchen) create(t *testing.T, from, to int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := from; i < to; i++ {
		group.Go(func() error {
			version := []string{alpha, beta}[i%2]
			pizza := bare(version, nameOf(i))
			pizza.SetLabels(map[string]string{"number": fmt.Sprint(i)})
			pizza.Object["spec"] = map[string]any{"toppings": order(version, toppingsOf(i))}
			pizza.Object["status"] = map[string]any{"cost": costOf(i)}
			_, err := k.pizzas[version].Create(ctx, pizza, created())
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// apply applies a pizza as two managers: one applies the toppings in v1alpha1, the other an annotation and the same
// toppings in v1beta1. Both own the toppings.
func (k *kitchen) apply(ctx context.Context, i int) error {
	one := map[string]any{"toppings": order(alpha, toppingsOf(i))}
	other := map[string]any{"toppings": order(beta, toppingsOf(i))}
	return errors.Join(
		k.applyAs(ctx, alpha, "waiter", i, map[string]any{"spec": one}),
		k.applyAs(ctx, beta, "chef", i, map[string]any{"spec": other, "metadata": map[string]any{"annotations": map[string]any{"chef": "Ada"}}}),
	)
}

func (k *kitchen) applyAs(ctx context.Context, version, manager string, i int, fields map[string]any) error {
	pizza := map[string]any{"apiVersion": group + "/" + version, "kind": "Pizza"}
	maps.Copy(pizza, fields)
	metadata, _ := pizza["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = nameOf(i)
	pizza["metadata"] = metadata
	text, err := json.Marshal(pizza)
	if err != nil {
		return err
	}
	force := true
	_, err = k.pizzas[version].Patch(ctx, nameOf(i), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: manager, Force: &force})
	return err
}

// stored returns the pizzas in etcd.
func (k *kitchen) stored(t *testing.T) map[string][]byte {
	t.Helper()
	out, err := k.env.View.Stored(t.Context(), "hub", stored)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func storedIn(t *testing.T, objects map[string][]byte) map[string]int {
	t.Helper()
	versions := map[string]int{}
	for key, text := range objects {
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		versions[strings.TrimPrefix(object.APIVersion, group+"/")]++
	}
	return versions
}

// list lists all pizzas in both versions, and checks each of them.
func (k *kitchen) list(t *testing.T) {
	t.Helper()
	for _, version := range []string{alpha, beta} {
		harness.Eventually(t, "pizzas are listed in "+version, func(ctx context.Context) error {
			n, err := k.listIn(ctx, version)
			if err == nil && n != all {
				t.Fatalf("%d pizzas are listed in %s, want %d", n, version, all)
			}
			return err
		})
	}
}

// listIn lists the pizzas and returns their number. The error is the API server's, or a [wrongError].
func (k *kitchen) listIn(ctx context.Context, version string) (int, error) {
	n := 0
	o := limited(paged)
	for {
		page, err := k.pizzas[version].List(ctx, o)
		if err != nil {
			return n, err
		}
		for i := range page.Items {
			if err := check(&page.Items[i]); err != nil {
				return n, &wrongError{err}
			}
		}
		n += len(page.Items)
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return n, nil
		}
	}
}

// wrongError reports wrong content in a response of the API server.
type wrongError struct{ error }

// guests are concurrent clients.
type guests struct {
	k *kitchen

	// well counts successful calls by the kind of call.
	well map[string]*atomic.Int64
	// refused is the number of requests that the API server could not convert.
	refused atomic.Int64

	mu     sync.Mutex
	wrong  []error
	counts map[string]int64 // Last acknowledged count, by pizza.
}

func (s *guests) String() string {
	var out []string
	for what, n := range s.served() {
		out = append(out, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(out)
	return fmt.Sprintf("%s went well; %d requests were refused while the webhook was away", strings.Join(out, ", "), s.refused.Load())
}

// served returns the numbers of successful calls so far.
func (s *guests) served() map[string]int64 {
	out := map[string]int64{}
	for what, n := range s.well {
		out[what] = n.Load()
	}
	return out
}

// storm runs all clients. It ends when each kind of call has succeeded after each change of the certificate.
func (s *guests) storm(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	group := &errgroup.Group{}
	defer func() { _ = group.Wait() }() // The functions of the group return no errors.
	defer cancel()
	s.arrive(ctx, group)
	s.everybody(t, "is served")
	for n := range changes {
		by := (n + 1) % 2
		if err := s.k.rotate(by); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			refused := s.refused.Load()
			s.k.kill()
			harness.Eventually(t, "guests are refused", func(context.Context) error {
				if more := s.refused.Load() - refused; more < int64(len(s.well)) {
					return fmt.Errorf("%d are", more)
				}
				return nil
			})
			s.k.serve(t)
		}
		// The webhook reads the files when it starts; while it runs, it must notice the change itself.
		harness.Eventually(t, "the webhook has the other certificate", func(ctx context.Context) error { return s.k.presents(ctx, by) })
		s.everybody(t, "is served again")
	}
	cancel()
	_ = group.Wait()
	for _, err := range s.wrong {
		t.Error(err)
	}
}

// arrive starts all guests, in both versions if the call has two.
func (s *guests) arrive(ctx context.Context, group *errgroup.Group) {
	for i, version := range []string{alpha, beta} {
		s.repeat(ctx, group, s.count("lists in "+version), func(int) error {
			_, err := s.k.listIn(ctx, version)
			return err
		})
		s.repeat(ctx, group, s.count("gets in "+version), func(n int) error {
			pizza, err := s.k.pizzas[version].Get(ctx, nameOf((n*7919+i)%all), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := check(pizza); err != nil {
				return &wrongError{err}
			}
			return nil
		})
		s.repeat(ctx, group, s.count(fmt.Sprintf("applications from %d", i)), func(n int) error {
			return s.k.apply(ctx, (2*n+i)%applied*(all/applied))
		})
		events := s.count("events in " + version)
		s.repeat(ctx, group, new(atomic.Int64), func(int) error { return s.watch(ctx, version, events) }) // The events are counted, not the calls.
	}
	s.repeat(ctx, group, s.count("writes"), func(n int) error {
		return s.write(ctx, all-1-n%counted, []string{alpha, beta}[n/counted%2])
	})
}

// count returns the counter for a kind of call.
func (s *guests) count(what string) *atomic.Int64 {
	s.well[what] = new(atomic.Int64)
	return s.well[what]
}

// everybody waits for two more successful calls of each kind. The first one may have begun earlier.
func (s *guests) everybody(t *testing.T, what string) {
	t.Helper()
	before := s.served()
	harness.Eventually(t, "each kind of client "+what, func(context.Context) error {
		for what, n := range s.served() {
			if more := n - before[what]; more < 2 {
				return fmt.Errorf("%d more %s", more, what)
			}
		}
		return nil
	})
}

// repeat calls f until ctx ends, and counts the successful calls. An unreachable webhook is an expected error.
func (s *guests) repeat(ctx context.Context, group *errgroup.Group, well *atomic.Int64, f func(n int) error) {
	group.Go(func() error {
		for n := 0; ctx.Err() == nil; n++ {
			err := f(n)
			var wrong *wrongError
			switch {
			case ctx.Err() != nil:
			case err == nil:
				well.Add(1)
			case errors.As(err, &wrong):
				s.report(wrong)
			case strings.Contains(err.Error(), "conversion webhook for") && strings.Contains(err.Error(), `failed: Post "https://`):
				s.refused.Add(1)
			case apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
				apierrors.IsResourceExpired(err): // A list in pages took too long.
			default:
				s.report(err)
			}
			if err != nil {
				pause(ctx, 20*time.Millisecond)
			}
		}
		return nil
	})
}

func (s *guests) report(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) < 20 {
		s.wrong = append(s.wrong, err)
	}
}

// write increments the annotation of a pizza in a version.
func (s *guests) write(ctx context.Context, i int, version string) error {
	pizza, err := s.k.pizzas[version].Get(ctx, nameOf(i), metav1.GetOptions{})
	if err != nil {
		return err
	}
	var count int64
	if _, err := fmt.Sscan(pizza.GetAnnotations()["count"], &count); err != nil && pizza.GetAnnotations()["count"] != "" {
		return &wrongError{err}
	}
	s.mu.Lock()
	last := s.counts[nameOf(i)]
	s.counts[nameOf(i)] = max(last, count)
	s.mu.Unlock()
	if count < last {
		return &wrongError{fmt.Errorf("%s in %s has the count %d, although %d was acknowledged", nameOf(i), version, count, last)}
	}
	pizza.SetAnnotations(map[string]string{"count": fmt.Sprint(count + 1)})
	if _, err := s.k.pizzas[version].Update(ctx, pizza, metav1.UpdateOptions{FieldManager: "counter"}); err != nil {
		return err
	}
	s.mu.Lock()
	s.counts[nameOf(i)] = count + 1
	s.mu.Unlock()
	return nil
}

// watch checks the objects of a watch until the watch ends. The watch ends when the webhook stops, or after twice as
// many events as there are pizzas.
func (s *guests) watch(ctx context.Context, version string, events *atomic.Int64) error {
	w, err := s.k.pizzas[version].Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	seen := 0
	for e := range w.ResultChan() {
		pizza, ok := e.Object.(*unstructured.Unstructured)
		if !ok || pizza.GetKind() != "Pizza" {
			return nil // The watch was too slow; the caller repeats it.
		}
		if err := check(pizza); err != nil {
			return &wrongError{err}
		}
		events.Add(1)
		if seen++; seen == 2*all {
			return nil
		}
	}
	return nil
}

// counted checks the count of a pizza that a client incremented. It must be the last acknowledged count, or one more,
// because the response to the last request may be lost.
func (k *kitchen) counted(t *testing.T, name string, text []byte, acknowledged int64) {
	t.Helper()
	pizza := &unstructured.Unstructured{}
	if err := pizza.UnmarshalJSON(text); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if err := check(pizza); err != nil {
		t.Error(err)
	}
	var count int64
	_, _ = fmt.Sscan(pizza.GetAnnotations()["count"], &count) // Zero if it was never written.
	if count < acknowledged || count > acknowledged+1 {
		t.Errorf("%s has the count %d, although %d was acknowledged", name, count, acknowledged)
	}
}

// pause waits, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
