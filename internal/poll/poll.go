// Package poll waits in tests until a condition holds. It is for tests only.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Patience is the time limit for everything without a limit of its own. Benchmarks measure durations, tests do not: an
// operation of a second on an idle machine has taken a minute and a half on a busy one.
const Patience = 5 * time.Minute

// Eventually waits until try returns no error, and logs the duration if it exceeds a second. After [Patience] it fails
// the test with the last error. Cleanups may use it.
func Eventually(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	began := time.Now()
	if err := Await(context.WithoutCancel(t.Context()), try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: after %s", what, took.Round(10*time.Millisecond))
	}
}

// Until is [Eventually] for a condition without an error.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	Eventually(t, what, func(context.Context) error {
		if !is() {
			return errors.New("not true")
		}
		return nil
	})
}

// Await calls try until it returns no error. When ctx ends or after [Patience], it returns the last error. It calls a
// slow function less often: on a busy machine frequent checks would delay the expected event.
func Await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	began := time.Now()
	var last error
	for every := time.Millisecond; ; every = min(2*every, 200*time.Millisecond) {
		tried := time.Now()
		err := try(ctx)
		rest := max(every, min(2*time.Since(tried), time.Second))
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // Otherwise try has failed only because the time is over.
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", time.Since(began).Round(time.Second), last)
		case <-time.After(rest):
		}
	}
}

// Consistently calls is at once, and then ten times a second for the duration. It fails the test if is returns an error.
func Consistently(t testing.TB, what string, during time.Duration, is func(context.Context) error) {
	t.Helper()
	over := time.After(during)
	for {
		if err := is(t.Context()); err != nil {
			t.Fatalf("%s: not any more: %v", what, err)
		}
		select {
		case <-over:
			return
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, context.Cause(t.Context()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
