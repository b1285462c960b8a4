package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"refract.dev/internal/fair"
	"refract.dev/internal/poll"
)

// only has a single place, so that lists run one at a time.
func only() *fair.Places { return fair.New(fair.Options{Places: 1, Each: 2, All: 2}) }

// TestTurn: a turn ends when it is released, when its member leaves, and after a time limit.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, began := only(), time.Now()
		take := func(member string, life context.Context, want time.Duration) *turn {
			t.Helper()
			taken := &turn{turns: turns, member: member}
			if err := taken.take(life); err != nil || time.Since(began) != want {
				t.Errorf("take() of %s: want the turn after %s, got %s, %v", member, want, time.Since(began), err)
			}
			return taken
		}
		first := take("a", t.Context(), 0)
		take("b", t.Context(), longestTurn)
		first.give() // The turn has ended before, and is not released twice.
		life, end := context.WithCancel(t.Context())
		third := take("c", life, 2*longestTurn)
		end()
		take("d", t.Context(), 2*longestTurn).give()
		if err := third.take(life); !errors.Is(err, context.Canceled) {
			t.Errorf("take() for a member that has left: want %v, got %v", context.Canceled, err)
		}
		fifth := take("e", t.Context(), 2*longestTurn)
		if err := fifth.take(t.Context()); err != nil || time.Since(began) != 2*longestTurn {
			t.Errorf("take() during a turn of the same caller: want a turn at once, got it after %s, %v", time.Since(began), err)
		}
	})
}

// TestTurnsOfOneMember: even if one member delays any number of lists, the lists of other members begin at once.
func TestTurnsOfOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, began := newTurns(), time.Now()
		took := make(chan time.Duration, listsAtOnce)
		for range listsAtOnce {
			go func() {
				hostile := &turn{turns: turns, member: "hostile"}
				if err := hostile.take(t.Context()); err == nil {
					took <- time.Since(began)
				}
			}()
		}
		synctest.Wait()
		if n := len(took); n != listsAtOnce/2 {
			t.Errorf("want %d lists of one member under way, got %d", listsAtOnce/2, n)
		}
		for i := range listsAtOnce / 2 {
			other := &turn{turns: turns, member: fmt.Sprint("m-", i)}
			if err := other.take(t.Context()); err != nil || time.Since(began) > 0 {
				t.Fatalf("take() of another member: want the turn at once, got it after %s, %v", time.Since(began), err)
			}
		}
	})
}

// TestListsTakeTurns: the number of simultaneous lists is bounded, and the next list begins when one has ended.
func TestListsTakeTurns(t *testing.T) {
	slow := newStub(t)
	asked, answered := make(chan struct{}), make(chan struct{})
	slow.Server.Close()
	slow.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); r.URL.Path == "/api/v1/configmaps" && q.Get("watch") == "" {
			close(asked)
			select {
			case <-answered:
			case <-r.Context().Done():
			}
		}
		slow.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Server.Close)
	turns := only()
	first, second := connect(t, slow), connect(t, newStub(t))
	first.Copies.watches.observer.turns, second.Copies.watches.observer.turns = turns, turns
	listed := first.Copies.Watch(configMaps)
	<-asked
	next := second.Copies.Watch(configMaps)
	poll.Until(t, "the second list waits for the first", func() bool {
		ctx, end := context.WithTimeout(t.Context(), time.Millisecond)
		defer end()
		_, err := turns.Take(ctx, "another", 2) // The waiting list takes the only place in the queue.
		return errors.Is(err, fair.ErrFull)
	})
	close(answered)
	<-listed
	<-next
}
