package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Patience is how long anything may take that has no limit of its own. How long things
// take is for benchmarks to say: a machine that is busy with other things is slow, and
// what takes a second on one that is not has taken a minute and a half.
const Patience = 5 * time.Minute

// Eventually waits until try returns no error, and logs how long that took if it was
// noticeable. It fails the test with the last error when [Patience] is over. Cleanups
// may use it.
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

// Await tries until there is no error. It returns the last one when ctx ends or
// [Patience] does. What takes long to try it tries less often: on a busy machine what is
// waited for would have to wait for those who look.
func Await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	began := time.Now()
	var last error
	for every := 10 * time.Millisecond; ; every = min(2*every, 200*time.Millisecond) {
		tried := time.Now()
		err := try(ctx)
		rest := max(every, min(2*time.Since(tried), time.Second))
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // Or else the try has failed because its time was over.
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", time.Since(began).Round(time.Second), last)
		case <-time.After(rest):
		}
	}
}

// Consistently fails the test if is returns an error at any time that it is asked
// during this time. It is asked at once, and ten times a second.
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
