package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shift has the places of a test. It records which keys took a place, in order, and how long they waited.
type shift struct {
	*Places

	served []string
	waits  map[string][]time.Duration
}

func begin(o Options) *shift { return &shift{Places: New(o), waits: map[string][]time.Duration{}} }

// work starts a caller that works for a key for the given time. It returns as soon as the caller waits or works.
func (s *shift) work(ctx context.Context, t *testing.T, key string, takes time.Duration) {
	t.Helper()
	go func() {
		begun := time.Now()
		done, err := s.Take(ctx, key, 1)
		if err != nil {
			t.Errorf("Take(%s): %v", key, err)
			return
		}
		s.mu.Lock()
		s.served = append(s.served, key)
		s.waits[key] = append(s.waits[key], time.Since(begun))
		s.mu.Unlock()
		time.Sleep(takes) //nolint:forbidigo // The time is that of the test.
		done()
	}()
	synctest.Wait()
}

// order returns the keys that took a place, in this order.
func (s *shift) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

// pass lets time pass, and waits for its effects.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // The time is that of the test.
	synctest.Wait()
}

// TestLaw: if all work takes equally long, each key waits for at most one piece of work of each other key and place,
// whatever the amount of work.
func TestLaw(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			places, keys := 1+r.IntN(4), 2+r.IntN(5)
			s := begin(Options{Places: places, Each: 1000, All: 1000})
			waiting, others := map[string]int{}, map[string]int{}
			for range 20 + r.IntN(100) {
				key := fmt.Sprint(r.IntN(keys) * r.IntN(2)) // More than half of the work is for the key 0.
				waiting[key]++
				s.work(t.Context(), t, key, time.Second)
				// No two callers come at the same time: their order would be undefined.
				pass(time.Duration(r.IntN(3))*100*time.Millisecond + time.Nanosecond)
			}
			arrived := len(s.order())
			pass(time.Hour)
			for key := range waiting {
				waiting[key] -= count(s.order()[:arrived], key)
			}
			for _, key := range s.order()[arrived:] { // From here on, no more callers come.
				for other := range waiting {
					if other != key && waiting[other] > 0 {
						others[other]++
					}
				}
				waiting[key]--
				if most := (keys - 1) * places; others[key] > most {
					t.Fatalf("seed %d: key %s waited for %d others, want %d at most of %d keys at %d places: %v", seed, key, others[key], most, keys, places, s.order()[arrived:])
				}
				others[key] = 0
			}
		})
	}
}

func count(served []string, key string) int {
	return len(served) - len(slices.DeleteFunc(slices.Clone(served), func(s string) bool { return s == key }))
}

// TestTurns tests the order of turns in one example.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(Options{Places: 1, Each: 10, All: 30})
		for _, key := range []string{"a", "a", "a", "a", "b", "b", "c"} {
			s.work(t.Context(), t, key, time.Second)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]string{"a", "b", "c", "a", "b", "a", "a"}, s.order()); diff != "" {
			t.Errorf("Turns: -want, +got:\n%s", diff)
		}
	})
}

// TestLight: a key with little work waits only for the work that is in progress, and not for the waiting work of a key
// with much work.
func TestLight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const heavy, light = 20 * time.Millisecond, 100 * time.Microsecond
		s := begin(Options{Places: 2, Each: 1000, All: 2000})
		for range 500 {
			s.work(t.Context(), t, "heavy", heavy)
		}
		for range 200 {
			pass(10 * time.Millisecond)
			for range 3 {
				s.work(t.Context(), t, "light", light)
			}
		}
		pass(time.Minute)
		if got := slices.Max(s.waits["light"]); got > heavy+2*light {
			t.Errorf("One of the light ones waited for %s", got)
		}
		if len(s.order()) != 500+600 {
			t.Errorf("%d were served", len(s.order()))
		}
	})
}

// TestAlone: a single key uses all places, and no place stays free.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(Options{Places: 3, Each: 10, All: 10})
		for range 5 {
			s.work(t.Context(), t, "a", time.Second)
		}
		if len(s.order()) != 3 {
			t.Errorf("%d work, want 3", len(s.order()))
		}
		pass(time.Minute)
		if len(s.order()) != 5 || len(s.keys) != 0 || s.free != 3 || s.waiting != 0 {
			t.Errorf("In the end %d were served, and %d keys are remembered", len(s.order()), len(s.keys))
		}
	})
}

// TestApart: the places in Apart remain free for keys without a place.
func TestApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(Options{Places: 2, Each: 10, All: 10, Apart: 1})
		for _, key := range []string{"a", "a", "a", "b"} {
			s.work(t.Context(), t, key, time.Second)
		}
		if diff := cmp.Diff([]string{"a", "b"}, s.order()); diff != "" {
			t.Errorf("At work: -want, +got:\n%s", diff)
		}
		pass(time.Minute)
		if len(s.order()) != 4 {
			t.Errorf("%v were served", s.order())
		}
	})
}

// TestBounds: the weight of the waiting callers is bounded, for each key and for all keys together.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Places: 1, Each: 4, All: 6})
		done, err := p.Take(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		ends := map[string]chan error{}
		wait := func(name, key string, weight int) {
			end := make(chan error, 1)
			ends[name] = end
			go func() {
				free, err := p.Take(t.Context(), key, weight)
				if err == nil {
					free()
				}
				end <- err
			}()
			synctest.Wait()
		}
		full := func(name string) bool {
			select {
			case err := <-ends[name]:
				return errors.Is(err, ErrFull)
			default:
				return false
			}
		}
		wait("a1", "a", 3)
		wait("a2", "a", 1)
		wait("a3", "a", 1)
		if !full("a3") {
			t.Error("No more may wait for a key than its share.")
		}
		wait("b1", "b", 2)
		wait("c1", "c", 1)
		if !full("a2") || full("c1") {
			t.Error("Whoever waits last for the key with the most makes room for another.")
		}
		wait("d1", "d", 5)
		if !full("d1") {
			t.Error("No room is made for one for whom more would wait than for any.")
		}
		done()
		for _, name := range []string{"a1", "b1", "c1"} {
			if err := <-ends[name]; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestCancelled: a caller whose context ends takes no place, and its weight no longer counts.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Places: 1, Each: 1, All: 1})
		done, err := p.Take(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("no patience")
		ctx, cancel := context.WithCancelCause(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := p.Take(ctx, "b", 1)
			left <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-left; !errors.Is(err, why) {
			t.Errorf("Take(): got %v, want %v", err, why)
		}
		if _, err := p.Take(ctx, "b", 1); !errors.Is(err, why) {
			t.Errorf("Take(): got %v, want %v", err, why)
		}
		done()
		if p.waiting != 0 || p.free != 1 || len(p.keys) != 0 {
			t.Errorf("%d wait, %d places are free, and %d keys are remembered", p.waiting, p.free, len(p.keys))
		}
	})
}
