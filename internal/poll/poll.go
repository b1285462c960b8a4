// Package poll waits until a condition is true. It is for tests only.
package poll

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Patience is the time limit for waits that have no limit of their own. It is long, because an operation that takes a
// second on an idle machine has taken a minute and a half on a busy one. Tests do not measure durations; benchmarks do.
const Patience = 5 * time.Minute

// Eventually waits until try returns no error. If this takes more than a second, it logs the duration. After [Patience]
// it fails the test with the last error. It may be used in cleanups.
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

// Until is like [Eventually], for a condition without an error.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	Eventually(t, what, func(context.Context) error {
		if !is() {
			return errors.New("not true")
		}
		return nil
	})
}

// Await calls try until it returns no error. When ctx ends or after [Patience], it returns the last error. It pauses
// longer after slow calls, because frequent checks would delay the event itself on a busy machine.
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
		if ctx.Err() == nil || last == nil { // An error after the end of ctx may be only a consequence of that end.
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", time.Since(began).Round(time.Second), last)
		case <-time.After(rest):
		}
	}
}

// Consistently calls a function at once, and then ten times a second for the given time. It fails the test at the first
// error of this function.
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
