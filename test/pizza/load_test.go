package pizza

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// many is how many pizzas there are, and few how many of them are changed meanwhile.
	many, few = 5000, 40
	// restarts is how often the webhook is.
	restarts = 3
)

// TestLoad: thousands of pizzas, half of them stored in the one version and half in the
// other, are listed, read, and applied by two managers in two versions, while the
// webhook is restarted and gets another certificate. None is lost or changed: those
// that nobody has applied are byte for byte in etcd what they were.
func TestLoad(t *testing.T) {
	s := begin(t, setting{})
	s.fill(0, many/2)
	s.storeAs("v1beta1")
	s.fill(many/2, many)
	before := s.storedBytes()
	versions := map[string]int{}
	for _, o := range s.stored() {
		versions[o["apiVersion"].(string)]++
	}
	if diff := cmp.Diff(map[string]int{alpha: many / 2, beta: many / 2}, versions); diff != "" {
		t.Fatalf("both versions are stored: -want, +got:\n%s", diff)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var listed, read, applied atomic.Int64
	for _, version := range []string{alpha, beta} {
		running.Go(func() { s.keep(ctx, &listed, func(int) error { return s.listAll(ctx, version) }) })
		running.Go(func() {
			s.keep(ctx, &read, func(n int) error {
				i := few + n*7919%(many-few)
				p, err := s.tryGet(ctx, version, fmt.Sprintf("p-%d", i))
				if err == nil {
					err = isWhole(p, i)
				}
				return err
			})
		})
	}
	running.Go(func() { s.keep(ctx, &applied, func(n int) error { return s.applyBoth(n%few, n) }) })

	for n := range restarts {
		s.until("there was some load", func(context.Context) error {
			if listed.Load() < int64(n+1) || read.Load() < int64(100*(n+1)) || applied.Load() < int64(20*(n+1)) {
				return fmt.Errorf("%d lists, %d reads, %d applied", listed.Load(), read.Load(), applied.Load())
			}
			return nil
		})
		s.at.stop()
		if n == restarts-1 {
			s.must(s.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: secret}}))
		}
		s.serve(serving{})
	}
	goal := read.Load() + 200
	s.until("there is load still", func(context.Context) error {
		if read.Load() < goal {
			return fmt.Errorf("%d reads", read.Load())
		}
		return nil
	})
	cancel()
	running.Wait()
	t.Logf("%d lists of %d, %d reads, %d times applied by both", listed.Load(), many, read.Load(), applied.Load())

	after := s.storedBytes()
	if len(after) != many {
		t.Errorf("there are %d pizzas, want %d", len(after), many)
	}
	changed := 0
	for i := few; i < many; i++ {
		name := fmt.Sprintf("p-%d", i)
		if string(before[name]) != string(after[name]) {
			if changed++; changed < 5 {
				t.Errorf("%s has changed: -before, +after:\n%s", name, cmp.Diff(string(before[name]), string(after[name])))
			}
		}
	}
	for _, version := range []string{alpha, beta} {
		s.must(s.listAll(t.Context(), version))
	}
	for i := range few {
		s.must(s.applyBoth(i, 7))
		p := s.get(alpha, fmt.Sprintf("p-%d", i))
		cost, _, _ := unstructured.NestedFieldNoCopy(p.Object, "status", "cost")
		if fmt.Sprint(names(p)) != "[x x y]" || fmt.Sprint(cost) != "7.5" || p.GetLabels()["paid"] != "n7" || len(p.GetAnnotations()) > 0 {
			t.Errorf("applied by both it is %v", p.Object)
		}
	}
}

// fill creates the pizzas with these numbers, every other one in v1beta1.
func (s *scene) fill(from, to int) {
	s.Helper()
	var running sync.WaitGroup
	next := make(chan int)
	for range 8 {
		running.Go(func() {
			for i := range next {
				version, toppings := alpha, fmt.Sprintf(`[t%d, u%d, t%d]`, i%7, i%5, i%7)
				if i%2 == 1 {
					version, toppings = beta, fmt.Sprintf(`[{name: t%d, quantity: 2}, {name: u%d}]`, i%7, i%5)
				}
				if err := s.api.Create(s.Context(), s.read(pizza(version, fmt.Sprintf("p-%d", i), toppings))); err != nil {
					s.Errorf("creating number %d: %v", i, err)
				}
			}
		})
	}
	for i := from; i < to; i++ {
		next <- i
	}
	close(next)
	running.Wait()
}

// storedBytes returns what etcd holds of the namespace's pizzas, by name.
func (s *scene) storedBytes() map[string][]byte {
	s.Helper()
	prefix := "/registry/" + group + "/pizzas/" + s.ns + "/"
	all, err := s.playground.Stored(s.Context(), "hub", prefix)
	s.must(err)
	out := make(map[string][]byte, len(all))
	for key, value := range all {
		out[strings.TrimPrefix(key, prefix)] = value
	}
	return out
}

// keep does something until ctx ends, and counts how often it could. That nobody
// converts for a moment is the only thing that may be wrong.
func (s *scene) keep(ctx context.Context, count *atomic.Int64, do func(n int) error) {
	for n := 0; ctx.Err() == nil; n++ {
		err := do(n)
		switch {
		case err == nil:
			count.Add(1)
		case ctx.Err() != nil:
		case strings.Contains(err.Error(), "conversion webhook for"):
			select { // It may take a while.
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		default:
			s.Errorf("under load: %v", err)
			return
		}
	}
}

// listAll lists all pizzas in pages, and looks at each that nobody changes.
func (s *scene) listAll(ctx context.Context, version string) error {
	seen := 0
	for page := (metav1.ListOptions{Limit: 1000}); ; {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(version)
		list.SetKind("PizzaList")
		if err := s.api.List(ctx, list, client.InNamespace(s.ns), &client.ListOptions{Raw: &page}); err != nil {
			return err
		}
		for i := range list.Items {
			seen++
			var number int
			if _, err := fmt.Sscanf(list.Items[i].GetName(), "p-%d", &number); err != nil {
				return err
			}
			if number < few {
				continue
			}
			if err := isWhole(&list.Items[i], number); err != nil {
				return err
			}
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			break
		}
	}
	if seen != many {
		return fmt.Errorf("a list in %s has %d pizzas", version, seen)
	}
	return nil
}

// isWhole returns an error unless a pizza has the toppings of its number.
func isWhole(p *unstructured.Unstructured, number int) error {
	want := fmt.Sprintf("[2 t%d 1 u%d]", number%7, number%5)
	got := names(p)
	if p.GetAPIVersion() == alpha {
		want = fmt.Sprintf("[t%d t%d u%d]", number%7, number%7, number%5)
		slices.Sort(got)
	}
	if fmt.Sprint(got) != want || len(p.GetAnnotations()) > 0 {
		return fmt.Errorf("%s in %s is %v", p.GetName(), p.GetAPIVersion(), p.Object)
	}
	return nil
}

// applyBoth has two managers apply their parts of a pizza, each in its version.
func (s *scene) applyBoth(i, n int) error {
	kitchen := fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p-%d"},"spec":{"toppings":[{"name":"x","quantity":2},{"name":"y"}]}}`, beta, i)
	till := fmt.Sprintf(`{"apiVersion":%q,"kind":"Pizza","metadata":{"name":"p-%d","labels":{"paid":"n%d"}},"status":{"cost":%d.5}}`, alpha, i, n, n)
	if err := s.apply("kitchen", true, kitchen); err != nil {
		return err
	}
	return s.apply("till", true, till)
}
